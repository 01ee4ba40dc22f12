"""Sessions of runs that no ledger counts."""

from silodp.privacy.session import RunSession


def free_session(rounds, silos=("a", "b")):
    session = RunSession(None, silos, rounds)
    session.reserve("seed")
    return session
