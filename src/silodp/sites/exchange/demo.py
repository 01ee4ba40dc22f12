"""An exchange on one machine, to look at: every file is written, and every step is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.privacy.policy import Policy
from silodp.sites.consents import consent
from silodp.sites.exchange.coordinator_folder import CoordinatorFolder, make_coordinator
from silodp.sites.exchange.coordinator_rounds import CoordinatorJob
from silodp.sites.exchange.keys import fingerprint
from silodp.sites.exchange.signed_file import TO_SEND
from silodp.sites.exchange.site_folder import ExchangeSite, set_up_by_file
from silodp.sites.made_up import BUDGETS, DELTA, NAMES, fed_text, in_messages, made_up_table
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_files import read_site
from silodp.sites.site_setup import SiteSettings, site_models, standing

_SITES = 3


def run_demo(out: Path, messages: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Walks through all files of an exchange; returns a row for each site.

    Args:
      out: folder for everything.
      messages: messages of each site.
      say: called with each step, in words.
    """
    if out.exists() and any(out.iterdir()):
        raise SilodpError(f"{out} is there already: choose another --out.")
    names = NAMES[:_SITES]
    fed_file = write_file(out / "demo.toml", fed_text(names, None, in_messages(messages)))
    say(f"A coordinator and {_SITES} sites, each with a folder that the others cannot see.")
    say("They send each other the files in their folders to-send, by whatever way they have.")
    say("")
    say(f"The coordinator:  silodp exchange init {fed_file.name}")
    fed = make_coordinator(fed_file, out / "coordinator")
    say(f"  makes a key ({fingerprint(fed.public)}), and for each site an invitation: what all are")
    say("  to agree on, and the public half of that key.")
    sites = {name: _joined(out, fed, name, place, say) for place, name in enumerate(names)}
    joins = [site.write_join() for site in sites.values()]
    say(f"The coordinator:  silodp exchange merge coordinator {' '.join(p.name for p in joins)}")
    CoordinatorJob(fed).merge(joins)
    say("  knows now with which key each site signs. People compare the keys by phone.")
    for _ in range(messages):
        _round(out, fed, sites, say)
    _end(fed, sites, say)
    return [_row(site) for site in sites.values()]


def _joined(
    out: Path, fed: CoordinatorFolder, name: str, place: int, say: Callable[[str], None]
) -> ExchangeSite:
    invitation = fed.folder / TO_SEND / f"{name}.invitation"
    table = f"{name}.csv"
    records = out / "records" / table
    write_file(records, made_up_table(place).to_csv(index=False))
    epsilon = BUDGETS[place % len(BUDGETS)]
    # A lifetime of more than one job is charged as the rounds are answered, which can be seen.
    policy = Policy(epsilon, DELTA, 2 * epsilon, 2 * DELTA)
    data = DataAtSite(path=records.absolute())
    folder = set_up_by_file(invitation, out / name, SiteSettings(data, policy))
    consent(folder, fed.proposal)
    site = ExchangeSite(folder)
    say(
        f"{name}:  silodp exchange join {invitation.name} --data {table} --epsilon "
        f"{policy.epsilon:g} --delta {policy.delta:g}"
    )
    say(f"  looks at the plan, consents, and sends its public key ({fingerprint(site.public)}).")
    return site


def _round(
    out: Path,
    fed: CoordinatorFolder,
    sites: dict[str, ExchangeSite],
    say: Callable[[str], None],
) -> None:
    """One round; in the first one, what goes wrong on the way is shown as well."""
    asked = CoordinatorJob(fed).ask()
    say("")
    say("The coordinator:  silodp exchange ask coordinator")
    say(f"  writes the model so far for each site: {', '.join(map(_named, asked.files))}.")
    answers = []
    for question, (name, site) in zip(asked.files, sites.items(), strict=True):
        if asked.round == 0 and not answers:
            _altered_on_the_way(out, question, site, say)
        done = site.answer(question)
        spent = standing(read_site(site.folder))["spent"]
        say(f"{name}:  silodp exchange answer {name} {question.name}")
        say(f"  pays for it first (epsilon {spent:.3g} is spent), then writes {_named(done.path)}.")
        if asked.round == 0 and not answers:
            before = done.path.read_bytes()
            same = site.answer(question).path.read_bytes() == before
            more = standing(read_site(site.folder))["spent"] - spent
            which = "the same file" if same else "another file"
            say(f"  Lost in the mail? Asked again, it gives {which}, and pays {more:g} more.")
        answers.append(done.path)
    say(f"The coordinator:  silodp exchange merge coordinator {' '.join(p.name for p in answers)}")
    CoordinatorJob(fed).merge(answers)
    say("  merges what they wrote, and keeps none of it.")


def _altered_on_the_way(
    out: Path, question: Path, site: ExchangeSite, say: Callable[[str], None]
) -> None:
    """Shows what becomes of a file of which one bit has changed."""
    content = bytearray(question.read_bytes())
    content[-1] ^= 1
    altered = write_file(out / "altered" / question.name, bytes(content))
    say("One bit of a file has changed on its way:")
    try:
        site.answer(altered)
    except SilodpError as error:
        say(f"  Error: {error}")
    say(f"  {standing(read_site(site.folder))['spent']:g} is spent.")


def _end(
    fed: CoordinatorFolder, sites: dict[str, ExchangeSite], say: Callable[[str], None]
) -> None:
    asked = CoordinatorJob(fed).ask()
    say("")
    say("The coordinator:  silodp exchange ask coordinator")
    say(f"  writes the last files: {', '.join(map(_named, asked.files))}.")
    answers = []
    for question, (name, site) in zip(asked.files, sites.items(), strict=True):
        done = site.answer(question)
        answers.append(done.path)
        say(f"{name}:  silodp exchange answer {name} {question.name}")
        say("  makes the site's own model of it, which stays there, and says that it is done.")
    CoordinatorJob(fed).merge(answers)
    say("")


def _named(path: Path) -> str:
    return f"{path.name} ({path.stat().st_size} bytes)"


def _row(site: ExchangeSite) -> dict[str, Any]:
    config, (model,) = read_site(site.folder), site_models(site.folder)
    sent = list((site.folder / TO_SEND).iterdir())
    return {
        "site": config.site,
        "epsilon": config.policy.epsilon,
        "spent": standing(config)["spent"],
        "metric": model["metric"],
        "test": model["test"],
        "files": len(sent),
        "bytes": sum(path.stat().st_size for path in sent),
        "model": model["model"],
    }
