"""`silodp exchange`: a federation without a server, by files that people send each other."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.base.text import shown
from silodp.cli import site as site_commands
from silodp.cli.federation import Run
from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, notes, print_json, safe

app = typer.Typer(
    help="""Trains across sites by files, sent by mail, SFTP or stick: no server, no port.

    The coordinator: init, merge (join files), then ask and merge (answers) in turn. A site: join,
    then answer each file that comes.""",
    no_args_is_help=True,
)

Coordinator = Annotated[
    Path, typer.Argument(metavar="DIR", help="The coordinator's folder.", show_default=False)
]
Now = Annotated[
    bool, typer.Option("--now", help="Do not wait for the other sites, if these are a quorum.")
]


@app.command("init")
def init(
    file: Annotated[
        Path, typer.Argument(metavar="FED.toml", help="The federation file that sites agree on.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; else named after the file.")
    ] = None,
) -> None:
    """Makes the coordinator's folder and key, and an invitation to send to each site.

    The [server] of the file is not used.
    """
    from silodp.sites.exchange.coordinator_folder import make_coordinator
    from silodp.sites.exchange.keys import fingerprint

    made = make_coordinator(file, folder)
    console = answers(soft_wrap=True)
    for path in made.write_invitations():
        console.print(f"Send: {safe(str(path))}")
    console.print(f"Fingerprint of the coordinator: {fingerprint(made.public)}")
    console.print(
        "Read it to each site by phone: a site that sees another one has an invitation from "
        "somebody else. There: silodp exchange join INVITATION."
    )
    console.print(f"Next: silodp exchange merge {safe(str(made.folder))} FILES, the join files")


@app.command("join")
@site_commands.takes_site_options
def join(
    given: dict[str, Any],
    invitation: Annotated[
        Path, typer.Argument(metavar="INVITATION", help="The file from the coordinator.")
    ],
) -> None:
    """Makes the site's folder and key, shows the plan, asks for consent, writes the join file.

    The counterpart of `silodp site init` for a site that answers by files. Nothing is charged, and
    the join file holds nothing but the site's public key.
    """
    from silodp.sites.exchange.keys import fingerprint
    from silodp.sites.exchange.site_folder import (
        ExchangeSite,
        read_invitation,
        set_up_by_file,
    )

    invited, console = read_invitation(invitation), answers(soft_wrap=True)
    console.print(
        f"{safe(invited.proposal.name)} invites {safe(invited.site)}. Fingerprint of the "
        f"coordinator: {fingerprint(invited.public)}"
    )
    own = site_commands.make_site_folder(
        lambda settings: set_up_by_file(invitation, given["folder"], settings),
        invited.site,
        given,
    )
    if own is None or not site_commands.ask_consent(own, None, given["yes"]):
        return
    site = ExchangeSite(own)
    console.print(f"Send: {safe(str(site.write_join()))}")
    console.print(f"Fingerprint of this site: {fingerprint(site.public)}")
    console.print(
        "Compare both fingerprints with the coordinator by phone, with a number that did not come "
        "with the files."
    )
    console.print(f"Next: silodp exchange answer {safe(str(own))} FILE, what the coordinator sends")


@app.command("ask")
def ask(
    folder: Coordinator,
    run: Run = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Write files that were lost again: they are the same.")
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Writes one file for each site: the next round, or in the end what makes its own model."""
    from silodp.sites.exchange.coordinator_folder import CoordinatorFolder
    from silodp.sites.exchange.coordinator_rounds import CoordinatorJob
    from silodp.sites.exchange.signed_file import round_words

    fed = CoordinatorFolder(folder)
    with notes().status("Working out what to ask..."):
        asked = CoordinatorJob(fed, run).ask(again, now)
    if as_json:
        print_json(
            {
                "round": asked.round,
                "rounds": fed.rounds,
                "files": asked.files,
                "missing": asked.missing,
            }
        )
        return
    console = answers(soft_wrap=True)
    for path in asked.files:
        console.print(f"Send: {safe(str(path))} ({_size(path)})")
    words = round_words(asked.round, fed.rounds)
    without = f", without {safe(', '.join(asked.missing))}" if asked.missing else ""
    console.print(f"This is {words}{without}. At a site: silodp exchange answer DIR FILE.")
    console.print(f"Next: silodp exchange merge {safe(str(folder))} FILES, the answers")


@app.command("answer")
def answer(
    folder: site_commands.Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file that the coordinator sent.")
    ],
    as_json: AsJson = False,
) -> None:
    """Answers a file of the coordinator's with one to send back; the last one makes the model.

    What is released is charged first. The same file again gets the same answer, and nothing more
    is charged.
    """
    from silodp.sites.exchange.site_folder import ExchangeSite
    from silodp.sites.site_files import read_site
    from silodp.sites.site_setup import site_models, standing

    site = ExchangeSite(folder)
    with notes().status("Working out the answer..."):
        done = site.answer(file)
    if done.refusal is not None:
        raise SilodpError(
            f"{folder} refuses {done.words} ({done.refusal}): mend that and answer again, or send "
            f"{done.path}, which says so, for the others to go on without this site."
        )
    account = standing(read_site(folder))
    own = [one for one in site_models(folder) if one["job"] == done.job and done.kind == "finish"]
    if as_json:
        print_json(
            {
                "kind": done.kind,
                "file": done.path,
                "spent": account["spent"],
                "lifetime": account["lifetime"],
                "model": own[0]["model"] if own else None,
            }
        )
        return
    console = answers(soft_wrap=True)
    console.print(f"Send: {safe(str(done.path))} ({_size(done.path)})")
    if done.words:
        console.print(
            f"It answers {done.words}. Of the lifetime allowance of epsilon "
            f"{account['lifetime']:g}, {account['spent']:.4g} is spent."
        )
    for one in own:
        console.print(
            f"This site's own model: {safe(one['model'])} (how good it is: silodp site models "
            f"{safe(str(folder))})"
        )


@app.command("merge")
def merge(
    folder: Coordinator,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="What sites sent back: join files and answers."),
    ] = None,
    run: Run = 1,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Takes what sites sent back; merges a round once all who were asked have answered.

    Takes all of the files, or refuses one and takes none.
    """
    from silodp.sites.exchange.coordinator_folder import CoordinatorFolder
    from silodp.sites.exchange.coordinator_rounds import CoordinatorJob
    from silodp.sites.exchange.signed_file import round_words

    fed = CoordinatorFolder(folder)
    if not files and not now:
        raise SilodpError("FILES are missing: give the files that sites sent back.")
    with notes().status("Checking and merging..."):
        merged = CoordinatorJob(fed, run).merge(files or [], now)
    if as_json:
        print_json({**merged._asdict(), "rounds": fed.rounds})
        return
    console = answers(soft_wrap=True)
    for site, known_by in merged.joined.items():
        console.print(f"{safe(site)} has joined. Its fingerprint: {known_by}")
    if merged.joined:
        console.print(
            "Compare each fingerprint with the site by phone, with a number that did not come with "
            "the file."
        )
    words = round_words(merged.round, fed.rounds)
    for site, why in merged.refused.items():
        console.print(f"{safe(site)} refuses {words}: {safe(why)}")
    here = safe(str(folder))
    if merged.merged:
        console.print(_statuses(merged.sites, f"Merged: {words}"))
    if merged.finished:
        console.print("Every site has its model. That is all.")
    elif merged.waiting:
        console.print(f"No answer to {words} yet: {safe(', '.join(merged.waiting))}")
    elif missing := [site for site in fed.proposal.sites if site not in fed.joined()]:
        console.print(f"Not joined yet: {safe(', '.join(missing))}")
    else:
        console.print(f"Next: silodp exchange ask {here}")


@app.command("status")
def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The coordinator's folder, or a site's.")
    ],
    as_json: AsJson = False,
) -> None:
    """Shows who has joined and with which key, where jobs stand, and whose answers are missing."""
    from silodp.sites.exchange.coordinator_folder import CoordinatorFolder, is_coordinators
    from silodp.sites.exchange.coordinator_rounds import status_of
    from silodp.sites.exchange.site_folder import ExchangeSite

    console = answers(soft_wrap=True)
    if not is_coordinators(folder):
        own = ExchangeSite(folder).status()
        if as_json:
            print_json(own)
            return
        console.print(
            f"{safe(own['federation'])}: site {safe(own['site'])}, fingerprint "
            f"{own['fingerprint']}. Coordinator: {own['coordinator']}"
        )
        console.print(site_commands.status_table(own))
        site_commands.print_problems(own["problems"])
        return
    own = status_of(CoordinatorFolder(folder))
    if as_json:
        print_json(own)
        return
    console.print(f"{safe(own['federation'])}: coordinator, fingerprint {own['fingerprint']}")
    table = Table("site", "fingerprint", *(f"run {job['run']}" for job in own["jobs"]))
    for site, known_by in own["sites"].items():
        places = (_place(site, job) for job in own["jobs"])
        table.add_row(safe(site), known_by or "not joined", *places)
    console.print(table)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of an exchange.")],
    as_json: AsJson = False,
) -> None:
    """Shows what a file holds, number by number, for who wants to see it before it is sent.

    Its signature is checked where it is taken: by `answer` and `merge`.
    """
    from silodp.sites.exchange.contents import contents_of

    held = contents_of(file)
    if as_json:
        print_json(held)
        return
    console = answers(soft_wrap=True)
    messages = held.pop("messages")
    for name, value in held.items():
        console.print(f"{name}: {_in_a_line(value)}")
    for message in messages:
        arrays = message.pop("arrays")
        words = (f"{name} {_in_a_line(value)}" for name, value in message.items() if value != "")
        console.print(f"message: {'; '.join(words)}")
        for array in arrays:
            shape = " x ".join(map(str, array["shape"])) or "one"
            numbers = _in_a_line(array["numbers"], longest=300)
            console.print(f"  {shape} {array['dtype']}: {numbers}")


@app.command("demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything.")] = Path("runs/exchange"),
    messages: Annotated[
        int, typer.Option(help="Messages of each site: 1, 2, 3 or 5.", min=1, max=5)
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Walks through an exchange on one machine: a coordinator, three sites, and every file."""
    from silodp.sites.exchange.demo import run_demo

    rows = run_demo(out, messages, say=lambda words: notes(True).print(safe(words)))
    if as_json:
        print_json(rows)
        return
    table = Table("site", "epsilon", "spent", f"test {rows[0]['metric']}", "files sent", "bytes")
    for row in rows:
        table.add_row(
            safe(row["site"]),
            f"{row['epsilon']:g}",
            f"{row['spent']:.4g}",
            f"{row['test']:.5f}",
            str(row["files"]),
            str(row["bytes"]),
        )
    console = answers(soft_wrap=True)
    console.print(table)
    console.print(
        "Each site has a model of its own. The errors were read in the sites' folders: the "
        f"coordinator never learns them. All of it is in {safe(str(out))}"
    )


def _statuses(sites: Any, title: str) -> Table:
    table = Table("site", "state", title=title)
    for site, words in sites.items():
        table.add_row(safe(site), safe(words))
    return table


def _place(site: str, job: dict[str, Any]) -> str:
    """Where a site stands in a job."""
    from silodp.sites.exchange.signed_file import round_words

    words = round_words(job["round"], job["rounds"])
    if site in job["finished"]:
        return "finished"
    if site in job["waiting"]:
        return f"{words}: asked"
    return f"{words}: {'answered' if site in job['answered'] else 'not asked'}"


def _in_a_line(value: Any, longest: int | None = None) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return escape(shown(text, longest))


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size} bytes" if size < 10_000 else f"{size / 1000:.0f} kB"
