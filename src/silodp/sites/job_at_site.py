"""One job at a site: what it has answered, what it keeps, and its answer to each request.

What is reserved, charged and given back when is in `privacy.session`, of which a site holds one.
Memory changes only after the disk: what could not be written did not happen, and is not answered.
"""

import contextlib
import json
import logging
import secrets
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.progress_file import FORMAT as PROGRESS_FORMAT
from silodp.base.progress_file import PROGRESS_FILE
from silodp.engines.checkpoint import flatten, unflatten
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import fingerprint
from silodp.engines.job import Setting
from silodp.engines.messages import MessagesOfOneSilo
from silodp.engines.one_silo import OneSilo
from silodp.models.metrics import mean_metric
from silodp.privacy.ledger.account import Run, RunClosedError
from silodp.privacy.ledger.charging import BudgetSpentError
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.mechanisms.randomness import new_secret
from silodp.privacy.session import FINISHED, PaidRounds, RunSession
from silodp.results.result import AT_SITES
from silodp.runs.evaluation import exact_metrics
from silodp.runs.run_results import result_of
from silodp.runs.training_run import with_statistics
from silodp.sites.agreed_job import broadcast_like, first_key, job_among
from silodp.sites.arrays import OTHER_VERSION, tree_of
from silodp.sites.job_ledger import (
    STATE_FILE,
    AnsweredRounds,
    give_back_what_never_began,
    run_in_ledger,
)
from silodp.sites.job_lock import only_one
from silodp.sites.last_error import from_the_machine
from silodp.sites.proposal import Proposal
from silodp.sites.protocol import Reply
from silodp.sites.refusals import (
    CANNOT,
    CHANGED,
    CLOSED,
    LEDGER,
    LOST,
    NONE_LEFT,
    NOT_FINITE,
    SPENT,
    Refusal,
    StaleRefusal,
)
from silodp.sites.shown_ledger import ShownLedger
from silodp.sites.site_files import SiteConfig
from silodp.sites.site_plan import ledgers_at_site, plan_of
from silodp.sites.sources import check_claimed
from silodp.sites.state_file import load_state, save_state
from silodp.sites.trail import Trail

STATE, RESULTS = "state", "results"  # folders of the site's folder
_log = logging.getLogger("silodp.site")


def is_begun(folder: Path, name: str) -> bool:
    """Whether the site in this folder has begun this job."""
    return (folder / STATE / name / STATE_FILE).exists()


class JobAtSite:
    """One job at this site, from where it stands."""

    def __init__(
        self,
        folder: Path,
        config: SiteConfig,
        proposal: Proposal,
        name: str,
        next_round: int,
        shown: ShownLedger,
    ):
        """Refuses, before anything is reserved, a job that the site cannot take part in from there.

        Args:
          folder: the site's.
          config: the site's own file.
          proposal: what it consented to.
          name: the job's.
          next_round: where the job stands, from 0.
          shown: the site's ledger as the coordinator sees it.
        """
        self.name, self.proposal = name, proposal
        self._config = config
        self._folder, self._results = folder / STATE / name, folder / RESULTS / name
        self._shown = shown
        self._locks = [only_one(self._folder / "lock")]
        try:
            self._open(next_round)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends this process's work on the job: another may go on with it."""
        for lock in self._locks:
            lock.close()

    def _open(self, next_round: int) -> None:
        prepare_jax()
        self._started = time.perf_counter()
        self._prepare()
        known, found = self._known(), load_state(self._folder / STATE_FILE)
        if found and known is None and found[0]["round"] < 0:
            # Neither reserved nor answered, such as where the budget did not do: it begins now.
            found = None
        if found:
            self._check_same(found[0])
        elif not 0 <= next_round < self._job.rounds:
            raise Refusal(NONE_LEFT)
        self._about: dict[str, Any] = found[0] if found else self._first()
        self._answered = AnsweredRounds(self._ledgers, self.name, self._about.get("charge"))
        self._place = self.proposal.sites.index(self._config.site)
        method = self._job.build(self._setting.options)
        self._broadcast_like = broadcast_like(self._job, method)
        self._state = self._job.first_states(method, first_key(self.proposal), self._place)[1]
        self._message: list[np.ndarray] = []
        if found and found[1]:
            self._state = unflatten(found[1]["silo"], self._state, OTHER_VERSION)
            self._message = found[1]["message"]
        self._silo: OneSilo | MessagesOfOneSilo | None = None
        self._session = self._entered(known, found is not None)
        self._report()

    def _prepare(self) -> None:
        """Plans what will be done and what it costs; a refusal says only that it is refused."""
        try:
            check_claimed(self._config)
            prepared = self._prepared = plan_of(
                self._config, self.proposal, self._config.policy.max_count
            )
        except SilodpError:
            # About the table as a whole, the policy, or a number that is public: no record makes
            # the difference. In the site's own words it belongs neither in a reply nor in a log.
            why = "records or policy do not allow this: `silodp site consent` says why"
            _log.warning(why)
            raise Refusal("the site's records or policy do not allow this", why) from None
        try:
            self._ledgers = ledgers_at_site(self._config, prepared)
        except SilodpError as error:
            _log.warning("%s", error)
            raise Refusal("the site cannot prove what this would cost", str(error)) from None
        spec = prepared.specs[0]
        if spec.method.in_messages and not self._config.tell_noise:
            raise Refusal("the site keeps the scale of its noise to itself, which messages tell")
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
            "charge": secrets.token_hex(16),
            "of": self._fingerprint(),
        }

    def _fingerprint(self) -> str:
        """A digest of all that is charged for, and of the records that the noise is meant for."""
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
        """Refuses to go on with another job than was begun: charge and noise are for that one."""
        if "answered" not in about:
            raise Refusal(LOST)  # of a version that charged a job as a whole
        private = self._config.keys != "test"
        if bool(about["secret"]) != private or about.get("of") != self._fingerprint():
            raise Refusal(CHANGED)

    def _entered(self, known: Run | None, begun: bool) -> RunSession:
        """The session of the job, new (reserved now) or resumed; refuses what does not fit."""
        about = self._about
        marked = self._ledgers and self._ledgers.marked(
            charge=about.get("charge"), trail=Trail(self._folder.parents[1]).mark()
        )
        session = RunSession(marked, [self._config.site], self._job.rounds, self.name)
        secret = bytes.fromhex(about["secret"])
        if not begun:
            if known is not None:
                raise Refusal(LOST)
            give_back_what_never_began(
                self._config, self._ledgers, self.proposal, self._folder.parent
            )
            # The secret first: what is reserved can be gone on with, or not at all.
            self._save(about, [], [])
            try:
                session.reserve(secret=secret)
            except SilodpError as error:
                _log.warning("%s", error)
                if self._known() is None:  # it may begin later, when the ledger allows it
                    (self._folder / STATE_FILE).unlink(missing_ok=True)
                if from_the_machine(error) is not None:
                    raise
                spent = isinstance(error, BudgetSpentError)
                raise Refusal(SPENT if spent else LEDGER, str(error)) from None
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
            if from_the_machine(error) is not None:
                raise
            raise Refusal(LOST, str(error)) from None
        if about["finished"]:
            session.close(FINISHED)
        return session

    def _known(self) -> Run | None:
        """What the site's ledger says about the job."""
        return run_in_ledger(self._config, self._ledgers, self.name)

    def _claim_noise(self) -> None:
        """Keeps other processes from the noise of the charge, until this one is closed."""
        lock = self._answered.claim()
        if lock is not None:
            self._locks.append(lock)

    def _check_latest(self, known: Run | None) -> None:
        """Refuses an older copy of the state: its next rounds were answered already."""
        about = self._about
        if known is None or known.about.get("charge") != about.get("charge"):
            raise Refusal(LOST)
        if self._answered.last() > about["round"]:
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
        except SilodpError as error:  # the ledger cannot be written, or not be read
            _log.error("%s", error)
            raise Refusal(CANNOT, str(error)) from None

    def _trainer(self) -> OneSilo | MessagesOfOneSilo:
        """The site's part of the training, built once; statistics, if agreed on, are paid first."""
        if self._silo is None:
            prepared = self._prepared
            request, federation = prepared.specs[0].request, prepared.federations[0]
            if request.statistics_share:
                paid = self._pay(PREPARATION, 0)
                federation = with_statistics(
                    federation, prepared.plans[0], request.first_seed, self._session, paid
                )
            self._federation = federation
            # With the site's own secret, its noise is a release's; with none (tests), an
            # experiment's.
            job = replace(self._job, secret=bytes.fromhex(self._about["secret"]))
            seed, tell_noise = self._config.seed, self._config.tell_noise
            if job.method.in_messages:
                self._silo = MessagesOfOneSilo(job, federation, self._setting, seed)
            else:
                self._silo = OneSilo(job, federation, self._setting, self._place, seed, tell_noise)
        return self._silo

    def join(self) -> Reply:
        """Answers with the number of records, if that is public and weights go by it."""
        about: dict[str, Any] = {"finished": self._about["finished"]}
        policy, training = self._config.policy, self.proposal.training
        if training["weights"] == "records" and policy.count_is_public:
            about["records"] = self._prepared.plans[0][0].public_count
        return Reply("ok", about=about | self._ledger(("reserve",)))

    def _ledger(self, kinds: Collection[str] = ("reserve", "charge")) -> dict[str, Any]:
        """What the coordinator is to show again, so that this ledger never begins anew unseen."""
        token = self._shown.token(self.name, kinds)
        return {} if token is None else {"ledger": token}

    def train(self, number: int, arrays: list[np.ndarray]) -> Reply:
        """Answers a round as before, if it was answered; else trains, and keeps before it sends."""
        rounds, last = self._job.rounds, self._about["round"]
        if number >= rounds:
            raise Refusal(f"round {number + 1} is asked for, but {rounds} were agreed on")
        if number < last:
            raise StaleRefusal(f"round {number + 1} was answered, and round {last + 1} after it")
        if number > last:
            if self._about["finished"]:
                raise StaleRefusal("the job is finished at this site")
            self._train(number, self._broadcast(arrays))
        self._answered.note(number)
        if self._about["failed"]:
            raise Refusal(NOT_FINITE)
        return Reply("ok", about={"round": number} | self._ledger(), arrays=self._message)

    def _train(self, number: int, broadcast: Any) -> None:
        silo = self._trainer()
        paid = self._pay(number, number + 1)
        state, message = jax.block_until_ready(silo.local(self._state, broadcast, paid))
        sent, failed = flatten(message), not _finite(state)
        if failed:
            # The round is over all the same: with another broadcast, it would be answered with the
            # noise that this refusal already tells something about.
            state, sent = self._state, []
        answered = self._about["answered"] + 1
        about = {**self._about, "round": number, "answered": answered, "failed": failed}
        self._save(about, flatten(state), sent)
        self._state, self._message = state, sent
        self._report()

    def finish(self, arrays: list[np.ndarray]) -> Reply:
        """Writes the site's own model and metric, which stay here; sends a noisy metric if paid."""
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
            silo, broadcast = self._trainer(), self._broadcast(arrays)
            params, learned = silo.personal(self._state, broadcast), {}
            if isinstance(silo, MessagesOfOneSilo):
                learned = silo.learned(self._state, broadcast)
            about = {**self._about, "released": self._keep(params, learned), "finished": True}
            self._save(about, flatten(self._state), self._message)
            with contextlib.suppress(RunClosedError):  # meanwhile, by whoever: it is over
                self._session.close(FINISHED)
            self._report()
        released = self._about["released"]
        if released is None:
            return Reply("ok")
        return Reply("ok", about={"metric": released} | self._ledger())

    def _keep(self, params: Any, learned: dict[str, Any]) -> float | None:
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
        own = np.full((1, 1), exact)
        # All of it is exact and stays here: a noisy one that was paid for is sent, and not kept.
        bounded = request.metric_share > 0
        measured = exact_metrics(
            *(prepared, 0, [self._federation], models), own=None if bounded else own
        )
        result = result_of(
            *(prepared, [self._federation], 0, [answered], own[None], seconds, models),
            learned=jax.tree.map(lambda a: np.asarray(a)[None], learned),
            measured=measured,
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

    def _broadcast(self, arrays: list[np.ndarray]) -> Any:
        """The method's broadcast from the arrays of a request; refuses what does not fit."""
        try:
            return tree_of(arrays, self._broadcast_like)
        except SilodpError as error:
            raise Refusal(f"the broadcast does not fit: {error}") from None

    def _save(
        self, about: dict[str, Any], silo: list[np.ndarray], message: list[np.ndarray]
    ) -> None:
        """Writes the state to disk, then to memory: what was not written is not answered."""
        lists = {"silo": silo, "message": message} if about["round"] >= 0 else {}
        save_state(self._folder / STATE_FILE, about, lists)
        self._about = about

    def _report(self) -> None:
        """Writes where the job stands, for people at the site."""
        progress = {
            "format": PROGRESS_FORMAT,
            "job": self.name,
            "method": self.proposal.training["method"],
            "round": self._about["round"] + 1,
            "rounds": self._job.rounds,
            "answered": self._about["answered"],
            "finished": self._about["finished"],
            "time": time.time(),
        }
        write_file(self._folder / PROGRESS_FILE, json.dumps(progress))


def _finite(state: Any) -> bool:
    return all(
        bool(jnp.all(jnp.isfinite(leaf)))
        for leaf in jax.tree.leaves(state)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )
