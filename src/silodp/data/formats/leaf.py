"""Silos from json as the LEAF benchmark lays it out.

    {"users": [name, ...], "num_samples": [n, ...],
     "user_data": {name: {"x": [[number, ...], ...], "y": [label, ...]}, ...}}

A label may stand in brackets of its own.
"""

import json
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.federation import Records
from silodp.data.formats.bounded import read_bounded

MAX_BYTES = 1 << 28  # the paper's largest set would take 100 MB in this form


def read_leaf(path: Path, remedy: str) -> dict[str, Records]:
    """The records of each user, who is a silo; `remedy` ends every error."""
    content = _parse(path, remedy)
    users, counts, data = (content.get(key) for key in ("users", "num_samples", "user_data"))
    if not isinstance(users, list) or not isinstance(counts, list) or not isinstance(data, dict):
        raise SilodpError(
            f"{path} has not the lists users and num_samples and the object user_data: {remedy}."
        )
    if not users or len(users) != len(counts) or not _are_numbers(counts):
        raise SilodpError(
            f"{path} has {len(users)} users, but num_samples are not as many numbers: {remedy}."
        )
    # Names go into messages and tables; a lone surrogate, for one, cannot even be printed.
    if not all(isinstance(user, str) and user and user.isprintable() for user in users):
        raise SilodpError(f"{path} has users whose names are not printable text: {remedy}.")
    if len(set(users)) != len(users) or set(users) != set(data):
        raise SilodpError(
            f"{path} names {len(users)} users, but user_data is of {len(data)}, or others: each "
            f"must be named once; {remedy}."
        )
    silos = {}
    for user, count in zip(users, counts, strict=True):
        silos[user] = _records(f"{path}, silo {user!r}:", data[user], remedy)
        if len(silos[user]) != count:
            raise SilodpError(
                f"{path}, silo {user!r}: num_samples is {count:g}, but x has {len(silos[user])} "
                f"records: {remedy}."
            )
    widths = {records.x.shape[1]: user for user, records in silos.items()}
    if len(widths) > 1:
        one, other = list(widths.items())[:2]
        raise SilodpError(
            f"{path}, silo {other[1]!r}: x has {other[0]} features, but silo {one[1]!r} has "
            f"{one[0]}: {remedy}."
        )
    return silos


def _parse(path: Path, remedy: str) -> dict:
    def refuse(word: str):
        raise ValueError(f"it holds {word}")

    try:
        # Whole numbers as floats: one of a thousand digits becomes infinite, and is then refused.
        content = json.loads(
            read_bounded(path, MAX_BYTES, remedy), parse_int=float, parse_constant=refuse
        )
    except SilodpError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SilodpError(f"{path} cannot be read as json ({reason}): {remedy}.") from error
    if not isinstance(content, dict):
        raise SilodpError(f"{path} is json, but not an object of users: {remedy}.")
    return content


def _records(where: str, data: object, remedy: str) -> Records:
    if not isinstance(data, dict) or not {"x", "y"} <= data.keys():
        raise SilodpError(f"{where} user_data has no x and y: {remedy}.")
    x, y = data["x"], data["y"]
    if not _is_matrix(x):
        raise SilodpError(
            f"{where} x is not a list of records with as many numbers each: {remedy}."
        )
    # Labels in brackets of their own, if those of the first are.
    if isinstance(y, list) and y and isinstance(y[0], list):
        y = [label[0] if isinstance(label, list) and len(label) == 1 else None for label in y]
    if not isinstance(y, list) or not _are_numbers(y):
        raise SilodpError(f"{where} y is not a list of one number a record: {remedy}.")
    if len(x) != len(y):
        raise SilodpError(f"{where} x has {len(x)} records, but y has {len(y)}: {remedy}.")
    return Records(np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))


def _is_matrix(x: object) -> bool:
    return (
        isinstance(x, list)
        and bool(x)
        and all(isinstance(record, list) and len(record) == len(x[0]) > 0 for record in x)
        and all(map(_are_numbers, x))
    )


def _are_numbers(values: list) -> bool:
    # By their types, since numpy would take "1" and true for numbers, and null for NaN.
    return all(isinstance(value, float) for value in values)
