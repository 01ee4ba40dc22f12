"""What each accountant charges, side by side."""

from silodp.privacy.accounting.accountant import epsilon_of, supporting


def epsilons_of(event, delta, relation="add-remove"):
    """By name; None where the accountant does not know every step."""
    known = supporting(event, relation)
    return {
        name: epsilon_of(event, delta, name, relation) if name in known else None
        for name in ("pld", "rdp")
    }
