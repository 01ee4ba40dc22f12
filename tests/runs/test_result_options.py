"""What a result says it was asked for: every option, as resolved, in one form for good."""

import silodp

# Written by the version before options were declared once.
OPTIONS = {
    "accountant": "best",
    "batch_size": 32,
    "clip": 1.0,
    "clusters": 2,
    "data": "synthetic",
    "delta": 0.0001,
    "engine": "simulation",
    "entropy": "seed",
    "epochs": 1,
    "epsilon": 3.0,
    "evaluate_every": 3,
    "finetune_fraction": 0.5,
    "first_seed": 0,
    "lam": 1.0,
    "lifetime_filter": "renyi",
    "lr": 0.2,
    "max_silos_per_subject": 1,
    "method": "meanpull",
    "metric_bound": 1.0,
    "metric_share": 0.1,
    "model": "linear",
    "optimiser": "sgd",
    "personal_passes": 1,
    "preprocess": "none",
    "regulariser": "outside",
    "relation": "add-remove",
    "rounds": 3,
    "sampling": "poisson",
    "seeds": 1,
    "select_bound": 1.0,
    "select_fraction": 0.1,
    "select_mechanism": "exponential",
    "select_score": "loss",
    "select_share": 0.03,
    "server_lr": 0.01,
    "server_momentum": 0.9,
    "server_optimiser": "fedadam",
    "shared_passes": 1,
    "silo_lam": {"silo-01": 2.0, "silo-02": 1.0},
    "silos": 2,
    "small_silos": "refuse",
    "statistics_share": 0.0,
    "weights": "records",
}
REQUEST = {
    **{"data": "synthetic", "silos": 2, "rounds": 3, "method": "meanpull", "epsilon": 3.0},
    **{"metric_share": 0.1, "server_optimiser": "fedadam", "silo_lam": {"silo-01": 2.0}},
}


def test_the_options_of_a_result_are_what_they_were():
    result = silodp.run(**REQUEST)
    assert result.options == OPTIONS
    assert result.as_json()["options"] == OPTIONS
