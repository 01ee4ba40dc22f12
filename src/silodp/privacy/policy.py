"""A silo's own policy: what may be spent, on whose protection, and what is public anyway.

It belongs to the silo. What its file looks like is in `policy_files`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Any, get_args

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import LifetimeFilter, Relation

RECORD_COUNT = "record count"
PUBLIC = (RECORD_COUNT, "feature bounds", "label range", "class list")
"""What a silo may declare public: known to all before any record is read."""
SCORE_RECORDS = "score records"
"""May be declared public too, but is not by default: records set apart to score trials with."""
LEDGER_SUMMARY = "ledger summary"
"""Likewise: what was spent of the lifetime, without names of silos or runs."""

# From here on a promise says little: e^10 is a factor of 22,000.
_WEAK_EPSILON = 10.0


@dataclass(frozen=True)
class Policy:
    """What one silo allows.

    Attributes:
      epsilon: at most this may be spent in a run; infinity asks for no privacy.
      delta: chance with which that bound may fail.
      lifetime_epsilon: at most this over everything that is ever charged to the silo's ledger; by
        default as much as for one run.
      lifetime_delta: delta of the lifetime; by default as for one run.
      lifetime_filter: what decides whether a run fits the lifetime; fixed for good when the ledger
        is opened. "renyi" takes every run, "gaussian" only Gaussian mechanisms on all records and
        selections, more tightly.
      relation: neighbours differ by one record (or subject) more ("add-remove"), or by one that is
        exchanged for another ("replace-one").
      subject: the column that names whom a record is about, if people are protected and not single
        records.
      public: which of PUBLIC is, and whether the SCORE_RECORDS and the LEDGER_SUMMARY are. Under
        replace-one the count is public by definition.
      records: a public stand-in for the number of records (or subjects), where that is not public:
        sampling rate and steps follow from it.
      silo: not kept: it only names whose policy it is, should it be refused.

    Examples:
      >>> policy = silodp.Policy(epsilon=1, delta=1e-4, lifetime_epsilon=8, subject="patient")
      >>> policy.lifetime, policy.unit
      ((8.0, 0.0001), 'subject')
    """

    epsilon: float
    delta: float
    lifetime_epsilon: float | None = None
    lifetime_delta: float | None = None
    lifetime_filter: LifetimeFilter = "renyi"
    relation: Relation = "add-remove"
    subject: str | None = None
    public: tuple[str, ...] = PUBLIC
    records: int | None = None
    silo: InitVar[str] = ""

    def __post_init__(self, silo: str):
        where = f"Silo {silo!r}:" if silo else "The policy's"
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self)):
            if value is not None or name in REQUIRED:
                object.__setattr__(self, name, checked(name, value, where))
        for name in REQUIRED:
            lifetime = getattr(self, f"lifetime_{name}")
            if lifetime is not None and lifetime < getattr(self, name):
                raise SilodpError(
                    f"{where} lifetime_{name} is {lifetime:g}, below the {name} of a single run "
                    f"({getattr(self, name):g}): raise the one or lower the other."
                )
        if not self.count_is_public and self.records is None:
            raise SilodpError(
                f"{where} record count is not public, but sampling rate and steps follow from it: "
                f"give a public stand-in (records = 100), or add {RECORD_COUNT!r} to public."
            )

    @property
    def count_is_public(self) -> bool:
        """Whether the number of records may be used as it is."""
        return self.relation == "replace-one" or RECORD_COUNT in self.public

    @property
    def unit(self) -> str:
        """Whom epsilon is for: "record" or "subject"."""
        return "record" if self.subject is None else "subject"

    @property
    def lifetime(self) -> tuple[float, float]:
        """Epsilon and delta for the lifetime of the silo's ledger."""
        epsilon = self.epsilon if self.lifetime_epsilon is None else self.lifetime_epsilon
        return epsilon, self.delta if self.lifetime_delta is None else self.lifetime_delta

    @property
    def max_count(self) -> int | None:
        """How many records (or subjects) there may be, where their number is not public.

        The site declares it with `records`: twice as many. It is taken for granted, as what is
        public is: with more, epsilon would not be what the plan says.
        """
        return None if self.count_is_public or self.records is None else 2 * self.records

    def counted(self, units: int) -> int:
        """The number that sampling rate and steps follow from: the true one only if public."""
        return units if self.count_is_public or self.records is None else self.records


FIELDS = tuple(field.name for field in fields(Policy))
REQUIRED = ("epsilon", "delta")


def check_declared(silo: str, policy: Policy, declared: Sequence[str]) -> None:
    """Refuses to use as public what the silo's policy does not declare so."""
    for kind in declared:
        if kind not in policy.public:
            raise SilodpError(
                f"Silo {silo!r}: its policy does not declare the {kind} public, but these data are "
                f"prepared with declared {kind}: add {kind!r} to public, or prepare them otherwise "
                "(--preprocess, --schema)."
            )


def check_delta(silo: str, policy: Policy, units: int) -> None:
    """Refuses a delta under which one record at random could be published whole."""
    if math.isfinite(policy.epsilon) and policy.delta * units >= 1:
        raise SilodpError(
            f"Silo {silo!r}: delta is {policy.delta:g}, at least 1/{units} for its {units} "
            f"{policy.unit}s: publishing one at random would pass as private; give a delta below "
            f"{units**-1.1:.2g}."
        )


def concerns(silos: Sequence[str], policies: Sequence[Policy], units: Sequence[int]) -> list[str]:
    """What is allowed but hardly wise, in words: one sentence for all silos that it is about."""
    named = list(zip(silos, policies, units, strict=True))

    def about(unwise: Callable[[Policy, int], bool], words: str) -> list[str]:
        whose = [silo for silo, p, n in named if math.isfinite(p.epsilon) and unwise(p, n)]
        if not whose:
            return []
        others = f" and {len(whose) - 1} other silos" if len(whose) > 1 else ""
        return [f"silo {whose[0]!r}{others}: {words}"]

    return [
        *about(
            lambda p, n: p.delta > n**-1.1,
            "delta is above n^-1.1 for its n records: choose a smaller one",
        ),
        *about(
            lambda p, _: p.epsilon > _WEAK_EPSILON,
            f"epsilon is above {_WEAK_EPSILON:g}, which promises little",
        ),
    ]


def checked(field: str, value: object, where: str) -> Any:
    """The value of one field, in its type and range."""
    return _CHECKS[field](field, value, where)


def _number(field: str, value: object, where: str) -> float:
    """The value as a number; text is refused, but for "inf" as an epsilon."""
    if field.endswith("epsilon") and value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        example = "1e-5" if field.endswith("delta") else "3"
        raise SilodpError(
            f"{where} {field} is {value!r}, which is not a number: write it without quotes, as in "
            f"{field} = {example}."
        )
    try:
        return float(value)
    except OverflowError:
        raise SilodpError(f"{where} {field} is beyond all numbers: give a smaller one.") from None


def _epsilon(field: str, value: object, where: str) -> float:
    number = _number(field, value, where)
    if not number > 0:
        raise SilodpError(
            f"{where} {field} is {value}, but must be above 0: give one such as 3, or inf for no "
            "privacy."
        )
    return number


def _delta(field: str, value: object, where: str) -> float:
    number = _number(field, value, where)
    if not 0 < number < 1:
        raise SilodpError(
            f"{where} {field} is {value}, but must lie between 0 and 1: give one such as 1e-5."
        )
    return number


def _one_of(known: tuple[str, ...]) -> Callable[[str, object, str], str]:
    def chosen(field: str, value: object, where: str) -> str:
        if value not in known:
            raise SilodpError(f"{where} {field} is {value!r}: use {one_of(str(value), known)}.")
        return str(value)

    return chosen


def _subject(field: str, value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise SilodpError(f"{where} {field} is {value!r}: give the name of a column.")
    return value


def _public(field: str, value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise SilodpError(f"{where} {field} is {value!r}: give a list, such as {list(PUBLIC)}.")
    known = (*PUBLIC, SCORE_RECORDS, LEDGER_SUMMARY)
    for kind in value:
        if kind not in known:
            raise SilodpError(
                f"{where} {field} holds {kind!r}: use {one_of(str(kind), known)} (or none)."
            )
    return tuple(value)


def _records(field: str, value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SilodpError(f"{where} {field} is {value!r}: give a whole number of at least 1.")
    return value


_CHECKS: Mapping[str, Callable[[str, object, str], Any]] = {
    "epsilon": _epsilon,
    "delta": _delta,
    "lifetime_epsilon": _epsilon,
    "lifetime_delta": _delta,
    "lifetime_filter": _one_of(get_args(LifetimeFilter)),
    "relation": _one_of(get_args(Relation)),
    "subject": _subject,
    "public": _public,
    "records": _records,
}
