"""The report's page does nothing but what is ours, and can be read by everybody."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Reader, page_of
from report_runs import EVIL, made_up, write_federation, write_runs

from silodp.report import report_page
from silodp.report.html import Html, joined, tag, text
from silodp.report.page import asset
from silodp.report.tables import Cell, table


def test_names_of_others_stay_text(tmp_path):
    result = made_up(
        "mrmtl", silos=list(EVIL), data=EVIL[0], unproven=(EVIL[1],), warnings=[EVIL[0]]
    )
    write_runs(tmp_path, result, replace(result, method="local"))
    text = report_page([tmp_path])
    page = Reader(text)
    assert len(page.all("script")) == 1
    assert len(page.all("style")) == 1
    assert not page.all("img")
    assert not page.all("b")
    assert "<script>alert(1)</script>" in page.text  # is shown as what it is
    for character in ("\u202e", "\x1b"):
        assert character not in text
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert not (attributes.get("href") or "#").startswith("javascript")


NASTY = st.text(
    st.sampled_from("<>&\"'`=/ \n\t\\x0;:-!{}[]()abconerror\u202e\x00\x1b\ud7ff"), max_size=30
)


@given(NASTY, NASTY)
def test_whatever_the_text_it_does_not_become_markup(content, value):
    built = tag("p", content, title=value, data_label=value)
    page = Reader(str(built))
    assert [name for name, _ in page.elements] == ["p"]
    assert set(page.elements[0][1]) == {"title", "data-label"}
    assert page.elements[0][1]["title"] == page.elements[0][1]["data-label"]


def test_only_html_is_html():
    assert joined("<a>", Html("<b>")) == "&lt;a&gt;<b>"
    assert tag("p", "x", hidden=False, open=True) == "<p open>x</p>"
    assert tag("td", None, 3, data_v=0.123456) == '<td data-v="0.12">3</td>'
    assert text("\u202e\n") == "\\u202e\\n"


def test_the_page_allows_its_own_script_and_nothing_from_outside(tmp_path):
    import base64
    import hashlib

    text = report_page([write_federation(tmp_path)])
    page = Reader(text)
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") is not None]
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http:" not in text
    assert "https:" not in text
    addresses = [v for _, a in page.elements for n, v in a.items() if n in ("src", "href")]
    assert all(value.startswith(("#", "data:image/png")) for value in addresses)
    assert not any("style" in attributes for _, attributes in page.elements)


def test_script_and_style_hold_no_end_tags():
    for name in ("page.js", "live.js", "page.css"):
        assert "</" not in asset(name)


def test_every_drawing_has_words_and_every_control_a_name(tmp_path):
    page = page_of(write_federation(tmp_path))
    drawings = [one for one in page.all("svg") if one.get("role") == "img"]
    assert drawings
    assert all(len(one["aria-label"] or "") > 20 for one in drawings)
    assert all("aria-label" in one for one in page.all("div") if one.get("tabindex") == "0")
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("main")) == 1
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = [one["href"][1:] for one in page.all("a")]
    assert set(targets) <= set(ids)
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast(scheme):
    """Text at least 4.5 to 1, marks at least 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    found = re.findall(r":root \{(.*?)\n\s*\}", asset("page.css"), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", found))
    for name in ("ink", "soft", "link"):
        for behind in ("page", "raised"):
            assert _contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    assert _contrast(colours["ink"], colours["warn-page"]) >= 4.5
    marks = (
        "black",
        "grey",
        "blue",
        "sky",
        "vermillion",
        "green",
        "purple",
        "orange",
        "rule",
        "rest",
    )
    for name in marks:
        assert _contrast(colours[name], colours["page"]) >= 3, name


def test_names_that_begin_alike_stay_apart(tmp_path):
    names = [f"Sankt-Elisabeth-Krankenhaus am {place}" for place in ("Berg", "See", "Wald")]
    page = page_of(write_runs(tmp_path, made_up(silos=names)))
    assert all(
        any("…" in word and word.endswith(name[-5:]) for word in page.words) for name in names
    )


def test_numbers_of_a_cell_stay_whole():
    cell = Cell("0.1 ± 0.2 (5 % < x)", 0.1)
    whole = table("T", ["a"], [[cell]])
    assert ' class="number spread"' in whole
    assert ">0.1 ±&nbsp;0.2 (5&nbsp;%&nbsp;&lt;&nbsp;x)</td>" in whole


def test_options_are_not_broken_after_their_dashes():
    assert tag("p", "Give --lam <1> --not-a-page.", "a--b") == (
        '<p>Give <span class="whole">--lam</span> &lt;1&gt; '
        '<span class="whole">--not-a-page</span>.a--b</p>'
    )
    assert tag("title", "--lam") == "<title>--lam</title>"
