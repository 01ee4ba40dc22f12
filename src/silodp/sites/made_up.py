"""Made-up hospitals, to try silodp out: how many days does a patient stay?

They differ, each has a budget of its own, and none has many records.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

NAMES = (
    *("north", "south", "east", "west", "harbour", "hill"),
    *("lake", "forest", "valley", "river", "castle", "garden"),
)
BUDGETS = (1.0, 3.0, 6.0)
DELTA = 1e-4
_RECORDS = (160, 300)
_WARDS = ("medical", "surgical", "cardiac")

_FED = """\
name = "Demo"
sites = [{sites}]

{server}[training]
{training}

[schema]
target = "days"
task = "regression"
range = [0, 30]
bounds = {{age = [0, 110], severity = [0, 10], earlier_stays = [0, 20]}}
levels = {{ward = ["medical", "surgical", "cardiac"]}}

[rules]
deadline = 60
"""


def in_rounds(rounds: int) -> str:
    """What is agreed on for so many rounds of training, for sites that a server reaches."""
    return f'method = "ebmtl"\nrounds = {rounds}\nbatch_size = 32\nlr = 0.1\nweights = "uniform"'


def in_messages(messages: int) -> str:
    """What is agreed on for so many messages, for sites that exchange files."""
    return f'method = "fewround"\nmessages = {messages}'


def fed_text(sites: Sequence[str], port: int | None, training: str) -> str:
    """The fed.toml of the made-up hospitals; without a port, for those that exchange files."""
    names = ", ".join(f'"{name}"' for name in sites)
    server = "" if port is None else f'[server]\nhost = "localhost"\nport = {port}\n\n'
    return _FED.format(sites=names, server=server, training=training)


def made_up_table(place: int, differ: float = 0.1) -> pd.DataFrame:
    """A hospital's records; the model behind the length of a stay differs a little from others'."""
    rng = np.random.default_rng(100 + place)
    number = int(rng.integers(*_RECORDS))
    age, severity = rng.uniform(18, 100, number), rng.uniform(0, 10, number)
    earlier = rng.poisson(2, number).clip(0, 20)
    ward = rng.choice(_WARDS, number)
    habits = rng.normal(0, differ, 4)
    days = (
        2
        + (0.06 + 0.02 * habits[0]) * age
        + (0.8 + habits[1]) * severity
        + (0.4 + 0.3 * habits[2]) * earlier
        + (2 + 4 * habits[3]) * (ward == "cardiac")
        + rng.normal(0, 1, number)
    )
    return pd.DataFrame(
        {
            "patient": [f"{place}-{i}" for i in range(number)],
            "age": age.round(1),
            "severity": severity.round(2),
            "earlier_stays": earlier,
            "ward": ward,
            "days": days.clip(0, 30).round(2),
        }
    )
