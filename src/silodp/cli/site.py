"""`silodp site`: for the people who run a site. Its records, policy and ledger stay there."""

import inspect
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli import ledger as ledger_commands
from silodp.cli.options import AsJson, Yes, with_parameters
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.config.choices import Relation
from silodp.privacy.policy import PUBLIC, RECORD_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from silodp.sites.findings import Finding, Looked
    from silodp.sites.site_data import DataAtSite
    from silodp.sites.site_setup import SiteSettings
    from silodp.sites.sources import Claim

app = typer.Typer(
    help="Runs a site of a federation: its records, policy and ledger stay with it.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")]


SiteData = Annotated[
    Path | None,
    typer.Option("--data", help="The site's table: a CSV (or other text) or Parquet file."),
]
Url = Annotated[str | None, typer.Option(help="Or the SQLAlchemy URL of a database.")]
UrlEnv = Annotated[
    str | None, typer.Option(help="Environment variable that holds the URL, so no file does.")
]
Query = Annotated[str | None, typer.Option(help="The SQL query that gives the table.")]
Epsilon = Annotated[float | None, typer.Option(help="The site's budget for one job.")]
Delta = Annotated[float | None, typer.Option(help="Chance with which the bound may fail.")]
LifetimeEpsilon = Annotated[
    float | None, typer.Option(help="Epsilon for all jobs together; else that of one.")
]
LifetimeDelta = Annotated[
    float | None, typer.Option(help="Delta for all jobs together; else that of one.")
]
OneRelation = Annotated[Relation, typer.Option(help="Neighbours: add-remove or replace-one.")]
SubjectColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that says whom a record is about: protects people, not single records."
    ),
]
PublicRecords = Annotated[
    int | None,
    typer.Option(
        "--records", help="A public stand-in for the number of records, which is then secret."
    ),
]
HideNoise = Annotated[
    bool, typer.Option("--hide-noise", help="Do not disclose how strong the site's noise is.")
]
TestFraction = Annotated[float, typer.Option(help="Share of each silo's records kept for testing.")]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with a lasting name of each record, which decides its side of the split."
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="The site's own name for these records: all federations on them share a ledger."
    ),
]
Ledgers = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="Folder of the site's ledgers; else $SILODP_LEDGERS or ~/.local/share/silodp.",
    ),
]
Foreground = Annotated[
    bool,
    typer.Option("--foreground", help="Stay, and write to standard output: for systemd."),
]
ServiceOut = Annotated[Path, typer.Option("--out", help="Folder for the two files.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="One line, and exit code 0 (well), 1 (degraded) or 2 (down)."),
]
SiteOut = Annotated[
    Path | None, typer.Option("--out", help="Folder to make; else named after the site.")
]


def _own_options(
    folder: SiteOut = None,
    data: SiteData = None,
    url: Url = None,
    url_env: UrlEnv = None,
    query: Query = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    lifetime_epsilon: LifetimeEpsilon = None,
    lifetime_delta: LifetimeDelta = None,
    relation: OneRelation = "add-remove",
    subject_column: SubjectColumn = None,
    records: PublicRecords = None,
    hide_noise: HideNoise = False,
    test_fraction: TestFraction = 0.2,
    id_column: IdColumn = None,
    source: Source = None,
    ledger: Ledgers = None,
    yes: Yes = False,
) -> None:
    """What a site decides for itself when it is set up, over a network or by file."""


def takes_site_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Adds the options with which a site is set up; the command's first parameter gets them."""
    own = inspect.signature(_own_options).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY

    def wrapped(**kwargs: Any) -> None:
        command({name: kwargs.pop(name) for name in own}, **kwargs)

    return with_parameters(
        wrapped, command, (), tuple(one.replace(kind=keyword) for one in own.values())
    )


@app.command("init")
@takes_site_options
def init(
    given: dict[str, Any],
    invitation: Annotated[
        Path, typer.Argument(metavar="INVITATION", help="The file from the coordinator.")
    ],
) -> None:
    """Makes the site's folder and key, checks the data, shows the plan, asks for consent.

    Nothing is sent. Options that are missing are asked for. Shows what was spent on these records
    before, in any federation. Writes the request for a certificate, which you send; it holds
    nothing but the public half of the key.
    """
    from silodp.sites.membership.site import authority_fingerprint, read_invitation
    from silodp.sites.site_setup import set_up

    invited, proposal = read_invitation(invitation)
    answers(soft_wrap=True).print(
        f"{safe(proposal.name)} invites {safe(invited.site)}. Fingerprint of the coordinator's "
        f"authority: {authority_fingerprint(invited)}"
    )
    own = make_site_folder(
        lambda settings: set_up(invitation, given["folder"], settings), invited.site, given
    )
    if own is not None and ask_consent(own, None, given["yes"]):
        _say_next(own)


def make_site_folder(
    set_up: "Callable[[SiteSettings], Path]", site: str, given: dict[str, Any]
) -> Path | None:
    """Asks for what is missing, and makes a site's folder; None if the user declined its source.

    Args:
      set_up: makes the folder.
      site: the site's name.
      given: the options that `takes_site_options` adds.
    """
    from silodp.privacy.policy import Policy
    from silodp.sites.site_data import data_at_site, found_dialect
    from silodp.sites.site_setup import SiteSettings
    from silodp.sites.sources import ledgers_dir

    yes = given["yes"]
    places = {"path": "data", "url": "url", "url_env": "url_env", "query": "query"}
    records_at = {
        name: str(given[option]) for name, option in places.items() if given[option] is not None
    }
    if not records_at:
        records_at["path"] = _prompt(
            "--data", "The site's table, a CSV (or other text) or Parquet file", str, yes
        )
    if "path" in records_at:
        records_at["path"] = str(Path(records_at["path"]).expanduser().absolute())
    fields = ("epsilon", "delta", "lifetime_epsilon", "lifetime_delta", "relation", "records")
    budget = {name: given[name] for name in fields} | {"subject": given["subject_column"]}
    for name, words in (("epsilon", "The site's budget, epsilon"), ("delta", "delta")):
        if budget[name] is None:
            budget[name] = _prompt(f"--{name}", words, float, yes)
    if budget["records"] is not None:
        budget["public"] = [kind for kind in PUBLIC if kind != RECORD_COUNT]
    policy = Policy(**{name: value for name, value in budget.items() if value is not None})
    if "path" in records_at and (form := found_dialect(Path(records_at["path"]))):
        answers(soft_wrap=True).print(f"The table is read as {safe(form.words)}: see site.toml.")
        records_at |= form.as_toml()
    data = data_at_site("The site's data", Path.cwd(), records_at)
    ledger = given["ledger"]
    ledgers = ledgers_dir() if ledger is None else ledger.expanduser().absolute()
    claim = _claim(site, given["source"], data, ledgers, yes)
    if claim is None:
        answers(soft_wrap=True).print(
            "Nothing was made: give these records a name of their own with --source, or the name "
            "that they have."
        )
        return None
    own = set_up(
        SiteSettings(
            data,
            policy,
            tell_noise=not given["hide_noise"],
            test_fraction=given["test_fraction"],
            id_column=given["id_column"],
            claim=claim,
        )
    )
    answers(soft_wrap=True).print(
        f"{safe(str(own))} is made. If what follows is refused, correct its site.toml, then: "
        f"silodp site consent {safe(str(own))}"
    )
    return own


def _claim(
    site: str, name: str | None, data: "DataAtSite", ledgers: Path, yes: bool
) -> "Claim | None":
    """The source of the records, hence the ledger to charge; None if the user declined it."""
    from silodp.sites import sources

    identity = sources.identity_of(site, data)
    known = sources.names_of(ledgers, identity)
    named = name is not None
    if name is None:
        name = _source_name(known, sources.suggested_name(data, identity), ledgers, yes)
    if name in known:
        _say_standing(name, ledgers, f"These records are source {name!r}")
        if not (named or yes) and not typer.confirm("Are they?", default=True):
            return None
        return sources.Claim(ledgers, name, identity)
    if known:
        # A script that gives each federation a name of its own would spend a lifetime in each.
        also = f"{identity} is known as source {known[0]!r}"
        if yes:
            raise SilodpError(
                f"{also}, whose ledger holds what was spent on it: give --source {known[0]!r}, or "
                "say without --yes that these are other records."
            )
        _say_standing(known[0], ledgers, also)
        question = f"Are these other records, about other people, than {known[0]!r}?"
        if not typer.confirm(question, default=False):
            return None
        return sources.Claim(ledgers, name, identity, tuple(known))
    if sources.is_taken(ledgers, name):
        _say_standing(name, ledgers, f"The name {name!r} is that of a source which is known")
        question = "Is this the same source, moved or exported again? Both then share its ledger"
        if not yes and not typer.confirm(f"{question}."):
            return None
    return sources.Claim(ledgers, name, identity)


def _source_name(known: list[str], suggested: str, ledgers: Path, yes: bool) -> str:
    """The site's name for its records: the known one, or one that it gives now."""
    from silodp.sites.sources import is_taken, known_sources

    if len(known) == 1:
        return known[0]
    if known:
        names = ", ".join(map(repr, known))
        raise SilodpError(f"--source is missing: these records may be any of {names}: give one.")
    if not yes:
        if others := known_sources(ledgers):
            answers(soft_wrap=True).print(
                f"Sources that are known here: {safe(', '.join(map(repr, others)))}. If these "
                "records are one of them, moved or exported again, give its name."
            )
        return _prompt("--source", "The site's own name for these records", str, yes, suggested)
    if others := known_sources(ledgers):
        # A script must not give records that were exported again a new lifetime.
        names = ", ".join(map(repr, others))
        raise SilodpError(
            f"--source is missing: these records are not known here, and {names} are: give the "
            "name of one of them if these are its records, moved or exported again, else a new one."
        )
    if is_taken(ledgers, suggested):
        raise SilodpError(
            f"--source is missing: the name {suggested!r} is that of another source: give it if "
            "these are the same records, moved or exported again, else a new name."
        )
    return suggested


def _say_standing(name: str, ledgers: Path, what: str) -> None:
    """Prints what was spent on a source, and what is left."""
    from silodp.privacy.ledger.standing import remaining
    from silodp.privacy.ledger.storage import exists, ledger_path

    spent = "nothing is spent yet"
    if exists(ledgers, name):
        row = remaining(ledgers, name)
        spent = f"epsilon {row['spent_epsilon']:.4g} is spent"
        if row["lifetime_epsilon"] is not None:
            spent += f" of {row['lifetime_epsilon']:g} at delta {row['lifetime_delta']:g}: "
            spent += f"{row['left_share']:.0%} of the lifetime is left, "
            spent += f"{row['reserved_share']:.0%} is reserved"
    where = safe(str(ledger_path(ledgers, name)))
    answers(soft_wrap=True).print(f"{safe(what)} ({where}): {spent}.")


def _prompt(flag: str, words: str, kind: type, yes: bool, usual: Any = None) -> Any:
    """Asks for a missing option; with --yes, refuses instead."""
    if yes:
        raise SilodpError(f"{flag} is missing: give it.")
    return typer.prompt(words, type=kind, default=usual)


@app.command("consent")
def consent(
    folder: Folder,
    proposal: Annotated[
        Path | None,
        typer.Option(help="A newer proposal, the file that the coordinator sent to all sites."),
    ] = None,
    other_ledger: Annotated[
        bool,
        typer.Option(
            "--other-ledger",
            help="These are other records now: their ledger holds all that was spent on them.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Shows what does not fit a proposal's schema and what it would cost, and asks for consent.

    This is the time to look: after consent, no record is refused any more. Consent to a newer
    proposal takes the place of that before; the ledger goes on.
    """
    if other_ledger and not _takes_other_ledger(folder, yes):
        return
    if ask_consent(folder, proposal, yes):
        _say_next(folder)


def _takes_other_ledger(folder: Path, yes: bool) -> bool:
    """Asks whether another ledger than the site answered with is right; no script says so."""
    from silodp.sites.shown_ledger import accept_other
    from silodp.sites.site_files import read_site
    from silodp.sites.site_setup import standing

    config = read_site(folder)
    if yes:
        raise SilodpError("--other-ledger is for a person to say: leave out --yes.")
    console = answers(soft_wrap=True)
    console.print(
        f"By the ledger of {safe(repr(config.ledger_name))}, epsilon "
        f"{standing(config)['spent']:.4g} is spent. This site has answered with another ledger "
        "before."
    )
    question = "Does this one hold all that was ever spent on the records that the site uses now?"
    if not typer.confirm(question, default=False):
        console.print("Nothing was changed: put back the newest copy of the ledger.")
        return False
    if not accept_other(folder):
        console.print("No ledger was refused, so there is nothing to take.")
    return True


@app.command("join")
def join(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="NAME.certificate, from the coordinator.")
    ],
    yes: Yes = False,
) -> None:
    """Puts a certificate from the coordinator in its place; also where the server has moved.

    Refuses one of another federation, another site, another key, or an older one. The first time,
    asks whether the authority's fingerprint was compared.
    """
    from silodp.sites.flare.processes import SITE_PID, is_running
    from silodp.sites.membership.site import pinned_fingerprint, read_membership, take_certificate

    console, own = answers(soft_wrap=True), safe(str(folder))
    if read_membership(folder).issued == 0:
        console.print(f"Fingerprint of the authority: {pinned_fingerprint(folder)}")
        question = "Is it the one that the coordinator read to you, on a number that you knew?"
        if not yes and not typer.confirm(question, default=False):
            console.print("Nothing was changed.")
            return
    until = take_certificate(folder, file)
    console.print(f"The certificate is valid until {until:%Y-%m-%d}.")
    if is_running(folder / SITE_PID):
        console.print(f"It is used from the next start on: silodp site stop {own}, then start.")
    else:
        console.print(f"Next: silodp site start {own}")


@app.command("renew")
def renew(folder: Folder) -> None:
    """Makes a new key and a request for its certificate; nothing else about the site changes.

    Ledger, policy, records and consent stay. Until the certificate comes (site join), the site
    goes on with the one that it has.
    """
    from silodp.sites.membership.site import fingerprint_at
    from silodp.sites.membership.site import renew as make_request

    console = answers(soft_wrap=True)
    console.print(f"Send: {safe(str(make_request(folder)))}")
    console.print(f"Fingerprint of the new key: {fingerprint_at(folder)}")
    console.print(
        f"Next: silodp site join {safe(str(folder))} FILE, what the coordinator sends back"
    )


def _say_next(folder: Path) -> None:
    """Prints what comes after consent: a request to send, the site's process, or a file."""
    from silodp.sites.exchange.site_folder import is_sites
    from silodp.sites.membership.site import (
        certificate_at,
        fingerprint_at,
        is_member,
        write_request,
    )

    console, own = answers(soft_wrap=True), safe(str(folder))
    if is_sites(folder):
        console.print(f"Next: silodp exchange answer {own} INVITATION, and send what it writes")
    elif is_member(folder) and certificate_at(folder) is None:
        console.print(f"Send: {safe(str(write_request(folder)))}")
        console.print(f"Fingerprint of this site: {fingerprint_at(folder)}")
        console.print(
            "Compare both fingerprints with the coordinator by phone, with a number that did not "
            "come with the files."
        )
        console.print(f"Next: silodp site join {own} FILE, what the coordinator sends back")
    else:
        console.print(f"Next: silodp site start {own}")


def ask_consent(folder: Path, path: Path | None, yes: bool) -> bool:
    """Shows findings and plan, asks for consent, and records it; returns whether it was given."""
    from silodp.base.values import plain
    from silodp.cli.plan import print_plan
    from silodp.runs.planning import describe_plans
    from silodp.sites.findings import findings_of_parts, look_at
    from silodp.sites.site_files import read_site
    from silodp.sites.site_plan import ledgers_at_site, plan_of
    from silodp.sites.site_setup import consent_to, offered_proposal, standing
    from silodp.sites.sources import claim_of

    offered, config = offered_proposal(folder, path), read_site(folder)
    proposal = offered.proposal
    claim = claim_of(config)
    console = answers(soft_wrap=True)
    with notes().status("Reading the records and working out the plan..."):
        inspection = look_at(config.site, config.data, proposal.schema)
        prepared = plan_of(config, proposal)
        findings = [*inspection.findings, *findings_of_parts(prepared.federations[0])]
        ledgers = ledgers_at_site(config, prepared)
        lifetimes = None if ledgers is None else ledgers.check()
        spec = prepared.specs[0]
        content = {
            "method": spec.request.method,
            "rounds": spec.rounds,
            "silos": describe_plans(prepared),
            "warnings": prepared.warnings,
            "person": None,
            "lifetimes": lifetimes,
        }
    silo = prepared.federations[0].silos[0]
    console.print(
        f"{safe(proposal.name)}: {len(proposal.sites)} sites, method "
        f"{safe(spec.request.method)}, model {safe(spec.model_name)}. Of "
        f"{inspection.rows} rows, {len(silo.train)} are for training and "
        f"{len(silo.test)} for testing. Nothing was sent."
    )
    _print_findings(inspection, findings)
    print_plan(plain(content))
    if ledgers is not None:
        plan, account = prepared.plans[0][0], standing(config)
        lifetime, delta = account["lifetime"], account["lifetime_delta"]
        whose = "" if config.source is None else f" of source {safe(repr(config.source))}"
        console.print(
            f"This would spend epsilon {plan.epsilon:.4g} at delta {plan.delta:g}: all of it is "
            "reserved when the site joins, charged block by block as rounds are answered, and what "
            f"is never answered is given back. Of a lifetime allowance{whose} of {lifetime:g} at "
            f"delta {delta:g}, epsilon {account['spent']:.4g} is spent so far, "
            f"{account['reserved_share']:.0%} is reserved and {account['left_share']:.0%} is left."
        )
        if (lifetime, delta) != config.policy.lifetime:
            console.print(
                "Its ledger holds a stricter allowance than site.toml, which takes precedence: "
                f"silodp ledger allow {safe(str(config.ledger))} changes it."
            )
    else:
        console.print(
            "[bold yellow]Keys are for testing: whoever knows the seed knows the noise. Nothing is "
            "private, and nothing is charged.[/]"
        )
    if not yes and not typer.confirm("Take part with this plan?"):
        console.print("No consent was given: the site will refuse this proposal.")
        return False
    if claim is not None:
        claim.make()
    consent_to(folder, offered)
    console.print("Consent is written down.")
    return True


def _print_findings(inspection: "Looked", findings: "list[Finding]") -> None:
    """Prints what is odd about the records now, because none is refused later."""
    console = answers(soft_wrap=True)
    if not findings:
        console.print("Every value fits the schema.")
        return
    title = (
        f"What does not fit the schema (of {inspection.rows} rows, {inspection.usable} are used)"
    )
    table = Table("column", "what", "rows", "counts as", "remedy", title=title)
    for one in findings:
        table.add_row(
            safe(one.column), safe(one.what), str(one.rows), safe(one.counts_as), safe(one.remedy)
        )
    console.print(table)
    console.print(
        "This is for the site alone: the coordinator is not told, and no record will be refused "
        "because of it. If something is wrong, correct the records before you consent."
    )


@app.command("start")
def start(folder: Folder, foreground: Foreground = False) -> None:
    """Starts the site: it connects to the coordinator and waits for jobs, in the background."""
    from silodp.sites.flare.processes import become_site, start_site
    from silodp.sites.site_files import read_site

    site = read_site(folder).site
    if foreground:
        become_site(folder)
    with notes().status(f"Connecting {safe(site)} to the coordinator..."):
        connected = start_site(folder)
    state = "is connected" if connected else "runs, but has not reached the coordinator yet"
    answers(soft_wrap=True).print(
        f"Site {safe(site)} {state}. See: silodp site status {safe(str(folder))}"
    )


@app.command("stop")
def stop_site(folder: Folder) -> None:
    """Stops the site. A job that it is part of goes on without it, or later."""
    from silodp.sites.flare.processes import SITE_PID, stop

    answers().print("Stopped." if stop(folder / SITE_PID) else "It did not run.")


@app.command("status")
def status(
    folder: Folder,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it, until Ctrl-C.")] = False,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Shows whether the site is connected, what is wrong, where jobs stand, and what is spent."""
    from silodp.sites.site_setup import site_status

    found = site_status(folder)
    if check:
        say_check(found["level"], found["problems"])
    if as_json:
        print_json(found)
        return
    if not watch:
        answers(soft_wrap=True).print(status_table(found))
        print_problems(found["problems"])
        return
    with Live(status_table(found), console=answers(True)) as live:
        while True:
            time.sleep(0.5)
            live.update(status_table(site_status(folder)))


def say_check(level: int, problems: list[str]) -> None:
    """One line for a monitor, and its exit code: 0 well, 1 degraded, 2 down."""
    from silodp.sites.health import WORDS

    answers(soft_wrap=True).print(safe("; ".join([WORDS[level], *problems])))
    raise typer.Exit(level)


def print_problems(problems: list[str]) -> None:
    """Each problem, on a line of its own."""
    for words in problems:
        answers(soft_wrap=True).print(f"[yellow]{safe(words)}[/]")


def status_table(standing: dict[str, Any]) -> Table:
    """A site's jobs, and what is spent of its lifetime."""
    running = "answers by file" if standing.get("by_file") else _connection_words(standing)
    title = f"{safe(standing['site'])}: {running}; spent {standing['spent']:.4g} of epsilon "
    title += f"{standing['lifetime']:g} ({_shares(standing)})"
    again = standing["same_again"]
    if again is not None and again["runs"] is not None and standing["given_to"] is None:
        title += f"; one more job like the last takes {again['share']:.0%}, {again['runs']} fit"
    whose = "" if standing["source"] is None else f"source {safe(standing['source'])}, "
    caption = f"{whose}ledger {safe(standing['ledger'])}"
    if standing.get("certificate_until"):
        caption += f"; certificate valid until {standing['certificate_until']}"
    if standing.get("clock") is not None:
        caption += f"; clock {standing['clock']:+.1f} s from the coordinator's"
    if standing.get("version"):
        caption += f"; silodp {safe(standing['version'])} there"
    columns = ("job", "method", "round", "took part in", "charged", "state")
    table = Table(*columns, title=title, caption=caption)
    for job in standing["jobs"]:
        table.add_row(
            safe(job["job"]),
            safe(job["method"]),
            f"{job['round']} / {job['rounds']}",
            str(job["answered"]),
            "nothing" if job["charged"] is None else f"{job['charged']} rounds",
            safe(job["state"]),
        )
    return table


def _connection_words(standing: dict[str, Any]) -> str:
    """Whether the site is connected, and since when it is not."""
    from silodp.sites.health import moment

    if not standing["running"]:
        return "not running"
    if standing["connected"]:
        return "connected"
    if standing.get("heard") is None:
        return "running, not let in yet"
    return f"cut off since {moment(standing['heard'])}, trying again"


def _shares(standing: dict[str, Any]) -> str:
    """Shares of the site's lifetime that are spent, reserved, given back and left."""
    if standing["given_to"] is not None:  # the filter's shares mean nothing then
        return f"the lifetime is given to job {safe(standing['given_to'])} alone: nothing else fits"
    return (
        f"{standing['spent_share']:.0%} of the lifetime is spent, {standing['reserved_share']:.0%} "
        f"reserved, {standing['given_back_share']:.0%} was given back, "
        f"{standing['left_share']:.0%} is left"
    )


@app.command("doctor")
def doctor(folder: Folder, as_json: AsJson = False) -> None:
    """Looks at what the site needs: network, certificate, clock, disk, ledger, records, versions.

    Ends with exit code 1 if something is wrong. Nothing is released, and nothing charged.
    """
    from silodp.sites.preflight import preflight

    with notes().status("Looking..."):
        found = preflight(folder)
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        table = Table("what", "", "how it is")
        for one in found:
            table.add_row(one.what, "well" if one.well else "[bold red]wrong[/]", safe(one.words))
        answers().print(table)
    if not all(one.well for one in found):
        raise typer.Exit(1)


@app.command("service")
def service(folder: Folder, out: ServiceOut = Path()) -> None:
    """Writes a unit for systemd and a container file that run the site and restart it."""
    from silodp.sites.service import Service, write_service
    from silodp.sites.site_files import read_site

    own = read_site(folder)
    data = () if own.data.path is None else (own.folder / own.data.path,)
    made = Service("site", own.site, folder, (own.ledger,), data)
    for path in write_service(made, out):
        answers(soft_wrap=True).print(
            f"Written: {safe(str(path))}. Its first lines say how to use it."
        )


@app.command("ledger")
def ledger(
    folder: Folder,
    summary: Annotated[
        bool,
        typer.Option("--summary", help="Only totals, without names: to hand on, if allowed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Shows every entry of the site's ledger; `silodp ledger` does more with its folder.

    With --summary, only what is spent, reserved and left, which the site may hand to a coordinator
    or an authority if its policy declares "ledger summary" public.
    """
    from silodp.privacy.ledger.storage import read_ledger
    from silodp.sites.site_files import read_site

    config = read_site(folder)
    if summary:
        own = read_ledger(config.ledger, config.ledger_name)
        ledger_commands.show_summary([own], [config.policy], str(folder), as_json)
        return
    ledger_commands.show(config.ledger, config.ledger_name, as_json)


@app.command("trail")
def trail(folder: Folder, as_json: AsJson = False) -> None:
    """Shows who asked this site for what, and what it answered, refused and charged.

    Each line holds the one before, and the ledger holds the trail: what was changed is refused.
    """
    from silodp.privacy.ledger.storage import exists, read_ledger
    from silodp.sites.site_files import read_site
    from silodp.sites.trail import check_against, read_trail

    config, lines = read_site(folder), read_trail(folder)
    if exists(config.ledger, config.ledger_name):
        entries = read_ledger(config.ledger, config.ledger_name).entries
        check_against(lines, entries, folder)
    if as_json:
        print_json([asdict(line) for line in lines])
        return
    table = Table("time", "federation", "job", "asked to", "from round", "outcome")
    for line in lines:
        outcome = line.outcome + (f": {line.reason}" if line.reason else "")
        number = str(line.round + 1) if line.kind == "train" else ""
        names = (line.time, line.federation, line.job, line.kind, number, outcome)
        table.add_row(*map(safe, names))
    answers(soft_wrap=True).print(table)


@app.command("models")
def models(folder: Folder, as_json: AsJson = False) -> None:
    """Lists the site's own models and how good each is on its own test records."""
    from silodp.sites.site_setup import site_models

    rows = site_models(folder)
    if as_json:
        print_json(rows)
        return
    if not rows:
        raise SilodpError(f"{folder} has no model yet: they come when a job is finished.")
    table = Table("job", "method", "metric", "test", "epsilon", "took part in", "model")
    table.columns[6].overflow = "fold"
    for one in rows:
        epsilon, test = one["epsilon"], one["test"]
        table.add_row(
            safe(one["job"]),
            safe(one["method"]),
            one["metric"],
            "no test records fit for it" if test is None else f"{test:.5g}",
            epsilon if isinstance(epsilon, str) else f"{epsilon:.4g}",
            "" if one["rounds"] is None else f"{one['rounds']} of {one['of_rounds']} rounds",
            safe(one["model"]),
        )
    answers(soft_wrap=True).print(table)
