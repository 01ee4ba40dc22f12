"""The one kind of error that a user can cause and can mend."""


class SilodpError(ValueError):
    """Something the user gave is wrong: one sentence that names place, field and remedy.

    The command line prints it without a traceback and ends with exit code 2.
    """
