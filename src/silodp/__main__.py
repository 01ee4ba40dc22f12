"""`python -m silodp` is the `silodp` command."""

from silodp.cli import main

if __name__ == "__main__":
    main()
