"""One silo in one run: what comes before what, said here and nowhere else.

    new        nothing happened yet
    reserved   all that the run may take is set aside in the silo's ledger; the run has a secret
    charged    the block of rounds that is answered next is charged, on disk
    closed     what was never charged is given back; nothing can be answered any more

A silo answers only what was charged before: a round, a selection, a statistic, a metric. This holds
by construction. Whatever looks at records for a release (an engine's step, a noisy sum) asks for
`PaidRounds`, and only a session that has charged these rounds makes them. Noise on the host comes
from `RunSession.random`, which asks for them too. What is charged counts as released and is never
given back, so that no place has to know whether an answer got out.

A simulation holds the sessions of all its silos, a site holds one. Without ledgers (an experiment)
the order is the same, and nothing is written.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.config.choices import Entropy
from silodp.data.federation import Silo
from silodp.privacy.ledger.account import Allowance, RunClosedError
from silodp.privacy.ledger.charging import (
    Reservation,
    charge_all,
    close_all,
    close_everywhere,
    reserve_all,
    run_of,
    would_exceed,
)
from silodp.privacy.ledger.storage import head_of
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.mechanisms.randomness import HostRandom, new_secret
from silodp.privacy.mechanisms.statistics import noisy_metric

State = Literal["new", "reserved", "charged", "closed"]

FINISHED = "finished"
SECONDS_BETWEEN_LOOKS = 2.0


class RunLedgers(NamedTuple):
    """The ledgers that a run is charged to, and what it may take of each.

    Attributes:
      directory: the folder of the ledgers.
      reservations: the reservation in each ledger, by its name.
      allowances: likewise.
      strictest: whether a stricter allowance that is in force holds on (see `reserve_all`).
    """

    directory: Path
    reservations: dict[str, Reservation]
    allowances: dict[str, Allowance]
    strictest: bool = False

    def to_source(self, name: str) -> "RunLedgers":
        """The ledgers of a single silo, charged to that of its records, which others use too."""
        ((silo, reservation),) = self.reservations.items()
        allowances = {name: self.allowances[silo]}
        return RunLedgers(self.directory, {name: reservation}, allowances, True)

    def marked(self, **about: Any) -> "RunLedgers":
        """These ledgers, with reservations that say more of themselves."""
        reservations = {
            name: replace(one, about=one.about | about) for name, one in self.reservations.items()
        }
        return self._replace(reservations=reservations)

    def in_blocks(self, blocks: int) -> "RunLedgers":
        """These ledgers, charged in so many blocks, but for what can only be charged whole."""
        reservations = {
            name: one if one.blocks == 1 else replace(one, blocks=blocks)
            for name, one in self.reservations.items()
        }
        return self._replace(reservations=reservations)

    def check(self) -> dict[str, dict[str, Any]]:
        """Refuses what does not fit, and writes nothing; see `would_exceed` for what it returns."""
        return would_exceed(
            self.directory, self.reservations, self.allowances, strictest=self.strictest
        )


_SESSION = object()


class PaidRounds:
    """Rounds first..last (the last one not included) that are charged, and so may be answered.

    Only a session makes them.
    """

    __slots__ = ("first", "last", "session")

    def __init__(
        self, first: int, last: int, made_by: object = None, session: "RunSession | None" = None
    ):
        if made_by is not _SESSION:
            raise RuntimeError("Rounds are paid for by a session: see RunSession.pay.")
        self.first, self.last, self.session = first, last, session


def give_back(directory: Path, silo: str, run: str, reason: str) -> None:
    """Closes a run that was reserved and never began, in one ledger."""
    standing = run_of(directory, silo, run)
    if standing is not None and standing.state == "reserved":
        close_all(directory, [silo], run, reason)


def free_rounds(first: int, last: int) -> PaidRounds:
    """Rounds on records that are about nobody: an audit's, a benchmark's or a test's own."""
    return PaidRounds(first, last, _SESSION)


@dataclass
class SiloSession:
    """One silo in one run: where it stands.

    Attributes:
      silo: the name of its ledger.
      rounds: number of rounds of the run.
      state: see above.
      charged: stretches of rounds (first, last) that are charged, in their order; rounds that a
        site missed lie between them.
    """

    silo: str
    rounds: int
    state: State = "new"
    charged: list[tuple[int, int]] = field(default_factory=list)

    @property
    def charged_until(self) -> int:
        """Earlier rounds are charged, or were missed and are never answered."""
        return self.charged[-1][1] if self.charged else PREPARATION

    def covers(self, first: int, last: int) -> bool:
        """Whether all of these rounds are charged."""
        return first >= last or any(a <= first and last <= b for a, b in self.charged)

    @property
    def open(self) -> bool:
        """Whether it may be charged or closed."""
        return self.state in ("reserved", "charged")

    def to(self, state: State, block: tuple[int, int] | None = None) -> None:
        """The next state; what cannot follow is an error of the program."""
        self.check(state, block)
        self.state = state
        if block is None:
            return
        if self.charged and self.charged[-1][1] == block[0]:
            block = self.charged.pop()[0], block[1]
        self.charged.append(block)

    def check(self, state: State, block: tuple[int, int] | None = None) -> None:
        """Refuses what cannot follow, before anything is written."""
        later = block is None or self.charged_until <= block[0] < block[1] <= self.rounds + 1
        if (
            state not in _FOLLOWS[self.state]
            or (block is None) == (state == "charged")
            or not later
        ):
            raise RuntimeError(
                f"Silo {self.silo!r}: a session that is {self.state} ({self.charged} of "
                f"{self.rounds} rounds) cannot become {state} ({block})."
            )


_FOLLOWS: Mapping[State, tuple[State, ...]] = {
    "new": ("reserved",),
    "reserved": ("charged", "closed"),
    "charged": ("charged", "closed"),
    "closed": (),
}


def _run_closed(silo: str, run: str, reason: str) -> RunClosedError:
    return RunClosedError(
        f"Silo {silo!r}: run {run!r} is closed ({reason}), and nothing can follow that: start a "
        "new run."
    )


class RunSession:
    """The sessions of all silos of a run, which reserve, charge and close together.

    Attributes:
      name: the run's name in the ledgers.
      silos: the session of each silo.
    """

    def __init__(
        self, ledgers: RunLedgers | None, silos: Sequence[str], rounds: int, name: str = ""
    ):
        """The session of a run that is not reserved yet; `reserve` or `resume` comes next.

        Args:
          ledgers: the ledgers to charge; None for experiments, and releases that none counts.
          silos: names of the silos, where there are no ledgers to name them.
          rounds: number of rounds of the run.
          name: the run's name in the ledgers; empty: a new one.
        """
        self._ledgers, self._secret = ledgers, b""
        self._looked = time.monotonic()  # when it was last seen to be open
        self._open_at: dict[str, str] = {}  # of each ledger, a head at which the run was open
        self.name = name if ledgers is None else name or secrets.token_hex(8)
        names = list(silos) if ledgers is None else list(ledgers.reservations)
        self.silos = tuple(SiloSession(silo, rounds) for silo in names)
        self._rounds = rounds

    def reserve(
        self,
        entropy: Entropy = "os",
        secret: bytes | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Sets aside all that the run may take, or refuses it; then there is a secret.

        Args:
          entropy: where the secret comes from; "seed": there is none, and noise is an experiment's.
          secret: one that was kept beforehand, in place of a new one.
          progress: called with (done, total) while costs are worked out.
        """
        for silo in self.silos:
            silo.check("reserved")
        if self._ledgers is not None:
            reserve_all(
                self._ledgers.directory,
                self._ledgers.reservations,
                self._ledgers.allowances,
                self.name,
                strictest=self._ledgers.strictest,
                progress=progress,
            )
        for silo in self.silos:
            silo.to("reserved")
        self._secret = new_secret(entropy) if secret is None else secret

    def resume(self, secret: bytes, done: int) -> None:
        """Goes on with a run that was reserved before, from where its ledgers say that it stands.

        Args:
          secret: the one of then, so that rounds which are done again are the same ones.
          done: the round after the last one that was answered.
        """
        for silo in self.silos:
            charged = [(PREPARATION, done)] if done > 0 else []
            if self._ledgers is not None:
                standing = run_of(self._ledgers.directory, silo.silo, self.name)
                if standing is None:
                    raise SilodpError(
                        f"Silo {silo.silo!r} has nothing reserved for run {self.name!r}: put its "
                        "ledger back, or start anew."
                    )
                if standing.closed is not None:
                    raise _run_closed(silo.silo, self.name, standing.closed)
                charged = [(block.first, block.last) for block in standing.blocks]
            silo.to("reserved")
            for block in charged:
                silo.to("charged", block)
            if done > 0 and not silo.covers(done - 1, done):
                raise SilodpError(
                    f"Silo {silo.silo!r}: round {done} of run {self.name!r} was answered, but its "
                    "ledger has it not charged: put the ledger back that it was charged to."
                )
        self._secret = secret

    @property
    def secret(self) -> bytes:
        """What the noise of the run comes from, with the seed; empty in an experiment."""
        if any(silo.state == "new" for silo in self.silos):
            raise RuntimeError("A run has no secret before it is reserved.")
        return self._secret

    def check_open(self) -> None:
        """Refuses to go on with a run that was closed meanwhile, by whoever.

        `pay` does so where a block is to be charged, and every few seconds. This is for who answers
        round by round.
        """
        self._looked = time.monotonic()
        for silo in self.silos:
            if silo.state == "closed":
                raise _run_closed(silo.silo, self.name, "here")
            if self._ledgers is None:
                continue
            head = head_of(self._ledgers.directory, silo.silo)
            if head is not None and self._open_at.get(silo.silo) == head:
                continue  # nothing was written since it was found open
            standing = run_of(self._ledgers.directory, silo.silo, self.name)
            if standing is None or standing.closed is not None:
                reason = "its ledger is gone" if standing is None else str(standing.closed)
                raise _run_closed(silo.silo, self.name, reason)
            if head is not None:
                self._open_at[silo.silo] = head

    def pay(self, first: int, last: int) -> PaidRounds:
        """Charges what these rounds (the last one not included) take, unless that was done.

        Rounds are charged in whole blocks; this returns once all is on the disk of every silo.
        """
        if not PREPARATION <= first < last <= self._rounds + 1:
            raise RuntimeError(f"Rounds {first} to {last} are none of the run's {self._rounds}.")
        # Charging a block finds a run that was closed; within a block its ledger is looked at.
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            self.check_open()
        behind: dict[tuple[int, int], list[SiloSession]] = {}
        for silo in self.silos:
            if not silo.open:
                raise RuntimeError(f"Silo {silo.silo!r}: a run that is {silo.state} cannot pay.")
            if not silo.covers(first, min(last, silo.charged_until)):
                raise RuntimeError(
                    f"Silo {silo.silo!r}: some of rounds {first} to {last} were missed, and later "
                    f"ones are charged ({silo.charged}): they cannot be answered any more."
                )
            if not silo.covers(first, last):
                behind.setdefault(self._span(silo, first, last), []).append(silo)
        for span, silos in behind.items():
            if self._ledgers is not None:
                reservations = self._ledgers.reservations
                own = {silo.silo: reservations[silo.silo] for silo in silos}
                self._open_at |= charge_all(self._ledgers.directory, own, self.name, *span)
            for silo in silos:
                silo.to("charged", span)
        return PaidRounds(first, last, _SESSION, self)

    def _span(self, silo: SiloSession, first: int, last: int) -> tuple[int, int]:
        """The rounds that are charged next, so that these are."""
        start, end = first, last
        if self._ledgers is not None:
            reservation = self._ledgers.reservations[silo.silo]
            start, end = reservation.block_of(first)[0], reservation.block_of(last - 1)[1]
        return max(start, silo.charged_until), end

    def random(self, paid: PaidRounds, seed: int, purpose: str) -> HostRandom:
        """The noise of a release that is worked out on the host, for this purpose alone."""
        if not isinstance(paid, PaidRounds) or paid.session is not self:
            raise RuntimeError("Noise is drawn for rounds that are paid for: see RunSession.pay.")
        if not all(silo.open for silo in self.silos):
            raise RuntimeError("A run that is closed releases nothing any more.")
        return HostRandom(seed, self.secret, purpose)

    def noisy_mean(
        self,
        paid: PaidRounds,
        seed: int,
        purpose: str,
        silo: Silo,
        means: np.ndarray,
        largest: float,
        noise_multiplier: float,
    ) -> np.ndarray:
        """Means of a score over a silo's test records, as they may be released.

        Args:
          paid: the rounds that the release belongs to.
          seed: seed of the run.
          purpose: what the noise is for; no two releases of a run share one.
          silo: the silo whose test records the means are over.
          means: exact; of no record, NaN, and then noise is all that is released.
          largest: score of a record.
          noise_multiplier: 0 for no privacy.
        """
        random = self.random(paid, seed, purpose)
        true_count, means = len(silo.test), np.asarray(means, np.float64)
        totals = means * true_count if true_count else np.zeros_like(means)
        counts = silo.public_test_count, silo.max_test_count
        return noisy_metric(totals, largest, *counts, noise_multiplier, random)

    def replaces(self, name: str) -> None:
        """Closes a run of these silos that is to be begun anew, if it is open anywhere."""
        if self._ledgers is not None and name:
            with contextlib.suppress(SilodpError):
                names = [silo.silo for silo in self.silos]
                close_everywhere(self._ledgers.directory, names, name, "begun anew")

    def close(self, reason: str) -> None:
        """The run is over; what was never charged is given back."""
        for silo in self.silos:
            silo.check("closed")
        if self._ledgers is not None:
            names = [silo.silo for silo in self.silos]
            close_all(self._ledgers.directory, names, self.name, reason)
        for silo in self.silos:
            silo.to("closed")

    @contextlib.contextmanager
    def closed_on_failure(self, can_resume: Callable[[], bool]) -> Iterator[None]:
        """Closes the run where it fails or is interrupted, unless it can be gone on with.

        A process that is killed closes nothing: what it reserved stays so, until somebody closes it
        (`silodp ledger close`).
        """
        try:
            yield
        except RunClosedError:
            self._close_where_open("closed by another silo")  # it can go on nowhere
            raise
        except BaseException as error:
            if not can_resume():
                self._close_where_open(f"failed: {type(error).__name__}")
            raise

    def _close_where_open(self, reason: str) -> None:
        """Closes the run in all ledgers where nobody else did, be it reserved in some of them."""
        if all(silo.state == "closed" for silo in self.silos):
            return
        if self._ledgers is not None:
            names = [silo.silo for silo in self.silos]
            # None is open, where all were closed.
            with contextlib.suppress(SilodpError):
                close_everywhere(self._ledgers.directory, names, self.name, reason)
        for silo in self.silos:
            if silo.open:
                silo.to("closed")
