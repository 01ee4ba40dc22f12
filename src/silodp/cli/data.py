"""`silodp data`: lists and downloads data sets, and shows what is in them or in a user's own."""

import typer

from silodp.cli import data_files, data_show

app = typer.Typer(
    help="Lists data sets, gets them, shows what is in them, and checks your own.",
    no_args_is_help=True,
)
app.command("list")(data_files.list_sources)
app.command("get")(data_files.get)
app.command("check")(data_show.check)
app.command("show")(data_show.show)
