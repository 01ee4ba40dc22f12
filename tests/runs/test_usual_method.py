"""Which method a run takes that names none: by what is public of the data, and by other options."""

import dataclasses

import numpy as np
import pytest
from federations import small

import silodp
from silodp.runs.usual_method import hidden_moments

OWN = silodp.custom_model(
    lambda key: np.zeros(3, np.float32), lambda params, x: x @ params, "regression"
)


def chosen(federation, **options):
    """The method, and what is said of it."""
    prepared = silodp.plan(federation=federation, delta=1e-5, **({"epsilon": 3} | options))
    return prepared.specs[0].request.method, prepared.chosen


def bounded(task="regression", bound=8.0, **shape):
    return dataclasses.replace(small(task, **shape), feature_bound=bound)


def test_few_messages_suit_linear_models_of_bounded_features():
    name, said = chosen(bounded(sizes=(400, 300)))
    assert name == "fewround"
    assert said.startswith("fewround, because the model is linear")


@pytest.mark.parametrize(
    ("federation", "options", "reason"),
    [
        (bounded("multiclass"), {}, "chances of classes"),
        (bounded("binary", sizes=(400, 300)), {}, "chances of classes"),
        (bounded(bound=None), {}, "no public bounds"),
        (bounded(), {"custom_model": OWN}, "learns from steps"),
        (bounded(sizes=(20, 15)), {"epsilon": 0.1}, "noise would hide"),
    ],
)
def test_what_they_do_not_suit(federation, options, reason):
    name, said = chosen(federation, **options)
    assert name == "ebmtl"
    assert said.startswith("ebmtl, because ")
    assert reason in said


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"method": "ebmtl"}, "ebmtl"),
        ({"rounds": 3}, "ebmtl"),
        ({"lr": 0.1}, "ebmtl"),
        ({"messages": 2}, "fewround"),
        ({"method": "auto"}, "fewround"),
    ],
)
def test_other_options_say_which(options, name):
    federation = bounded(sizes=(400, 300))
    found, said = chosen(federation, **options)
    assert found == name
    assert (said is None) == (options != {"method": "auto"})


def test_the_choice_hangs_on_nothing_but_public_numbers():
    one, other = bounded(sizes=(400, 300)), bounded(sizes=(400, 300))
    changed = tuple(
        dataclasses.replace(silo, train=silodp.Records(np.zeros_like(silo.train.x), -silo.train.y))
        for silo in other.silos
    )
    other = dataclasses.replace(other, silos=changed)
    both = [silodp.plan(federation=f, epsilon=1, delta=1e-5) for f in (one, other)]
    assert len({plan.chosen for plan in both}) == 1
    assert len({hidden_moments(plan.plans[0], one) for plan in both}) == 1


def test_noise_hides_more_the_less_there_is():
    def hidden(epsilon, **shape):
        federation = bounded(**shape)
        prepared = silodp.plan(
            federation=federation, method="fewround", epsilon=epsilon, delta=1e-5
        )
        return hidden_moments(prepared.plans[0], federation)

    usual = hidden(1, sizes=(400, 300))
    assert hidden(2, sizes=(400, 300)) < usual < hidden(0.5, sizes=(400, 300))
    assert hidden(1, sizes=(40, 30)) == pytest.approx(10 * usual)
    assert hidden(np.inf, sizes=(400, 300)) == 0


def test_a_result_says_what_was_chosen():
    result = silodp.run(federation=bounded(sizes=(60, 50)), epsilon=5, delta=1e-5, seeds=1)
    assert result.method == result.options["method"] == "fewround"
    assert result.chosen.startswith("fewround, because")
