"""Nothing that is tested on is trained on, whatever deals the rows out."""

import numpy as np
import pytest

from orchestrator.data import Samples
from orchestrator.data.federated import DataConfig, FederatedData
from orchestrator.data.lists import Lists, keep_apart, keep_disjoint
from orchestrator.errors import UserError

PARTITIONS = [
    "iid", "dirichlet", {"name": "pfnm", "least": 2}, "zipf", "sorted", "label", "shards", "glue_dirichlet", "feddual",
    "natural",
]  # fmt: skip
OVERLAPPING = ("zipf", "feddual")


def samples(n=400, train=300, clients=5):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return Samples(x, rng.integers(0, 4, n), train, 4, owner=rng.integers(0, clients, n))


def build(partition, seed=0, **more):
    config = DataConfig(clients=5, partition=partition, client_test=more.pop("test", {}), **more)
    return FederatedData.build(config, seed, samples())


@pytest.mark.parametrize("more", [{}, {"limit": 200}, {"heldout": {"per_class": 3}}])
@pytest.mark.parametrize("source", ["mix", "local"])
@pytest.mark.parametrize("pool", ["train", "all"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_training_test_and_held_out_rows(partition, pool, source, more):
    """By hand, for every partition: clients that overlap (zipf, feddual) had others' test rows in
    their training, and natural clients with ``pool: all`` all of their own.
    """
    if (partition, source) == ("natural", "local"):
        pytest.skip("natural clients have tests of their own")
    d = build(partition, pool=pool, test={"source": source, "least": 5}, **more)
    train, held = set(d.train.rows.tolist()), set(d.heldout_rows.tolist())
    tested = set(d.test.rows.tolist()) | set(d.test_rows.tolist())
    assert not train & tested
    assert not held & (train | tested)
    assert all(len(d.train[k]) and len(d.test[k]) for k in range(5))
    if partition not in OVERLAPPING:
        assert len(train) == len(d.train.rows)


@pytest.mark.parametrize(
    "kept", [{"clients": 0.2}, {"server": 0.2}, {"clients": 0.2, "server": 0.1}], ids=str
)
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_rows_kept_back_for_choices(partition, kept):
    """They come out of the training rows, which lose nothing else; tests are as they were, and
    nobody trains on what another keeps back.
    """
    before, after = (
        build(partition, test={"least": 5}),
        build(partition, test={"least": 5}, validation=kept),
    )
    assert np.array_equal(before.test.rows, after.test.rows)
    assert np.array_equal(before.test_rows, after.test_rows)
    chosen = set(after.validation.rows.tolist()) | set(after.validation_rows.tolist())
    assert not chosen & (set(after.train.rows.tolist()) | set(after.test_rows.tolist()))
    assert chosen | set(after.train.rows.tolist()) == set(before.train.rows.tolist())
    assert 0.05 < len(chosen) / len(set(before.train.rows.tolist())) < 0.4
    for k in range(5):
        mine = np.concatenate([after.train[k], after.validation[k]])
        lost = np.setdiff1d(before.train[k], mine)
        assert set(lost) <= (set(after.validation_rows) if "server" in kept else set())
        assert len(after.train[k])
        assert len(after.validation[k]) or "clients" not in kept or partition in OVERLAPPING
    labels = after.samples.y
    if kept == {"server": 0.2}:
        rows = np.unique(before.train.rows)
        for label in range(4):
            share = (labels[after.validation_rows] == label).sum() / (labels[rows] == label).sum()
            assert abs(share - 0.2) < 0.03


def test_a_client_that_would_have_no_training_rows_left_is_told():
    with pytest.raises(UserError, match=r"data.validation.server: client \d is left without"):
        build({"name": "zipf", "alpha": 1e-3}, limit=8, validation={"server": 0.9})


@pytest.mark.parametrize("heldout", [0, 1])
def test_natural_clients_are_tested_on_their_own_rows_of_the_test_split(heldout):
    d = build("natural", pool="all", heldout={"per_class": heldout, "take": "random"})
    given = samples()
    for k in range(5):
        rows = np.setdiff1d(np.flatnonzero(given.owner == k), d.heldout_rows)
        assert sorted(d.train[k]) == [r for r in rows if r < 300]
        assert sorted(d.test[k]) == [r for r in rows if r >= 300]


@pytest.mark.parametrize("pool", ["train", "all"])
@pytest.mark.parametrize("take", ["first", "random"])
def test_every_natural_client_hands_over_as_many_rows(take, pool):
    """FedAA's rule for SYNTHETIC: 0.1 n rows of each client, n of the smallest, tests included."""
    d = build("natural", pool=pool, heldout={"per_client": 0.1, "take": take})
    given, asked = samples(), int(0.1 * np.bincount(samples().owner).min())
    assert asked > 3
    for k in range(5):
        own = np.flatnonzero(given.owner[:300] == k)
        held = np.intersect1d(own, d.heldout_rows)
        assert len(held) == asked
        assert sorted(d.train[k]) == sorted(set(own) - set(held))
        if take == "first":
            assert held.tolist() == own[:asked].tolist()
    assert len(d.heldout_rows) == 5 * asked


def test_what_natural_clients_cannot_hand_over_is_refused():
    for partition, heldout, word in (
        ("iid", {"per_client": 0.1}, "only natural clients"),
        ("natural", {"per_client": 0.001}, "is not one row"),
        ("natural", {"per_client": 0.99}, "to hand over"),
    ):
        with pytest.raises(UserError, match=word):
            build(partition, heldout=heldout)
    with pytest.raises(ValueError, match="either per_class or per_client"):
        build("natural", heldout={"per_class": 1, "per_client": 0.1})


@pytest.mark.parametrize("name", OVERLAPPING)
def test_clients_that_overlap_keep_a_part_of_each_class_and_their_mix(name):
    d = build({"name": name, "alpha": 0.5}, test={"source": "local", "fraction": 0.25})
    kept = np.setdiff1d(np.arange(300), d.train.rows)
    assert set(d.test.rows) <= set(kept)
    for k in range(5):
        mine = {int(c) for c in d.samples.y[d.test[k]]}
        assert mine <= {int(c) for c in d.samples.y[d.train[k]]}


def test_the_invariant_says_who_has_the_row():
    """Checked at the end of every build, so that a new partition cannot leak."""
    train = Lists.of([np.array([0, 1]), np.array([2])])

    def check(test, chosen=(), held=()):
        sets = {"a test set": test, "a validation set": chosen, "the held-out rows": held}
        keep_apart(train, {name: np.array(rows, np.int64) for name, rows in sets.items()}, 6)

    check([3, 4], [], [5])
    for wrong, word in (
        (([2, 3],), "row 2 .* client 1 and in a test set"),
        (([1],), "row 1 .* client 0"),
        (([], [2]), "row 2 .* client 1 and in a validation set"),
        (([3], [4], [3]), "row 3 is in a test set and in the held-out rows"),
        (([3], [3]), "row 3 is in a test set and in a validation set"),
        (([], [], [0]), "row 0 .* client 0 and in the held-out rows"),
        (([6],), "row 6"),
    ):
        with pytest.raises(UserError, match=word):
            check(*wrong)
    with pytest.raises(UserError, match="row 2 is dealt 2 times"):
        keep_disjoint(Lists.of([np.array([0, 2]), np.array([2])]))
