"""`silodp site`: for the people who run a site. What is theirs stays with them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from silodp.choices import Relation
from silodp.cli import ledger as ledger_commands
from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.errors import SilodpError
from silodp.privacy.policy import PUBLIC, RECORD_COUNT

if TYPE_CHECKING:
    from silodp.sites.findings import Looked

app = typer.Typer(
    help="Runs a site of a federation: its records, policy and ledger stay with it.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")]
Yes = Annotated[bool, typer.Option("--yes", help="Consent without being asked, for scripts.")]


@app.command("init")
def init(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The zip from the coordinator.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; else named after the site.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The site's table: a CSV or Parquet file.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Or a database, as SQLAlchemy names it.")] = None,
    url_env: Annotated[
        str | None, typer.Option(help="Environment variable with it, so that no file holds it.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="The SQL query that gives the table.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The site's budget for one job.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Chance with which the bound may fail.")
    ] = None,
    lifetime_epsilon: Annotated[
        float | None, typer.Option(help="For all jobs together; else as for one.")
    ] = None,
    lifetime_delta: Annotated[
        float | None, typer.Option(help="Its delta; else as for one job.")
    ] = None,
    relation: Annotated[
        Relation, typer.Option(help="Neighbours: add-remove or replace-one.")
    ] = "add-remove",
    subject_column: Annotated[
        str | None,
        typer.Option(
            help="Column that says whom a record is about: protects people, not single records."
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(help="A public stand-in for the number of records, which is then secret."),
    ] = None,
    hide_noise: Annotated[
        bool,
        typer.Option("--hide-noise", help="Do not tell how strong the site's noise is."),
    ] = False,
    test_fraction: Annotated[
        float, typer.Option(help="Share of each silo's records kept for testing.")
    ] = 0.2,
    id_column: Annotated[
        str | None,
        typer.Option(help="Column that names a record for good: its coin in the split goes by it."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Folder of the site's ledger; else in the site's folder.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Makes the site's folder from its kit, checks the data, shows the plan, asks for consent.

    Nothing is sent. What is not given is asked for.
    """
    from silodp.privacy.policy import Policy
    from silodp.sites.site_data import data_at_site
    from silodp.sites.site_setup import set_up

    given = {"path": data, "url": url, "url_env": url_env, "query": query}
    given = {name: str(value) for name, value in given.items() if value is not None}
    if not given:
        given["path"] = _prompt("--data", "The site's table, a CSV or Parquet file", str, yes)
    if "path" in given:
        given["path"] = str(Path(given["path"]).expanduser().absolute())
    where = "silodp site init"
    budget: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "lifetime_epsilon": lifetime_epsilon,
        "lifetime_delta": lifetime_delta,
        "relation": relation,
        "subject": subject_column,
        "records": records,
    }
    for name, words in (("epsilon", "The site's budget, epsilon"), ("delta", "delta")):
        if budget[name] is None:
            budget[name] = _prompt(f"--{name}", words, float, yes)
    if records is not None:
        budget["public"] = [kind for kind in PUBLIC if kind != RECORD_COUNT]
    policy = Policy(**{name: value for name, value in budget.items() if value is not None})
    own = set_up(
        kit,
        folder,
        data_at_site(where, Path.cwd(), given),
        policy,
        tell_noise=not hide_noise,
        test_fraction=test_fraction,
        id_column=id_column,
        ledger=ledger,
    )
    answers(soft_wrap=True).print(
        f"{safe(str(own))} is made. If what follows is refused, mend its site.toml, then: silodp "
        f"site consent {safe(str(own))}"
    )
    _ask(own, None, yes)


def _prompt(flag: str, words: str, kind: type, yes: bool) -> Any:
    """What is missing, asked for; a script is told to give it."""
    if yes:
        raise SilodpError(f"{flag} is missing: give it.")
    return typer.prompt(words, type=kind)


@app.command("consent")
def consent(
    folder: Folder,
    proposal: Annotated[
        Path | None, typer.Option(help="Another proposal (JSON) than that of the kit.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Shows what does not fit a proposal's schema and what it would spend, and asks for consent.

    This is the time to look: once consent is given, no record is refused any more.
    """
    _ask(folder, proposal, yes)


def _ask(folder: Path, path: Path | None, yes: bool) -> None:
    from silodp.accounts import account_of
    from silodp.cli.plan import print_plan
    from silodp.json_values import plain
    from silodp.planning import describe_plans
    from silodp.sites.consents import consent
    from silodp.sites.findings import check_parts, look_at
    from silodp.sites.job_at_site import plan_of
    from silodp.sites.site_files import read_site
    from silodp.sites.site_setup import proposal_at, spent_so_far

    proposal = proposal_at(folder, path)
    console = answers(soft_wrap=True)
    with notes().status("Reading the records and working out the plan..."):
        config = read_site(folder)
        looked = look_at(config.site, config.data, proposal.schema)
        prepared = plan_of(config, proposal)
        check_parts(prepared.federations[0])
        account = account_of(prepared)
        if account is not None:
            account.check()
        asked = prepared.asked[0]
        content = {
            "method": asked.method,
            "rounds": asked.rounds,
            "silos": describe_plans(prepared),
            "warnings": prepared.warnings,
            "person": None,
        }
    silo = prepared.federations[0].silos[0]
    console.print(
        f"{safe(proposal.name)}: {len(proposal.sites)} sites, method {safe(asked.method)}, model "
        f"{safe(asked.model or '')}. Of {looked.rows} rows, {len(silo.train)} are for training and "
        f"{len(silo.test)} for testing. Nothing was sent."
    )
    _print_findings(looked)
    print_plan(plain(content))
    if account is not None:
        plan, policy = prepared.plans[0][0], prepared.policies[0][0]
        lifetime, delta = policy.lifetime
        before = spent_so_far(folder)
        console.print(
            f"This would spend epsilon {plan.epsilon:.4g} at delta {plan.delta:g}. Of a lifetime "
            f"allowance of {lifetime:g} at delta {delta:g}, {before:.4g} is spent so far."
        )
    else:
        console.print(
            "[bold yellow]Keys are for testing: whoever knows the seed knows the noise. Nothing is "
            "private, and nothing is charged.[/]"
        )
    if not yes and not typer.confirm("Take part with this plan?"):
        console.print("No consent was given: the site will refuse this proposal.")
        return
    consent(folder, proposal)
    console.print(f"Consent is written down. Next: silodp site start {safe(str(folder))}")


def _print_findings(looked: "Looked") -> None:
    """What is odd about the records: nothing of it is refused later, so that it is said now."""
    console = answers(soft_wrap=True)
    if not looked.findings:
        console.print("Every value fits the schema.")
        return
    title = f"What does not fit the schema (of {looked.rows} rows, {looked.usable} are used)"
    table = Table("column", "what", "rows", "counts as", "remedy", title=title)
    for one in looked.findings:
        table.add_row(
            safe(one.column), safe(one.what), str(one.rows), safe(one.counts_as), safe(one.remedy)
        )
    console.print(table)
    console.print(
        "This is for the site alone: the coordinator is not told, and no record will be refused "
        "because of it. Mend the records before consenting if it is not as it should be."
    )


@app.command("start")
def start(folder: Folder) -> None:
    """Starts the site: it connects to the coordinator and waits for jobs, in the background."""
    from silodp.sites.flare.processes import start_site
    from silodp.sites.site_files import read_site

    site = read_site(folder).site
    with notes().status(f"Connecting {safe(site)} to the coordinator..."):
        let_in = start_site(folder)
    said = "is connected" if let_in else "runs, but has not reached the coordinator yet"
    answers(soft_wrap=True).print(
        f"Site {safe(site)} {said}. See: silodp site status {safe(str(folder))}"
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
    as_json: AsJson = False,
) -> None:
    """Shows whether the site runs, where its jobs stand, and what is spent."""
    from silodp.sites.site_setup import site_status

    if as_json:
        print_json(site_status(folder))
        return
    if not watch:
        answers(soft_wrap=True).print(_status_table(site_status(folder)))
        return
    with Live(_status_table(site_status(folder)), console=answers(True)) as live:
        while True:
            time.sleep(0.5)
            live.update(_status_table(site_status(folder)))


def _status_table(told: dict[str, Any]) -> Table:
    running = "connected" if told["connected"] else "running" if told["running"] else "not running"
    title = f"{safe(told['site'])}: {running}; spent {told['spent']:.4g} of epsilon "
    title += f"{told['lifetime']:g}"
    table = Table("job", "method", "round", "state", title=title)
    for job in told["jobs"]:
        table.add_row(
            safe(job["job"]),
            safe(job["method"]),
            f"{job['round']} / {job['rounds']}",
            "finished" if job["finished"] else "under way",
        )
    return table


@app.command("ledger")
def ledger(folder: Folder, as_json: AsJson = False) -> None:
    """Shows every entry of the site's ledger; `silodp ledger` does more with its folder."""
    from silodp.sites.site_files import read_site

    ledger_commands.show(read_site(folder).ledger, None, as_json)


@app.command("models")
def models(folder: Folder, as_json: AsJson = False) -> None:
    """Lists the site's own models and how good each is on its own test records."""
    from silodp.sites.site_setup import site_models

    found = site_models(folder)
    if as_json:
        print_json(found)
        return
    if not found:
        raise SilodpError(f"{folder} has no model yet: they come when a job is finished.")
    table = Table("job", "method", "metric", "test", "epsilon", "model")
    table.columns[5].overflow = "fold"
    for one in found:
        epsilon, test = one["epsilon"], one["test"]
        table.add_row(
            safe(one["job"]),
            safe(one["method"]),
            one["metric"],
            "no test records" if test is None else f"{test:.5g}",
            epsilon if isinstance(epsilon, str) else f"{epsilon:.4g}",
            safe(one["model"]),
        )
    answers(soft_wrap=True).print(table)
