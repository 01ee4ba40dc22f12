"""The `silodp` command, also as `python -m silodp`."""

import sys


def main() -> None:
    """Entry point: hands over to the command line, which takes a moment to load."""
    try:
        from silodp import cli
    except KeyboardInterrupt:  # what would tell it is not loaded yet
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
