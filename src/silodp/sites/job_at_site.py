"""One job at a site: what it may do, what it pays, what it has answered and what it keeps.

All that is released is charged before. Memory changes only after the disk: what could not be
written did not happen, and is not answered.
"""

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

from silodp.accounts import Account, account_of
from silodp.engines.checkpoint import flatten, unflatten
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import fingerprint
from silodp.engines.job import Setting
from silodp.engines.one_silo import OneSilo
from silodp.errors import SilodpError
from silodp.prepare import Prepared
from silodp.privacy.charging import BudgetSpentError, finish_all, resume_all
from silodp.privacy.ledger import exists, read_ledger
from silodp.privacy.randomness import HostRandom, new_secret
from silodp.privacy.spending import Run
from silodp.privacy.spending import account_of as standing_of
from silodp.privacy.statistics import noisy_metric
from silodp.progress_file import PROGRESS_FILE
from silodp.result import AT_SITES, write_file
from silodp.run_results import result_of
from silodp.sites.agreed_job import first_key, job_among, prepared_for, told_like
from silodp.sites.arrays import OTHER_VERSION, tree_of
from silodp.sites.proposal import Proposal
from silodp.sites.protocol import Reply
from silodp.sites.site_data import load_records
from silodp.sites.site_files import SiteConfig
from silodp.sites.sources import check_claimed
from silodp.sites.state_file import load_state, save_state
from silodp.training_run import standardised

STATE, RESULTS = "state", "results"
STATE_FILE = "state.npz"
ANSWERED = "answered"
# Seconds to wait for a process that was at work on the job: it may be about to end.
PATIENCE = 20.0
_log = logging.getLogger("silodp.site")

SPENT = "budget spent"
LOST = "the job was charged, but where it stood is lost at the site: submit it anew, as another run"
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


def account_at_site(config: SiteConfig, prepared: Prepared) -> Account | None:
    """What the site's ledger will be charged: that of its source, whatever the site is called."""
    account = account_of(prepared)
    if account is None or config.source is None:
        return account
    return account.to_source(config.source).marked(site=config.site)


class JobAtSite:
    """One job at this site, from where it stands."""

    def __init__(self, folder: Path, config: SiteConfig, proposal: Proposal, name: str):
        self.name, self.proposal = name, proposal
        self._config = config
        self._folder, self._results = folder / STATE / name, folder / RESULTS / name
        self._lock = _only_one(self._folder)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Another process may go on with it."""
        self._lock.close()

    def _open(self) -> None:
        prepare_jax()
        self._started = time.perf_counter()
        self._prepare()
        run, found = self._charged(), load_state(self._folder / STATE_FILE)
        if found and run is None and found[0]["round"] < 0:
            # Neither charged nor answered, such as where the budget did not do: it begins now.
            found = None
        if found:
            self._check_same(found[0])
        self._about: dict[str, Any] = found[0] if found else self._first()
        self._secret = bytes.fromhex(self._about["secret"])
        self._charge(run, found is not None)
        self._build()
        self._told_like = told_like(self._job, self._silo.method)
        self._state = self._silo.begin(first_key(self.proposal))
        self._message: list[np.ndarray] = []
        if found and found[1]:
            self._state = unflatten(found[1]["silo"], self._state, OTHER_VERSION)
            self._message = found[1]["message"]

    def _prepare(self) -> None:
        """What will be done, and what it costs; a refusal says no more than that."""
        try:
            check_claimed(self._config)
            prepared = self._prepared = plan_of(
                self._config, self.proposal, self._config.policy.most
            )
        except SilodpError:
            # About the table as a whole, the policy, or a number that is public: no record makes
            # the difference. In the site's own words it belongs neither in a reply nor in a log.
            _log.warning("records or policy do not allow this: `silodp site consent` says why")
            raise Refusal("the site's records or policy do not allow this") from None
        try:
            self._account = account_at_site(self._config, prepared)
        except SilodpError as error:
            _log.warning("%s", error)
            raise Refusal("the site cannot prove what this would cost") from None
        asked = prepared.asked[0]
        self._job = job_among(self.proposal, prepared)
        self._setting = Setting(
            asked.lr or 0.0, prepared.plans[0], prepared.method.traced_values(asked)
        )

    def _first(self) -> dict[str, Any]:
        secret = new_secret("seed" if self._config.keys == "test" else "os").hex()
        return {
            "round": -1,
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
        private = self._config.keys != "test"
        if bool(about["secret"]) != private or about.get("of") != self._fingerprint():
            raise Refusal(CHANGED)

    def _build(self) -> None:
        prepared = self._prepared
        asked, federation = prepared.asked[0], prepared.federations[0]
        if asked.statistics_share:
            federation = standardised(federation, prepared.plans[0], asked.first_seed, self._secret)
        self._federation = federation
        place = self.proposal.sites.index(self._config.site)
        # With the site's own secret, its noise is a release's; with none (tests), an experiment's.
        job = replace(self._job, secret=self._secret)
        seed, tell_noise = self._config.seed, self._config.tell_noise
        self._silo = OneSilo(job, federation, self._setting, place, seed, tell_noise)

    def _charged(self) -> Run | None:
        """What the site's ledger says about the job."""
        if self._account is None:
            return None
        directory, silo = self._account.directory, self._config.ledger_name
        if not exists(directory, silo):
            return None
        return standing_of(read_ledger(directory, silo)).runs.get(self.name)

    def _charge(self, run: Run | None, begun: bool) -> None:
        """Pays for all rounds before the first, once; what does not fit is refused."""
        if run is not None and not begun:
            raise Refusal(LOST)
        if not begun:
            # The secret first: what is charged can be gone on with, or not at all.
            self._save(self._about, [], [])
        if run is not None:
            self._resume(run)
        elif self._account is not None:
            try:
                self._account.marked(charge=self._about.get("charge")).charge(self.name)
            except BudgetSpentError as error:
                _log.warning("%s", error)
                raise Refusal(SPENT) from None

    def _resume(self, run: Run) -> None:
        done = self._about["round"] + 1
        if run.cost.about.get("charge") != self._about.get("charge"):
            raise Refusal(LOST)
        if max(run.resumed_from, self._answered() + 1) > done or (
            run.state == "finished" and not self._about["finished"]
        ):
            # An older copy: its next rounds were answered, and their noise is used up.
            raise Refusal(LOST)
        if self._about["finished"]:
            self._close_run(run.state)
        elif run.state != "open":
            raise Refusal("the job is closed in the site's ledger: submit it anew, as another run")
        elif done > run.resumed_from:  # else the ledger knows, and need not grow
            assert self._account is not None
            resume_all(self._account.directory, [self._config.ledger_name], self.name, done)

    @property
    def _mark(self) -> Path | None:
        """Where the last round that was answered is noted: beside the ledger, not with the state.

        A state that is put back from a copy is then known to be older.
        """
        token = self._about.get("charge")
        if self._account is None or token is None:
            return None
        return self._account.directory / ANSWERED / f"{token}.json"

    def _answered(self) -> int:
        """The last round that was answered under this charge; -1 if none was."""
        mark = self._mark
        if mark is None or not mark.exists():
            return -1
        try:
            return int(json.loads(mark.read_text(encoding="utf-8"))["round"])
        except (OSError, ValueError, KeyError, TypeError):
            _log.warning("%s cannot be read: it says which rounds were answered", mark)
            raise Refusal(LOST) from None

    def _note_answer(self, number: int) -> None:
        """Before the answer leaves (a refusal is one too), after the state it came from is kept."""
        mark = self._mark
        if mark is not None and self._answered() < number:
            mark.parent.mkdir(mode=0o700, exist_ok=True)
            write_file(mark, json.dumps({"job": self.name, "round": number}))

    def _close_run(self, state: str = "open") -> None:
        if self._account is not None and state == "open":
            finish_all(self._account.directory, [self._config.ledger_name], self.name)

    def join(self) -> Reply:
        """What may be told about this site: how many records, if that is public and asked for."""
        about: dict[str, Any] = {"finished": self._about["finished"]}
        policy, training = self._config.policy, self.proposal.training
        if training["weights"] == "records" and policy.count_is_public:
            about["records"] = self._prepared.plans[0][0].records
        return Reply("ok", about=about)

    def train(self, number: Any, arrays: list[np.ndarray]) -> Reply:
        """A round: the answer that was given, if it was; else a new one, kept before it is sent."""
        rounds, last = self._job.rounds, self._about["round"]
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise Refusal("the round is no number")
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
        state, message = jax.block_until_ready(self._silo.local(self._state, told, number))
        sent, failed = flatten(message), not _finite(state)
        if failed:
            # The round is over all the same: told something else, it would be answered with the
            # noise that the refusal tells of.
            state, sent = self._state, []
        about = {**self._about, "round": number, "failed": failed}
        self._save(about, flatten(state), sent)
        self._state, self._message = state, sent
        self._report()

    def finish(self, arrays: list[np.ndarray]) -> Reply:
        """The site's own model, and how good it is: both stay here."""
        if self._about["round"] < 0:
            raise Refusal("no round was trained at this site")
        if not self._about["finished"]:
            params = self._silo.personal(self._state, self._told(arrays))
            about = {**self._about, "released": self._keep(params), "finished": True}
            self._save(about, flatten(self._state), self._message)
            self._close_run()
            self._report()
        released = self._about["released"]
        return Reply("ok", about={} if released is None else {"metric": released})

    def _keep(self, params: Any) -> float | None:
        """Writes the result; returns the metric if it was paid for, with its noise."""
        prepared, config = self._prepared, self._config
        exact = self._silo.metric(params)
        models = jax.tree.map(lambda a: np.asarray(a)[None, None], params)
        seconds = {"total": time.perf_counter() - self._started}
        rounds = [self._job.rounds]
        result = result_of(
            prepared, [self._federation], 0, rounds, np.full((1, 1, 1), exact), seconds, models
        )
        # It was not trained by an engine of `silodp run`, and cannot be asked for there.
        result = replace(result, options=result.options | {"engine": AT_SITES})
        result.write(self._results)
        asked = prepared.asked[0]
        if not asked.metric_share:
            return None
        plan = prepared.plans[0][0]
        largest = asked.metric_bound if self._federation.metric == "mse" else 1.0
        random = HostRandom(config.seed, self._secret, f"metric {plan.silo}")
        silo = self._federation.silos[0]
        # Of no record, noise is all that is released.
        total = np.array([exact * len(silo.test) if len(silo.test) else 0.0])
        count, most = silo.public_test_count, silo.most_tested
        return float(noisy_metric(total, largest, count, most, plan.metric_noise, random)[0])

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
            "job": self.name,
            "method": self.proposal.training["method"],
            "round": self._about["round"] + 1,
            "rounds": self._job.rounds,
            "finished": self._about["finished"],
            "time": time.time(),
        }
        write_file(self._folder / PROGRESS_FILE, json.dumps(told))


def _finite(state: Any) -> bool:
    return all(
        bool(jnp.all(jnp.isfinite(leaf)))
        for leaf in jax.tree.leaves(state)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def _only_one(folder: Path) -> IO[str]:
    """Two processes that answer for one job could answer a round twice, in two ways."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    lock = (folder / "lock").open("w")
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > end:
                lock.close()
                raise Refusal("another process of the site is at work on this job") from None
        time.sleep(0.2)
