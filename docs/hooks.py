"""What the site has beyond the pages of docs/: commands as they are, and what lies beside docs/.

Pages link to `../examples/own_data.py` and the like, which is right wherever the repository is
browsed. The site has no such files: it gets a page for each, and links are turned to these.
"""

import ast
import json
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COMMANDS = "<!-- commands -->"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # pages of the repository's own folder
_CELL = re.compile(r"^# %%.*\n?", re.MULTILINE)
_COMMAND = re.compile(r"^((?:python|pip|silodp) .*)$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each example, the changelog, how to contribute, and how to report a leak."""
    from mkdocs.structure.files import File

    for path in examples():
        page = f"examples/{path.relative_to(ROOT / 'examples').with_suffix('.md')}"
        files.append(File.generated(config, page, content=_example_page(path)))
    for path in notebooks():
        page = f"examples/{path.with_suffix('.md').name}"
        files.append(File.generated(config, page, content=_notebook_page(path)))
    for path in (ROOT / name for name in BESIDE):
        text = path.read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, path.name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Writes the commands into their page, and turns links that lead out of docs/."""
    if page.file.src_uri == "cli.md":
        markdown = markdown.replace(COMMANDS, "\n".join(command_lines()))
    markdown = re.sub(r"\]\(\.\./examples/([\w/]+)\.(?:py|ipynb)\)", r"](examples/\1.md)", markdown)
    markdown = re.sub(
        r"\]\(\.\./examples/own_method/?\)", "](examples/own_method/mixture.md)", markdown
    )
    markdown = re.sub(r"\]\(\.\./examples/?\)", "](examples.md)", markdown)
    for name in BESIDE:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return markdown


def examples() -> list[Path]:
    """The scripts of examples/."""
    return sorted((ROOT / "examples").rglob("*.py"))


def notebooks() -> list[Path]:
    """The notebooks of examples/."""
    return sorted((ROOT / "examples").glob("*.ipynb"))


def _notebook_page(path: Path) -> str:
    """A notebook as a page: text and code in turn."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _example_page(path: Path) -> str:
    """A script as a page: what it is about, then text and code in turn, cell by cell."""
    source = path.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(source)) or ""
    _, _, code = source.partition('"""\n\n')
    parts = [f"# {path.name}", _COMMAND.sub(r"    \1", about)]
    for cell in _CELL.split(code):
        lines = cell.strip().splitlines()
        words = list(takewhile(lambda line: line.startswith("#"), lines))
        parts.append("\n".join(line.removeprefix("#").strip() for line in words))
        rest = "\n".join(lines[len(words) :]).strip()
        parts.append(f"```python\n{rest}\n```" if rest else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def command_lines() -> Iterator[str]:
    """Every command with its options, in markdown, from the command line itself."""
    import typer.main

    from silodp.cli import app

    top: Any = typer.main.get_command(app)
    for name, command in top.commands.items():
        yield from _described(command, f"silodp {name}", level=2)


def _described(command: Any, name: str, level: int) -> Iterator[str]:
    """A command, or a group of them, under a heading of its own."""
    yield f"{'#' * level} {name}\n"
    yield "\n".join(line.strip() for line in (command.help or "").splitlines())
    if hasattr(command, "commands"):
        for below, one in command.commands.items():
            yield from _described(one, f"{name} {below}", level + 1)
        return
    arguments = [_metavar(p) for p in command.params if p.param_type_name == "argument"]
    yield "\n    " + " ".join([name, *arguments, "[OPTIONS]"]) + "\n"
    rows = [row for parameter in command.params for row in _row(parameter)]
    yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""]) if rows else ""


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name).strip("{}[].").upper()
    return f"{name}..." if argument.nargs != 1 else name


def _row(parameter: Any) -> Iterator[str]:
    """The row of an option or argument in its command's table."""
    text, default = getattr(parameter, "help", None), parameter.default
    if not text:
        return
    names = parameter.opts if parameter.param_type_name == "option" else [_metavar(parameter)]
    plain = isinstance(default, (str, int, float, Path)) and not isinstance(default, bool)
    if plain and parameter.show_default:
        text += f" (default: {default})"
    text = " ".join(text.split()).replace("|", "\\|")
    yield f"| {', '.join(f'`{name}`' for name in names)} | {text} |"
