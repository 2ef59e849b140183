"""What a composition means, for the parts and pairs of parts that have been wrong before."""

import pytest

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.attacks import Attack
from algorithms.parts.compressors import Compressor
from algorithms.parts.samplers import Sampler
from tests.meanings import minimax
from tests.meanings.comparison import compare
from tests.meanings.compositions import (
    ATTACKS,
    BULYAN,
    COLLUDING,
    INCREMENTS,
    MINIMAX,
    MOMENTS,
    PROJECTED,
    ROBUST,
    ROOTED,
    SETS,
    STEPS,
    WEIGHERS,
    composed,
)
from tests.sets import quick

ALGORITHMS = (
    "fedavg",
    "fedprox",
    "moon",
    "fedbn",
    "scaffold",
    "fedpvr",
    "feddyn",
    "fednova",
    "qfedavg",
    "ditto",
    "local",
)
SERVERS = ("fedavgm", "fedadam", "fedadamw", "fedyogi", "fedadagrad")
UNKNOWN = {
    AlgorithmOptions: "",
    Aggregator: "",
    Attack: "",
    Compressor: "bf16 fp16",
    Sampler: "",
}
"""Parts that the model does not know."""
KNOWN = {
    AlgorithmOptions: {
        *ALGORITHMS,
        *SERVERS,
        *minimax.NAMES,
        "clustered",
        "drdsgd",
        "fedaa",
        "feddual",
        "lp_proj",
        "scallion",
        "server_only",
        "synchronous",
    },
    Aggregator: {
        "barycenter",
        "bulyan",
        "fltrust",
        "mean",
        "weighted_mean",
        *(r if isinstance(r, str) else r["name"] for r in ROBUST),
    },
    Attack: {"none", *ATTACKS, *COLLUDING},
    Compressor: {"none", "top_k", "random_k", "qsgd"},
    Sampler: {"uniform", "weighted", "cyclic"},
}

NORMED = ("model", "tiny_norm")
THREE = ("local.steps", 3)
BOTH_WAYS = [
    ("compression.uplink", {"name": "top_k"}),
    ("compression.downlink", {"name": "random_k", "fraction": 0.3}),
]
FORGED = ("attack", {"name": "gaussian", "fraction": 0.4, "tau": 1.0, "buffers": True})
IN_LEAGUE = ("attack", {"name": "ipm", "fraction": 0.4, "buffers": True, "probes": True})


SEEDS = (0, 1, 2)


def agree(*pieces):
    """On the first of some seeds on which nothing hangs on the order of additions: for which that
    is so is another matter on another processor.
    """
    found = (compare(*composed([THREE, ("seed", seed), *pieces])) for seed in SEEDS)
    assert next((one for one in found if one != "undecided"), "undecided") == "agree"


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "local"])
def test_compressed_both_ways(algorithm):
    """Weights, statistics, all memories, replicas and every byte, at each end of a lossy link."""
    agree(("algorithm.name", algorithm), NORMED, *BOTH_WAYS)


@pytest.mark.parametrize("algorithm", MINIMAX, ids=str)
def test_games_over_a_lossy_link(algorithm):
    """λ, and w' of the round's middle, which was measured from elsewhere than the update."""
    all_of_them = [("cohort", 1.0), ("local.steps", 1)] if algorithm["name"] == "afl" else []
    agree(("algorithm", algorithm), NORMED, ("output", "last"), *all_of_them, *BOTH_WAYS)


@pytest.mark.parametrize("chosen", SETS, ids=str)
@pytest.mark.parametrize("game", quick(["drdm", "scaffpd"], "drdm"))
def test_sets_of_mixtures(game, chosen):
    """Steps of λ that fall with the rounds, and are large enough for each set's edge."""
    falling, rate = {"start": 2.0, "power": 0.5}, "gamma" if game == "drdm" else "dual_lr"
    agree(("algorithm", {"name": game, "uncertainty": chosen, rate: falling}), ("output", "last"))


@pytest.mark.parametrize("algorithm", INCREMENTS, ids=str)
def test_control_variates_move_by_what_arrives(algorithm):
    coarse = ("compression.uplink", {"name": "random_k", "fraction": 0.3, "error_feedback": False})
    agree(("algorithm", algorithm), NORMED, coarse, BOTH_WAYS[1])


@pytest.mark.parametrize("algorithm", PROJECTED, ids=str)
def test_turns_of_a_model_and_its_projection(algorithm):
    """Of which the last of a round is short."""
    late = ("cohort", 3), ("attack", {"name": "sign_flip", "fraction": 0.4})
    agree(("algorithm", algorithm), NORMED, *late, *BOTH_WAYS)


@pytest.mark.parametrize("by_samples", [False, True])
def test_a_loss_in_two_parts_and_barycenters_of_the_last_layers(by_samples):
    """Over passes of unequal length, whose accuracies decide the parts."""
    aggregator = {"name": "barycenter", "by_samples": by_samples}
    agree(
        ("algorithm", {"name": "feddual", "kl_scale": 200.0}), ("aggregator", aggregator),
        ("model", {"name": "mlp", "hidden": [7]}), ("data.partition", "zipf"),
        ("local.steps", None), ("local.epochs", 3), BOTH_WAYS[1],
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forged_and_compressed(algorithm):
    model = ("model", "linear") if algorithm == "fedbn" else NORMED
    # nothing that "local" sends is compressed: refused
    compressed = BOTH_WAYS[:1] if algorithm != "local" else ()
    agree(("algorithm.name", algorithm), model, IN_LEAGUE, *compressed)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "qfedavg"])
def test_statistics_that_stay_with_late_clients(algorithm):
    """q-FedAvg's is below."""
    late = () if algorithm == "local" else (("cohort", 2),)
    agree(("algorithm.name", algorithm), NORMED, ("buffers", "local"), *late)


@pytest.mark.parametrize("algorithm", SERVERS)
def test_steps_of_the_server(algorithm):
    agree(("algorithm.name", algorithm), FORGED)


@pytest.mark.parametrize("aggregator", quick(ROBUST, "median", "geometric_median"), ids=str)
def test_rows_of_private_clients_and_a_client_whose_numbers_are_none(aggregator):
    agree(
        ("algorithm.name", "fedbn"), NORMED, ("aggregator", aggregator), ("cohort", 5),
        ("diverging", 2), ("non_finite", "drop"), BOTH_WAYS[0],
    )  # fmt: skip


def test_what_is_nearest_to_the_median_of_those_who_are_picked():
    """Of seven one may be malicious; none any more, once one has been left out."""
    agree(*BULYAN, ("cohort", 7), FORGED, *BOTH_WAYS)
    agree(*BULYAN, ("cohort", 7), ("diverging", 2), ("non_finite", "drop"), NORMED)


def test_a_server_that_trains_beside_its_clients():
    agree(
        ("algorithm.name", "fedbn"), NORMED, ("aggregator", "fltrust"), *ROOTED, *BOTH_WAYS,
        ("round_end", {"name": "fda_async", "theta": 0.1, "stragglers": 0.4}), FORGED,
    )  # fmt: skip


@pytest.mark.parametrize("agent", WEIGHERS, ids=lambda one: one["name"])
def test_the_nearest_are_weighed_by_rows_of_the_server(agent):
    """Some of whom lie, or have lost their numbers."""
    select = {"name": "fedaa", "agent": agent, "select": 0.6, "per_class": True}
    agree(("algorithm", select), NORMED, *ROOTED, ("cohort", 5), FORGED, *BOTH_WAYS)
    last = {**select, "candidates": 0.8, "layers": "last_hidden", "reward": "change"}
    agree(
        ("algorithm", last), ("model", {"name": "mlp", "hidden": [7]}), *ROOTED, ("cohort", 1.0),
        ("diverging", 1), ("non_finite", "keep"), ("server_optimizer", STEPS[1]),
    )  # fmt: skip


@pytest.mark.parametrize("buffers", ["aggregate", "local", "exclude"])
def test_a_server_that_trains_alone(buffers):
    moments = ("local.optimizer", MOMENTS[0]), ("local.optimizer_state", "keep")
    agree(("algorithm.name", "server_only"), NORMED, *ROOTED, ("buffers", buffers), *moments)


@pytest.mark.parametrize("attack", COLLUDING)
def test_what_colluders_agree_on(attack):
    agree(("attack", {"name": attack, "fraction": 0.4, "probes": True}), ("cohort", 5), NORMED)


@pytest.mark.parametrize("target", ["model", "update"])
def test_what_is_forged_is_the_change_before_it_is_normalised(target):
    attack = {"name": "same_value", "tau": 1.0, "fraction": 0.4, "target": target}
    agree(
        ("algorithm.name", "fednova"), ("attack", attack), ("data.partition", "zipf"),
        ("local.steps", None), ("local.epochs", 1),
    )  # fmt: skip


@pytest.mark.parametrize("monitor", quick(["exact", "naive", "linear"], "linear"))
@pytest.mark.parametrize(
    "end",
    [
        {"name": "fda", "theta": 1e-3, "every": 2},
        {"name": "fda_opt"},
        {"name": "fda_async", "theta": 1e-2, "stragglers": 0.4},
    ],
    ids=lambda end: end["name"],
)
def test_when_a_round_ends_and_what_asking_costs(end, monitor):
    """Of clients that are private, late, compressed both ways, and lie."""
    lying = {"name": "scale", "fraction": 0.4, "tau": 0.3, "probes": True}
    agree(
        ("algorithm.name", "fedbn"), NORMED, ("round_end", end | {"monitor": monitor}),
        ("local.steps", 5), ("attack", lying), *BOTH_WAYS,
    )  # fmt: skip


@pytest.mark.parametrize("end", ["fda", "fda_opt", "fda_async"])
def test_a_round_does_not_end_by_whose_numbers_are_none(end):
    """H is about the model that the others' synchronisation makes."""
    theta = {} if end == "fda_opt" else {"theta": 1e3}
    monitor = {"name": "linear"} if end == "fda" else {"name": "exact"}
    agree(
        ("round_end", {"name": end, "monitor": monitor, **theta}), ("non_finite", "drop"),
        ("diverging", 1), ("local.steps", 4), ("attack", {"name": "sign_flip", "ids": [2]}),
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", [{"name": "ditto", "strength": 0.3}, "local"])
def test_personal_problems_take_as_long_as_the_longest(algorithm):
    agree(
        ("algorithm", algorithm), ("round_end", {"name": "fixed", "steps": "longest"}),
        ("local.steps", None), ("local.epochs", 2), ("data.partition", "zipf"), NORMED,
    )  # fmt: skip


@pytest.mark.parametrize(
    "pieces",
    [
        [NORMED, ("local.steps", 5), ("aggregator", "weighted_mean"), ("data.partition", "zipf")],
        [("round_end", {"name": "fda", "theta": 1e-2}), ("local.steps", 7), ("diverging", 1),
         ("non_finite", "drop"), ("sampler", {"name": "weighted", "replace": True})],
        [("algorithm", {"name": "ditto", "strength": 0.3}), ("local.steps", 4)],
    ],
)  # fmt: skip
def test_what_a_clock_sees_in_the_middle_of_rounds(pieces):
    agree(("evaluation.every_steps", 3), *pieces)


def test_liars_know_the_answers_of_those_who_are_asked():
    """And not of all with whom these share a block."""
    lying = {"name": "ipm", "fraction": 0.4, "knowledge": "benign", "probes": True}
    agree(
        ("round_end", {"name": "fda_async", "theta": 1.0, "monitor": "naive", "jitter": 0.5}),
        ("local.steps", 6), ("local.block", 5), ("cohort", 5), ("attack", lying),
    )  # fmt: skip


@pytest.mark.parametrize("state", ["reset", "keep", "average"])
def test_moments_of_clients_that_are_drawn_twice(state):
    agree(
        ("local.optimizer", {"name": "sgd", "momentum": 0.8}), ("local.optimizer_state", state),
        ("sampler", {"name": "weighted", "replace": True}), ("data.partition", "zipf"),
        ("aggregator", "weighted_mean"), FORGED, BOTH_WAYS[0],
    )  # fmt: skip


@pytest.mark.parametrize("attack", ["scale", "same_value"])
def test_a_malicious_client_whose_own_training_is_none(attack):
    """What it forges of that may be none, either, or as finite as any."""
    agree(
        ("non_finite", "drop"), *BOTH_WAYS, ("diverging", 1),
        ("attack", {"name": attack, "ids": [1], "tau": 1.0}),
    )  # fmt: skip


@pytest.mark.parametrize("block", [1, 2, 5])
@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_blocks_and_lanes_mean_nothing(block, execution):
    agree(
        ("model", {"name": "mlp", "hidden": [7]}), ("local.epochs", 1), ("local.steps", None),
        ("data.partition", "zipf"), ("local.block", block), ("local.execution", execution),
        ("compression.uplink", {"name": "random_k"}), FORGED,
    )  # fmt: skip


# What the battery has found.


def test_what_never_leaves_a_client_is_not_forged():
    agree(("algorithm.name", "fedbn"), NORMED, ("attack", {"name": "same_value", "tau": 1.0}))


@pytest.mark.parametrize("buffers", ["aggregate", "local", "exclude"])
def test_models_of_clusters_are_judged_with_their_clients_statistics(buffers):
    """They were with those of the first model, where these stay with the clients."""
    splitting = {"name": "clustered", "eps1": 5.0, "eps2": 0.01}
    everyone = ("cohort", 1.0), ("attack", {"name": "label_flip", "fraction": 0.4})
    agree(("algorithm", splitting), NORMED, ("buffers", buffers), *everyone, BOTH_WAYS[0])


@pytest.mark.parametrize("robust", [True, False])
def test_models_that_go_from_neighbour_to_neighbour(robust):
    gossip = {"name": "drdsgd", "mu": 2.0, "robust": robust}
    agree(("algorithm", gossip), NORMED, ("cohort", 1.0))


def test_statistics_that_stay_are_not_forged():
    agree(NORMED, ("buffers", "local"), FORGED)


def test_losses_are_at_the_clients_own_statistics():
    agree(("algorithm.name", "qfedavg"), NORMED, ("buffers", "local"))


def test_who_trains_on_flipped_labels_answers_with_them():
    agree(("algorithm.name", "qfedavg"), ("attack", {"name": "label_flip", "ids": [2]}))


def test_a_forger_that_would_remember_nan_is_left_out_too():
    agree(
        ("algorithm.name", "scaffold"), ("non_finite", "drop"), ("diverging", 1),
        ("attack", {"name": "same_value", "ids": [1], "tau": 1.0}),
    )  # fmt: skip


def test_which_of_two_numbers_at_the_end_of_float32_overflows_is_undecided():
    """What is multiplied first decides it; seed 10, case 698."""
    attack = {
        "name": "same_value",
        "fraction": 0.4,
        "tau": 1e38,
        "target": "update",
        "buffers": True,
    }
    pieces = [
        NORMED, ("attack", attack), ("local.batch_size", 1000),
        ("compression.downlink", {"name": "top_k", "fraction": 0.1}),
    ]  # fmt: skip
    assert compare(*composed(pieces)) == "undecided"


@pytest.mark.parametrize("family", KNOWN, ids=lambda f: f.__name__)
def test_every_part_is_known_or_named(family):
    """A new part is in the model, or in the list of what it does not know."""
    others = ("tests.", "fedorch_plugins.")  # what other tests of this process have left
    named = variants(family).items()
    ours = {name for name, part in named if not part.__module__.startswith(others)}
    assert ours == KNOWN[family] | set(UNKNOWN[family].split())
