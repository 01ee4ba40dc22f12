"""Methods of others are tried on made-up answers: what they get wrong is said before a record is
read."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from federations import small

import silodp
from silodp.methods import METHODS, get_method, warm_starts
from silodp.methods.base import add, weighted_mean
from silodp.methods.check import check_method, checked_schedule
from silodp.models.model import get_model

LINEAR = get_model("linear", "regression", (4,))

# Methods of messages run on the host: there is nothing to compile.
COMPILED = [name for name, entry in METHODS.items() if not entry.in_messages]


def method(**changed):
    """FedAvg with something changed."""
    sound = silodp.Method(
        schedule=lambda rounds: silodp.Schedule(rounds),
        init=lambda start: (start.params, start.params),
        broadcast=lambda server: server,
        local=lambda own, told, queries: (queries.train(told), told),
        merge=lambda server, messages, weights: add(server, weighted_mean(messages, weights)),
        personal=lambda own, told: own,
    )
    return sound._replace(**changed)


def check(built, model=LINEAR, rounds=10, **options):
    build = built if callable(built) else lambda **options: built
    check_method("mine", build, options, model, rounds)


def refused(*args, **kwargs):
    """The sentence."""
    with pytest.raises(silodp.SilodpError) as error:
        check(*args, **kwargs)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def asking(how):
    """A method whose silos ask as `how` does: own model, told, queries -> own model."""
    return method(local=lambda own, told, queries: (how(own, told, queries), own))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "linear") for name in (*COMPILED, *warm_starts())),
        ("mocha", "softmax"),
        ("ifca+mrmtl", "softmax"),
        ("ditto", "convnet"),
        ("finetune", "convnet"),
    ],
)
def test_our_own_methods_pass(name, kind):
    model = {
        "linear": LINEAR,
        "softmax": get_model("softmax", "multiclass", (4,), 3),
        "convnet": get_model("convnet", "multiclass", (28, 28, 1), 10),
    }[kind]
    entry = get_method(name)
    values = vars(silodp.RunRequest(method=name, rounds=10, server_lr=1.0))
    build = partial(entry.build, rounds=10, **entry.fixed_values(values))
    check_method(name, build, entry.traced_values(values), model, 10)


def test_what_is_changed_here_is_sound():
    check(method(learned=lambda server: {"model": (server, {"number": server[0]}), "none": 0.5}))
    twice = asking(lambda own, told, queries: queries.train(queries.train(own), told, 0.5))
    check(twice._replace(schedule=lambda rounds: silodp.Schedule(rounds, train=2)))


def average(models):
    return jax.tree.map(lambda leaf: leaf.mean(0), models)


@pytest.mark.parametrize(
    "how",
    {
        "vmap": lambda own, told, q: average(
            jax.vmap(q.train)(jax.tree.map(lambda a: jnp.stack([a, a]), own))
        ),
        "vmap over strengths": lambda own, told, q: average(
            jax.vmap(lambda s: q.train(own, told, s))(jnp.ones(3))
        ),
        "fori_loop": lambda own, told, q: jax.lax.fori_loop(0, 5, lambda i, p: q.train(p), own),
        "scan": lambda own, told, q: jax.lax.scan(
            lambda p, _: (q.train(p), None), own, jnp.arange(3)
        )[0],
        "while_loop": lambda own, told, q: jax.lax.while_loop(
            lambda p: jnp.sum(jax.tree.leaves(p)[0]) < 1, q.train, own
        ),
        "map": lambda own, told, q: average(
            jax.lax.map(q.train, jax.tree.map(lambda a: jnp.stack([a, a]), own))
        ),
        "cond": lambda own, told, q: jax.lax.cond(True, q.train, lambda p: p, own),
        "grad": lambda own, told, q: jax.grad(
            lambda p: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(q.train(p)))
        )(own),
        "jvp": lambda own, told, q: jax.jvp(q.train, (own,), (own,))[1],
        "jit": lambda own, told, q: jax.jit(q.train)(own),
    }.items(),
    ids=lambda item: item[0],
)
def test_asking_from_within_a_transformed_function(how):
    assert "asks a silo from within jax.vmap, jax.grad, jax.jit or a JAX loop" in refused(
        asking(how[1])
    )


def test_selecting_from_within_a_loop():
    def local(own, told, queries):
        both = jax.tree.map(lambda a: jnp.stack([a, a]), own)
        jax.lax.fori_loop(0, 3, lambda i, c: queries.select(both, c), jnp.int32(0))
        return own, own

    paid = method(local=local, schedule=lambda rounds: silodp.Schedule(rounds, select_rounds=2))
    assert "from within" in refused(paid)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda own, told, q: q.train(q.train(own)), "training pass 2 of a round"),
        (lambda own, told, q: [q.train(told), q.train(own)][0], "training pass 2 of a round"),
        (lambda own, told, q: [own, q.select(own, 0)][0], "selection 1 of a round"),
    ],
)
def test_asking_for_more_than_is_paid_for(how, said):
    text = refused(asking(how))
    assert said in text
    assert "correct the schedule" in text


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (lambda rounds: silodp.Schedule(1), "of as many rounds"),
        (lambda rounds: silodp.Schedule(rounds // 2), "of as many rounds"),
        (lambda rounds: 1, "`schedule` gives 1 for 10 rounds"),
        (lambda rounds: None, "`schedule` gives None"),
        (lambda rounds: silodp.Schedule(rounds, train=math.nan), "whole numbers"),
        (lambda rounds: silodp.Schedule(rounds, train=math.inf), "whole numbers"),
        (lambda rounds: silodp.Schedule(rounds, train=1.5), "whole numbers"),
        (lambda rounds: silodp.Schedule(rounds, select_rounds=math.nan), "whole numbers"),
        (lambda: silodp.Schedule(1), "`schedule` fails (TypeError"),
    ],
)
def test_a_schedule_that_does_not_pay_for_all_rounds(schedule, said):
    """What a plan would be made from: refused wherever it is asked for."""
    with pytest.raises(silodp.SilodpError) as error:
        checked_schedule("mine", lambda: method(schedule=schedule), 10)
    assert said in str(error.value)
    refused(method(schedule=schedule))


@pytest.mark.parametrize(
    "schedule",
    [
        lambda lam: lambda rounds: silodp.Schedule(rounds, train=2 if lam < 0.5 else 1),
        lambda lam: lambda rounds: silodp.Schedule(rounds, train=jnp.int32(lam)),
        lambda lam: (
            lambda rounds: silodp.Schedule(rounds, select_rounds=math.ceil((1 - lam) * rounds))
        ),
    ],
)
def test_a_schedule_that_depends_on_what_a_sweep_varies(schedule):
    """Noise is planned with one value, and questions would be counted with another."""
    text = refused(lambda lam: method(schedule=schedule(lam)), lam=1.0)
    assert "schedule" in text


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda own, told, q: q.train(own[None])[0], "`local` changes the model that it trains"),
        (lambda own, told, q: q.train(own.astype(jnp.float16)), "float16[5]"),
        (lambda own, told, q: q.train({"w": own})["w"], "['w'] float32[5]"),
        (lambda own, told, q: q.train(own, told[:2], 1.0), "the model that it pulls towards"),
        (lambda own, told, q: q.train(own, told, jnp.ones(3)), "a strength that is not one"),
    ],
)
def test_asking_with_what_is_no_model(how, said):
    assert said in refused(asking(how))


@pytest.mark.parametrize(
    "candidates", [lambda own: own, lambda own: jnp.stack([own[:2]]), lambda own: [own, own]]
)
def test_selecting_from_what_are_no_models(candidates):
    def local(own, told, queries):
        queries.select(candidates(own), jnp.int32(0))
        return own, own

    paid = method(local=local, schedule=lambda rounds: silodp.Schedule(rounds, select_rounds=2))
    assert "`local` changes the models that it selects from" in refused(paid)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"local": lambda own, told, q: (own[:3], own)}, "float32[5] becomes float32[3]"),
        ({"local": lambda own, told, q: (own.astype(int), own)}, "becomes int32[5]"),
        ({"local": lambda own, told, q: ((own, own), own)}, "float32[5] becomes [0] float32[5]"),
        ({"local": lambda own, told, q: ((), own)}, "`local` changes the silo's state"),
        ({"local": lambda own, told, q: (own, "done")}, "the message: no array, but a str"),
        ({"local": lambda own, told, q: (own, q)}, "the message: .train no array"),
        ({"local": lambda own, told, q: own}, "`local` fails"),
        (
            {
                "init": lambda start: (start.params, (start.params,)),
                "local": lambda own, told, q: (list(own), told),
            },
            "PyTreeDef((*,)) becomes PyTreeDef([*])",
        ),
        ({"merge": lambda server, m, w: m}, "`merge` changes the server's state"),
        ({"merge": lambda server, m, w: None}, "float32[5] becomes nothing"),
        ({"personal": lambda own, told: own[0]}, "`personal` changes the model"),
        ({"personal": lambda own, told: "model"}, "becomes no array, but a str"),
        ({"personal": lambda own, told: None}, "becomes nothing"),
        ({"personal": lambda own, told: jnp.sin}, "becomes no array"),
        ({"init": lambda params, key: (params, params)}, "`init` fails"),
        ({"init": lambda start: 1 / 0}, "`init` fails on made-up answers (ZeroDivisionError"),
        ({"broadcast": lambda server: server["w"]}, "`broadcast` fails"),
        ({"local": lambda own, told, q: own @ own[:2]}, "`local` fails"),
        ({"merge": lambda server, m, w: 1 / 0}, "`merge` fails"),
        ({"personal": lambda own, told: 1 / 0}, "`personal` fails"),
        ({"learned": lambda server: 1 / 0}, "`learned` fails"),
        ({"learned": lambda server: server}, "`learned` gives"),
        ({"learned": lambda server: None}, "`learned` gives NoneType: give a dictionary"),
        ({"learned": lambda server: {"a": {"b": "c"}}}, "['a']['b'] no array, but a str"),
    ],
)
def test_what_no_engine_could_run(changed, said):
    text = refused(method(**changed))
    assert "'mine'" in text
    assert said in text


@pytest.mark.parametrize(
    "changed",
    [
        lambda lam: {"local": lambda own, told, q: (q.train(own) if lam > 0 else own, own)},
        lambda lam: {"local": lambda own, told, q: (own * float(own[0]), own)},
        lambda lam: {
            "local": lambda own, told, q: (q.train(own) if q.noise.variance else own, own)
        },
        lambda lam: {"learned": lambda server: {"sign": jnp.ones(3) if server[0] > 0 else server}},
        lambda lam: {"init": lambda s: (s.params, s.params if s.place == 0 else s.params * 2)},
    ],
)
def test_deciding_by_what_is_not_known_when_compiled(changed):
    assert "fails when compiled" in refused(lambda lam: method(**changed(lam)), lam=1.0)


def test_wrong_arguments_of_build_and_an_option_that_runs_do_not_have(monkeypatch):
    assert "`build` fails" in refused(lambda rounds: method(), lam=1.0)
    entry = silodp.MethodEntry("mine", "a pass", lambda rounds, mu: method(), options=("mu",))
    monkeypatch.setitem(METHODS, "mine", entry)
    with pytest.raises(silodp.SilodpError, match="runs have no option 'mu'"):
        silodp.plan(federation=small(), method="mine", epsilon=1)


def test_a_division_by_an_option_is_no_matter():
    check(lambda lam: method(personal=lambda own, told: own / (1 / lam)), lam=2.0)
