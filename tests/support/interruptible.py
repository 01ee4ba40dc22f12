"""Processes that a test interrupts, however the tests were started."""

import sys

# A job in the background of a script ignores SIGINT, and so would all that it starts, until they
# say otherwise. (Not by `preexec_fn`: that is not safe in a process with threads, as JAX's is.)
_DEFAULT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def interruptible(*command):
    """The same command, in the same process, with SIGINT as in a terminal."""
    return [sys.executable, "-c", _DEFAULT, *map(str, command)]
