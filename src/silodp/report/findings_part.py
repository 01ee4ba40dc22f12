"""The part of a report about how sure models are, and in what they differ, of few messages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import amount, count, percent, shown
from silodp.figures.looks import BLACK, GREEN, PURPLE, SKY, Look
from silodp.report import silo_charts
from silodp.report.checks import AMOUNT, NUMBER, TEXT, fits
from silodp.report.html import Html, joined, tag
from silodp.report.interval_charts import Interval, Rows, ends_of, interval_chart
from silodp.report.tables import Cell, folded, table
from silodp.results.few_messages import ABSENT, INTERVAL, POOLED
from silodp.results.learned import sentences
from silodp.results.result import Result

_MOST_FEATURES, _MOST_SILOS = 14, 12  # that are drawn
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_OWN = Look("this silo", PURPLE, "-", "o")
_MEAN = Look("mean model", BLACK, "-", "D", hollow=True)
_SILOS = Look("where 95 of 100 silos are", PURPLE, "-", "o")
_NOW = Look("now", PURPLE, "-", "o")
_MESSAGE = Look("one more message", SKY, "-", "^")
_BUDGET = Look("twice the budget", GREEN, "-", "s")
_CHANGES = (
    "Effects are those of the change that the table names: of a number with public bounds, from "
    "the lowest to the highest value that it may have; of a number that was standardised, by one "
    "standard deviation; of a category, that it is this one."
)
_FALLBACKS = {POOLED: "mean model", ABSENT: "mean model: sent nothing"}

_FEATURE = {
    "feature": TEXT,
    "change": TEXT,
    "per_own": (NUMBER,),
    "mean": NUMBER,
    "mean_error": AMOUNT,
    "spread": (AMOUNT,),
    "chance": (AMOUNT,),
}
_MORE = {"epsilon": AMOUNT, "prediction_error": AMOUNT}
_SILO = {
    "silo": TEXT,
    "fallback": (TEXT,),
    "kept": NUMBER,
    "prediction_error": AMOUNT,
    "outcome_error": (AMOUNT,),
    "more": {...: _MORE},
}
_OF_MODELS = {
    "unit": TEXT,
    "prediction_unit": TEXT,
    "features": [_FEATURE],
    "silos": [_SILO],
    "effects": ([[NUMBER]],),
    "effect_errors": ([[AMOUNT]],),
}
_OF_CLASSES = {
    "classes": [TEXT],
    "mean": [NUMBER],
    "silos": [{"silo": TEXT, "frequencies": [NUMBER], "error": AMOUNT}],
}


def has_findings(result: Result) -> bool:
    """Whether a result holds what this part shows: another method may call anything findings."""
    findings = (result.learned or {}).get("findings")
    if not any(fits(findings, shape) for shape in (_OF_MODELS, _OF_CLASSES)):
        return False
    assert isinstance(findings, Mapping)
    named = [silo["silo"] for silo in findings["silos"]]
    if named != [silo["silo"] for silo in result.per_silo]:
        return False
    if "features" not in findings:
        classes = len(findings["mean"])
        return all(len(silo["frequencies"]) == classes for silo in findings["silos"])
    wide = len(findings["features"])
    tables = [findings[name] for name in ("effects", "effect_errors") if findings.get(name)]
    return wide > 0 and all(
        len(rows) == len(named) and all(len(row) == wide for row in rows) for rows in tables
    )


def findings_part(result: Result) -> Html | None:
    """How sure models are, in what silos differ, and what more would bring; None if unknown."""
    if not has_findings(result):
        return None
    findings = (result.learned or {})["findings"]
    draw = _of_models if "features" in findings else _of_classes
    return tag(
        "div",
        tag("h3", "How sure the models are"),
        tag("ul", [tag("li", sentence) for sentence in sentences(result)]),
        draw(findings),
        tag(
            "p",
            "All of it follows from what was released, and costs no privacy. Intervals are of "
            "95 %, and rest on the method's own model of the records: silos that are alike but for "
            "normal deviations, and linear models.",
            class_="note",
        ),
    )


def _of_models(findings: Mapping[str, Any]) -> Html:
    silos, features = findings["silos"], findings["features"]
    order = sorted(range(len(features)), key=lambda n: -_size(features[n]))[:_MOST_FEATURES]
    parts = []
    if len(silos) > 1:
        parts.append(_mean_chart(findings, order))
    if findings.get("effects"):
        parts.append(_silo_charts(findings, order))
    parts += [_more_chart(findings), _feature_table(findings), _silo_table(findings)]
    return joined(parts)


def _size(feature: Mapping[str, Any]) -> float:
    return abs(feature["mean"]) + (feature["spread"] or 0.0)


def _mean_chart(findings: Mapping[str, Any], order: Sequence[int]) -> Html:
    rows = []
    for place in order:
        one = findings["features"][place]
        value, spread = one["mean"], INTERVAL * (one["spread"] or 0.0)
        low, high = value - spread, value + spread
        what = f"{shown(one['feature'])}: 95 of 100 silos between {amount(low)} and {amount(high)}"
        rows.append((one["feature"], [_mean_of(one), Interval(_SILOS, value, low, high, what)]))
    return interval_chart(
        f"What features do in the mean model, and how far silos differ{_of_all(findings, order)}",
        rows,
        _effect_label(findings),
        f"Effects of {count(len(rows), 'feature')} in the mean model with 95 % intervals, and how "
        "far silos differ. The table has the numbers.",
        below=tag("p", _CHANGES, class_="note"),
    )


def _of_all(findings: Mapping[str, Any], order: Sequence[int]) -> str:
    every = len(findings["features"])
    return f" (the largest {len(order)} of {every:,} features)" if len(order) < every else ""


def _effect_label(findings: Mapping[str, Any]) -> str:
    return f"effect on {findings['unit']}"


def _silo_charts(findings: Mapping[str, Any], order: Sequence[int]) -> Html:
    """A chart for each silo, of those that keep most of their own if there are many."""
    silos = findings["silos"]
    places = sorted(range(len(silos)), key=lambda place: -silos[place]["kept"])[:_MOST_SILOS]
    by_silo = {place: _silo_rows(findings, place, order) for place in sorted(places)}
    ends = ends_of([row for rows in by_silo.values() for row in rows])
    drawn = [
        _silo_chart(findings, shown(silos[place]["silo"]), rows, ends, _of_all(findings, order))
        for place, rows in by_silo.items()
    ]
    if len(silos) == 1:
        return drawn[0]
    which = "Each silo's own effects"
    if len(places) < len(silos):
        which = f"The {len(places)} of {len(silos):,} silos that keep most of their own: effects"
    return folded(f"{which}, beside the mean model", *drawn)


def _silo_rows(findings: Mapping[str, Any], place: int, order: Sequence[int]) -> Rows:
    silo, rows = shown(findings["silos"][place]["silo"]), []
    for number in order:
        one = findings["features"][number]
        value, name = findings["effects"][place][number], shown(one["feature"])
        reach = INTERVAL * findings["effect_errors"][place][number]
        own = _around(_OWN, value, reach, f"{name}, {silo}")
        rows.append((one["feature"], [own, _mean_of(one)]))
    return rows


def _silo_chart(
    findings: Mapping[str, Any], silo: str, rows: Rows, ends: tuple[float, float], of_all: str
) -> Html:
    return interval_chart(
        f"{silo}: what features do, beside the mean model{of_all}",
        rows,
        _effect_label(findings),
        f"Effects of {count(len(rows), 'feature')} in the model of {silo}, with 95 % intervals, "
        "beside those of the mean model",
        ends,
    )


def _around(look: Look, value: float, reach: float, what: str) -> Interval:
    return Interval(look, value, value - reach, value + reach, f"{what}: {_interval(value, reach)}")


def _mean_of(feature: Mapping[str, Any]) -> Interval:
    what = f"{shown(feature['feature'])}, mean model"
    return _around(_MEAN, feature["mean"], INTERVAL * feature["mean_error"], what)


def _more_chart(findings: Mapping[str, Any]) -> Html | None:
    silos, unit = findings["silos"], findings["prediction_unit"]
    if not all(silo["more"].keys() >= {"message", "budget"} for silo in silos):
        return None
    drawn, which = silos, ""
    if len(silos) > silo_charts.MOST_ROWS:  # from the surest to the least sure
        by_error = sorted(silos, key=lambda silo: silo["prediction_error"])
        drawn = [by_error[round(share * (len(silos) - 1))] for share in _SHARES]
        which = f" (five of {len(silos):,} silos, from the surest to the least sure)"
    rows = []
    for silo in drawn:
        more = silo["more"]
        dots = [(_NOW, silo["prediction_error"], "now")]
        dots += [
            (look, more[name]["prediction_error"], f"{words} (epsilon {more[name]['epsilon']:.3g})")
            for name, look, words in (
                ("message", _MESSAGE, "with one more message"),
                ("budget", _BUDGET, "with twice the budget"),
            )
        ]
        rows.append(
            (
                silo["silo"],
                [
                    Interval(
                        look,
                        INTERVAL * error,
                        0.0,
                        INTERVAL * error,
                        f"{shown(silo['silo'])}, {words}: ± {amount(INTERVAL * error)}{unit}",
                    )
                    for look, error, words in dots
                ],
            )
        )
    who = "all silos" if len(silos) > 1 else "this silo alone"
    note = (
        f"Expected, if {who} had it, from the numbers that this run has found and if silos differ "
        "by as much as it has seen. A message more is like the last one."
    )
    return interval_chart(
        f"How sure predictions are, and what more would bring{which}",
        rows,
        f"± of predictions, 95 %{f' ({unit.strip()})' if unit else ''}",
        "How far predictions of each silo may be from those of its best model, now, with one more "
        "message and with twice the budget. The table has the numbers.",
        below=tag("p", note, class_="note"),
    )


def _interval(value: float, reach: float) -> str:
    return f"{amount(value)} ± {amount(reach)}"


def _feature_table(findings: Mapping[str, Any]) -> Html:
    features = findings["features"]
    several = features[0]["spread"] is not None
    columns = ["feature", "its change", "effect", "per 1 of its own"]
    columns += ["between silos", "by chance"] if several else []
    rows = []
    for one in features:
        per_own = one["per_own"]
        row = [
            shown(one["feature"]),
            one["change"],
            Cell(_interval(one["mean"], INTERVAL * one["mean_error"]), one["mean"]),
            Cell("not public", math.nan)
            if per_own is None
            else Cell(amount(per_own * one["mean"]), per_own * one["mean"]),
        ]
        if several:
            clear = "clear" if one.get("differs") else "may be chance"
            row += [
                Cell(f"± {amount(INTERVAL * one['spread'])}", one["spread"]),
                Cell(f"{_chance(one['chance'])} ({clear})", one["chance"]),
            ]
        rows.append(row)
    between = (
        " Between silos: where 95 of 100 silos are around the mean. By chance: how often such a "
        "difference, or a larger one, would be seen if silos did not differ in that feature; clear "
        "at 5 % for all features together."
        if several
        else ""
    )
    caption = f"Effect of each feature on {findings['unit']} in the mean model.{between}"
    return folded("All features as a table", table(caption, columns, rows))


def _chance(chance: float) -> str:
    return "below 0.1 %" if chance < 0.001 else percent(chance)


def _silo_table(findings: Mapping[str, Any]) -> Html:
    unit = findings["prediction_unit"]
    outcomes = all(silo["outcome_error"] is not None for silo in findings["silos"])
    columns = ["silo", "model", "keeps of its own", "predictions"]
    columns += ["one outcome"] if outcomes else []
    names = [("message", "with one more message"), ("budget", "with twice the budget")]
    names = [pair for pair in names if all(pair[0] in silo["more"] for silo in findings["silos"])]
    rows = []
    for silo in findings["silos"]:
        errors = [silo["prediction_error"], *([silo["outcome_error"]] if outcomes else [])]
        errors += [silo["more"][name]["prediction_error"] for name, _ in names]
        rows.append(
            [
                shown(silo["silo"]),
                _FALLBACKS.get(silo["fallback"], "its own"),
                Cell(percent(max(silo["kept"], 0.0)), silo["kept"]),
                *(Cell(f"± {amount(INTERVAL * error)}{unit}", error) for error in errors),
            ]
        )
    caption = (
        "Predictions: how far they may be from those of the best linear model of the silo, in 95 "
        "of 100 cases."
    )
    caption += " One outcome: how far it may be from its prediction." if outcomes else ""
    listed = table(caption, [*columns, *(words for _, words in names)], rows)
    return folded("How sure each silo's model is, as a table", listed)


def _of_classes(findings: Mapping[str, Any]) -> Html:
    """Class frequencies of each silo, with what is not known of them."""
    names = findings["classes"] or [f"class {n + 1}" for n in range(len(findings["mean"]))]
    few = range(min(len(names), _MOST_FEATURES))
    drawn = [_classes_chart(findings, silo, names, few) for silo in findings["silos"][:_MOST_SILOS]]
    silos = len(findings["silos"])
    which = f"The first {len(drawn)} of {silos:,} silos" if len(drawn) < silos else "Each silo"
    rows = [
        [
            shown(silo["silo"]),
            Cell(f"± {percent(INTERVAL * silo['error'])}", silo["error"]),
            *(Cell(percent(silo["frequencies"][n]), silo["frequencies"][n]) for n in few),
        ]
        for silo in findings["silos"]
    ]
    columns = ["silo", "known to within", *(shown(names[n]) for n in few)]
    listed = table("Class frequencies of each silo, as its model takes them", columns, rows)
    return joined(
        folded(f"{which}: class frequencies, beside those of all", *drawn),
        folded("Class frequencies as a table", listed),
    )


def _classes_chart(
    findings: Mapping[str, Any], silo: Mapping[str, Any], names: Sequence[str], few: range
) -> Html:
    name, reach, rows = shown(silo["silo"]), INTERVAL * silo["error"], []
    for place in few:
        own, mean = silo["frequencies"][place], findings["mean"][place]
        of_class = shown(names[place])
        label = f"{of_class}, {name}: {percent(own)} ± {percent(reach)}"
        rows.append(
            (
                names[place],
                [
                    Interval(_OWN, own, max(own - reach, 0.0), min(own + reach, 1.0), label),
                    Interval(_MEAN, mean, mean, mean, f"{of_class}, all: {percent(mean)}"),
                ],
            )
        )
    return interval_chart(
        f"{name}: how frequent classes are",
        rows,
        "frequency",
        f"Class frequencies of {name} with 95 % intervals, beside those of all silos",
    )
