"""One job at a site: what it may do, what it has answered and what it keeps.

What is reserved, charged and given back when is in `privacy.session`, of which a site holds one.
Memory changes only after the disk: what could not be written did not happen, and is not answered.
"""

import contextlib
import fcntl
import json
import logging
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.progress_file import FORMAT as PROGRESS_FORMAT
from silodp.base.progress_file import PROGRESS_FILE
from silodp.engines.checkpoint import flatten, unflatten
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import fingerprint
from silodp.engines.job import Setting
from silodp.engines.one_silo import OneSilo
from silodp.models.metrics import mean_metric
from silodp.privacy.ledger.account import Run, RunClosedError, account_of
from silodp.privacy.ledger.charging import BudgetSpentError, run_of
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.mechanisms.randomness import new_secret
from silodp.privacy.session import FINISHED, PaidRounds, RunLedgers, RunSession, give_back
from silodp.results.result import AT_SITES
from silodp.runs.accounts import ledgers_of
from silodp.runs.prepare import Prepared
from silodp.runs.run_results import result_of
from silodp.runs.training_run import standardised
from silodp.sites.agreed_job import first_key, job_among, prepared_for, told_like
from silodp.sites.arrays import OTHER_VERSION, tree_of
from silodp.sites.proposal import Proposal, is_job_of
from silodp.sites.protocol import Reply
from silodp.sites.site_data import load_records
from silodp.sites.site_files import SiteConfig
from silodp.sites.sources import check_claimed
from silodp.sites.state_file import load_state, save_state

STATE, RESULTS = "state", "results"
STATE_FILE = "state.npz"
ANSWERED = "answered"
# In how many blocks a job is charged: a site that is cut off has paid for at most one block more
# than it answered.
BLOCKS = 20
# Seconds to wait for a process that was at work on the job: it may be about to end.
PATIENCE = 20.0
_log = logging.getLogger("silodp.site")

SPENT = "budget spent"
CLOSED = "the job is closed in the site's ledger: submit it anew, as another run"
LEDGER = "the site's ledger does not allow this"
WAITING = (
    "another run of this proposal has joined and has no round yet: let it begin, or submit this "
    "one when it has ended"
)
NEVER_BEGUN = "another run of its proposal joined before any round of it was answered"
NONE_LEFT = "the job has no round left: submit it anew, as another run"
LOST = "the job was begun, but where it stood is lost at the site: submit it anew, as another run"
CHANGED = (
    "the site's records, policy or keys are not those that the job was begun with: submit it anew, "
    "as another run"
)
NOT_FINITE = "the model is not finite any more: a smaller lr would help"


class Refusal(SilodpError):
    """What the coordinator is told, and no more."""


def plan_of(config: SiteConfig, proposal: Proposal, most: int | None = None) -> Prepared:
    """What a proposal would ask of this site, and with how much noise.

    Reads the records, and refuses none because of what it holds; sends nothing.

    Args:
      config: the site's own file.
      proposal: what it is asked.
      most: as for `load_records`. Without it, more records than the policy allows for are refused.
    """
    federation = load_records(
        config.site,
        config.data,
        proposal.schema,
        seed=config.seed,
        test_fraction=config.test_fraction,
        id_column=config.id_column,
        most=most,
    )
    testing = config.keys == "test"
    return prepared_for(
        proposal,
        federation,
        config.policy,
        # Noise from a seed is not private: there is nothing to charge.
        ledger=None if testing else config.ledger,
        entropy="seed" if testing else "os",
        first_seed=config.seed,
    )


def ledgers_at_site(config: SiteConfig, prepared: Prepared) -> RunLedgers | None:
    """What the site's ledger is asked for: that of its source, whatever the site is called."""
    ledgers = ledgers_of(prepared)
    if ledgers is None:
        return None
    ledgers = ledgers.in_blocks(BLOCKS)
    if config.source is None:
        return ledgers
    return ledgers.to_source(config.source).marked(site=config.site)


class JobAtSite:
    """One job at this site, from where it stands."""

    def __init__(
        self, folder: Path, config: SiteConfig, proposal: Proposal, name: str, asked_round: int
    ):
        """Refused, before anything is reserved, if it cannot be taken part in from that round on.

        Args:
          folder: of the site.
          config: the site's own file.
          proposal: what it consented to.
          name: of the job.
          asked_round: where the job stands, from 0.
        """
        self.name, self.proposal = name, proposal
        self._config = config
        self._folder, self._results = folder / STATE / name, folder / RESULTS / name
        self._locks = [_only_one(self._folder / "lock")]
        try:
            self._open(asked_round)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Another process may go on with it."""
        for lock in self._locks:
            lock.close()

    def _open(self, asked_round: int) -> None:
        prepare_jax()
        self._started = time.perf_counter()
        self._prepare()
        known, found = self._known(), load_state(self._folder / STATE_FILE)
        if found and known is None and found[0]["round"] < 0:
            # Neither reserved nor answered, such as where the budget did not do: it begins now.
            found = None
        if found:
            self._check_same(found[0])
        elif not 0 <= asked_round < self._job.rounds:
            raise Refusal(NONE_LEFT)
        self._about: dict[str, Any] = found[0] if found else self._first()
        self._place = self.proposal.sites.index(self._config.site)
        method = self._job.build(self._setting.options)
        self._told_like = told_like(self._job, method)
        self._state = self._job.first_states(method, first_key(self.proposal), self._place)[1]
        self._message: list[np.ndarray] = []
        if found and found[1]:
            self._state = unflatten(found[1]["silo"], self._state, OTHER_VERSION)
            self._message = found[1]["message"]
        self._silo: OneSilo | None = None
        self._session = self._entered(known, found is not None)
        self._report()

    def _prepare(self) -> None:
        """What will be done, and what it costs; a refusal says no more than that."""
        try:
            check_claimed(self._config)
            prepared = self._prepared = plan_of(
                self._config, self.proposal, self._config.policy.max_count
            )
        except SilodpError:
            # About the table as a whole, the policy, or a number that is public: no record makes
            # the difference. In the site's own words it belongs neither in a reply nor in a log.
            _log.warning("records or policy do not allow this: `silodp site consent` says why")
            raise Refusal("the site's records or policy do not allow this") from None
        try:
            self._ledgers = ledgers_at_site(self._config, prepared)
        except SilodpError as error:
            _log.warning("%s", error)
            raise Refusal("the site cannot prove what this would cost") from None
        spec = prepared.specs[0]
        self._job = job_among(self.proposal, prepared)
        self._setting = Setting(spec.lr, spec.plans, spec.method.traced_values(spec.values))

    def _first(self) -> dict[str, Any]:
        secret = new_secret("seed" if self._config.keys == "test" else "os").hex()
        return {
            "round": -1,
            "answered": 0,
            "failed": False,
            "finished": False,
            "secret": secret,
            # By which the ledger knows that the charge is for the noise of this secret: another
            # folder of the site may have a job of the same name on the same ledger.
            "charge": secrets.token_hex(8),
            "of": self._fingerprint(),
        }

    def _fingerprint(self) -> str:
        """Of all that was charged for, and of the records that the noise is meant for."""
        job = fingerprint(
            self._job,
            [self._config.seed],
            self._prepared.federations,
            [self._setting],
            evaluate_every=self._job.rounds,
            engine="site",
        )
        return f"{self.proposal.digest} {job}"

    def _check_same(self, about: dict[str, Any]) -> None:
        """What goes on is what was begun: else neither the charge nor the noise would be for it."""
        if "answered" not in about:
            raise Refusal(LOST)  # of a version that charged a job as a whole
        private = self._config.keys != "test"
        if bool(about["secret"]) != private or about.get("of") != self._fingerprint():
            raise Refusal(CHANGED)

    def _known(self) -> Run | None:
        """What the site's ledger says about the job."""
        if self._ledgers is None:
            return None
        return run_of(self._ledgers.directory, self._config.ledger_name, self.name)

    def _entered(self, known: Run | None, begun: bool) -> RunSession:
        """The session of the job: reserved now, or gone on with; what does not fit is refused."""
        about = self._about
        marked = self._ledgers and self._ledgers.marked(charge=about.get("charge"))
        session = RunSession(marked, [self._config.site], self._job.rounds, self.name)
        secret = bytes.fromhex(about["secret"])
        if not begun:
            if known is not None:
                raise Refusal(LOST)
            self._give_back_what_never_began()
            # The secret first: what is reserved can be gone on with, or not at all.
            self._save(about, [], [])
            try:
                session.reserve(secret=secret)
            except SilodpError as error:
                _log.warning("%s", error)
                if self._known() is None:  # it may begin later, when the ledger allows it
                    (self._folder / STATE_FILE).unlink(missing_ok=True)
                spent = isinstance(error, BudgetSpentError)
                raise Refusal(SPENT if spent else LEDGER) from None
            self._claim_noise()
            return session
        if self._ledgers is not None:
            if known is not None:
                self._claim_noise()
            self._check_latest(known)
            if known is not None and known.closed is not None and not about["finished"]:
                raise Refusal(CLOSED)
        if about["finished"] and (known is None or known.closed is not None):
            return session  # there is nothing more to pay for
        try:
            session.resume(secret, about["round"] + 1)
        except RunClosedError:
            raise Refusal(CLOSED) from None
        except SilodpError as error:  # such as where the ledger is an older one than the state
            _log.warning("%s", error)
            raise Refusal(LOST) from None
        if about["finished"]:
            session.close(FINISHED)
        return session

    def _claim_noise(self) -> None:
        """Two folders with one secret (a copy) could answer a round with one noise, in two ways."""
        mark = self._mark
        if mark is not None:
            self._locks.append(_only_one(mark.with_suffix(".lock")))

    def _give_back_what_never_began(self) -> None:
        """A proposal holds at most one reservation of which no round was answered.

        Consent is to a proposal, whatever the number of its runs, and each that joins reserves all
        that it may take: asked to join run after run, a site would have nothing left for others.
        """
        directory, ledger = self._config.ledger, self._config.ledger_name
        if self._ledgers is None or not exists(directory, ledger):
            return
        runs = account_of(read_ledger(directory, ledger)).runs
        for folder in sorted(self._folder.parent.iterdir()):
            name = folder.name
            if not is_job_of(name, self.proposal) or not _never_began(runs.get(name)):
                continue
            try:
                lock = _only_one(folder / "lock", patience=0.0)
            except Refusal:
                raise Refusal(WAITING) from None
            with lock:
                found, run = load_state(folder / STATE_FILE), run_of(directory, ledger, name)
                own = found and run and found[0].get("charge") == run.about.get("charge")
                if own and _never_began(run):  # and not that of another folder on this ledger
                    give_back(directory, ledger, name, NEVER_BEGUN)

    def _check_latest(self, known: Run | None) -> None:
        """Refuses an older copy of the state: its next rounds were answered with their noise."""
        about = self._about
        if known is None or known.about.get("charge") != about.get("charge"):
            raise Refusal(LOST)
        if self._answered() > about["round"]:
            raise Refusal(LOST)
        if known.closed == FINISHED and not about["finished"]:
            raise Refusal(LOST)

    def _pay(self, first: int, last: int) -> PaidRounds:
        """Charges the block that these rounds are in, unless that was done."""
        try:
            # Whoever closes a job means its next answer, not its next block.
            self._session.check_open()
            return self._session.pay(first, last)
        except RunClosedError as error:
            _log.warning("%s", error)
            raise Refusal(CLOSED) from None

    def _trainer(self) -> OneSilo:
        """The site's part, built once; statistics of its records, if agreed on, are paid first."""
        if self._silo is None:
            prepared = self._prepared
            request, federation = prepared.specs[0].request, prepared.federations[0]
            if request.statistics_share:
                paid = self._pay(PREPARATION, 0)
                federation = standardised(
                    federation, prepared.plans[0], request.first_seed, self._session, paid
                )
            self._federation = federation
            # With the site's own secret, its noise is a release's; with none (tests), an
            # experiment's.
            job = replace(self._job, secret=bytes.fromhex(self._about["secret"]))
            seed, tell_noise = self._config.seed, self._config.tell_noise
            self._silo = OneSilo(job, federation, self._setting, self._place, seed, tell_noise)
        return self._silo

    @property
    def _mark(self) -> Path | None:
        """Where the last round that was answered is noted: beside the ledger, not with the state.

        A state that is put back from a copy is then known to be older.
        """
        token = self._about.get("charge")
        if self._ledgers is None or token is None:
            return None
        return self._ledgers.directory / ANSWERED / f"{token}.json"

    def _answered(self) -> int:
        """The last round that was answered under this charge; -1 if none was."""
        mark = self._mark
        if mark is None or not mark.exists():
            return -1
        try:
            return int(read_json(mark, remedy="put back a sound copy")["round"])
        except (ValueError, KeyError, TypeError):
            _log.warning("%s cannot be read: it says which rounds were answered", mark)
            raise Refusal(LOST) from None

    def _note_answer(self, number: int) -> None:
        """Before the answer leaves (a refusal is one too), after the state it came from is kept."""
        mark = self._mark
        if mark is not None and self._answered() < number:
            mark.parent.mkdir(mode=0o700, exist_ok=True)
            write_file(mark, json.dumps({"job": self.name, "round": number}))

    def join(self) -> Reply:
        """What may be told about this site: how many records, if that is public and asked for."""
        about: dict[str, Any] = {"finished": self._about["finished"]}
        policy, training = self._config.policy, self.proposal.training
        if training["weights"] == "records" and policy.count_is_public:
            about["records"] = self._prepared.plans[0][0].public_count
        return Reply("ok", about=about)

    def train(self, number: int, arrays: list[np.ndarray]) -> Reply:
        """A round: the answer that was given, if it was; else a new one, kept before it is sent."""
        rounds, last = self._job.rounds, self._about["round"]
        if number >= rounds:
            raise Refusal(f"round {number + 1} is asked for, but {rounds} were agreed on")
        if number < last:
            raise Refusal(f"round {number + 1} was answered, and round {last + 1} after it")
        if number > last:
            if self._about["finished"]:
                raise Refusal("the job is finished at this site")
            self._train(number, self._told(arrays))
        self._note_answer(number)
        if self._about["failed"]:
            raise Refusal(NOT_FINITE)
        return Reply("ok", about={"round": number}, arrays=self._message)

    def _train(self, number: int, told: Any) -> None:
        silo = self._trainer()
        paid = self._pay(number, number + 1)
        state, message = jax.block_until_ready(silo.local(self._state, told, paid))
        sent, failed = flatten(message), not _finite(state)
        if failed:
            # The round is over all the same: told something else, it would be answered with the
            # noise that the refusal tells of.
            state, sent = self._state, []
        answered = self._about["answered"] + 1
        about = {**self._about, "round": number, "answered": answered, "failed": failed}
        self._save(about, flatten(state), sent)
        self._state, self._message = state, sent
        self._report()

    def finish(self, arrays: list[np.ndarray]) -> Reply:
        """The site's own model, and how good it is: both stay here."""
        if not self._about["finished"]:
            try:
                self._session.check_open()
                if self._about["round"] < 0:
                    # It is over, and took nothing.
                    self._session.close("ended before any round was answered")
                    raise Refusal("no round was trained at this site")
            except RunClosedError as error:
                _log.warning("%s", error)
                raise Refusal(CLOSED) from None
            params = self._trainer().personal(self._state, self._told(arrays))
            about = {**self._about, "released": self._keep(params), "finished": True}
            self._save(about, flatten(self._state), self._message)
            with contextlib.suppress(RunClosedError):  # meanwhile, by whoever: it is over
                self._session.close(FINISHED)
            self._report()
        released = self._about["released"]
        return Reply("ok", about={} if released is None else {"metric": released})

    def _keep(self, params: Any) -> float | None:
        """Writes the result; returns the metric if it was paid for, with its noise."""
        prepared, answered = self._prepared, self._about["answered"]
        exact = self._trainer().metric(params)
        spec = prepared.specs[0]
        request, plan = spec.request, spec.plans[0]
        released = None
        if request.metric_share:
            paid = self._pay(self._job.rounds, self._job.rounds + 1)
            largest = mean_metric(prepared.metric, "--metric-share").largest(request.metric_bound)
            silo, noise = self._federation.silos[0], plan.metric_noise
            released = self._session.noisy_mean(
                paid,
                request.first_seed,
                f"metric 0 {plan.silo}",
                silo,
                np.array([exact]),
                largest,
                noise,
            )
        models = jax.tree.map(lambda a: np.asarray(a)[None, None], params)
        seconds = {"total": time.perf_counter() - self._started}
        result = result_of(
            prepared, [self._federation], 0, [answered], np.full((1, 1, 1), exact), seconds, models
        )
        known = self._known()
        took_part = {"rounds": answered, "of_rounds": self._job.rounds}
        took_part |= {} if known is None else {"charged_rounds": known.charged}
        result = replace(
            result,
            # It was not trained by an engine of `silodp run`, and cannot be asked for there.
            options=result.options | {"engine": AT_SITES},
            privacy=[silo | took_part for silo in result.privacy],
        )
        result.write(self._results)
        return None if released is None else float(released[0])

    def _told(self, arrays: list[np.ndarray]) -> Any:
        try:
            return tree_of(arrays, self._told_like)
        except SilodpError as error:
            raise Refusal(f"what the site was told does not fit: {error}") from None

    def _save(
        self, about: dict[str, Any], silo: list[np.ndarray], message: list[np.ndarray]
    ) -> None:
        """On disk first: what could not be written did not happen, and is not answered."""
        lists = {"silo": silo, "message": message} if about["round"] >= 0 else {}
        save_state(self._folder / STATE_FILE, about, lists)
        self._about = about

    def _report(self) -> None:
        """For people at the site."""
        told = {
            "format": PROGRESS_FORMAT,
            "job": self.name,
            "method": self.proposal.training["method"],
            "round": self._about["round"] + 1,
            "rounds": self._job.rounds,
            "answered": self._about["answered"],
            "finished": self._about["finished"],
            "time": time.time(),
        }
        write_file(self._folder / PROGRESS_FILE, json.dumps(told))


def _never_began(run: Run | None) -> bool:
    """Whether it holds a reservation, and nothing was charged of it."""
    return run is not None and run.closed is None and not run.blocks


def _finite(state: Any) -> bool:
    return all(
        bool(jnp.all(jnp.isfinite(leaf)))
        for leaf in jax.tree.leaves(state)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def _only_one(path: Path, patience: float | None = None) -> IO[str]:
    """Two processes that answer for one job could answer a round twice, in two ways."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    lock = path.open("w")
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > end:
                lock.close()
                raise Refusal("another process of the site is at work on this job") from None
        time.sleep(0.2)
