"""Text of others on the terminal."""

from rich.markup import escape

from silodp.names import shown


def safe(text: str) -> str:
    """For a console that takes markup: neither markup nor control characters in it do anything."""
    return escape(shown(text, None))
