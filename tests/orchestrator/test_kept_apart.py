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
    d = build(partition, pool=pool, test={"source": source, "least": 5}, **more)
    train, held = set(d.train.rows.tolist()), set(d.heldout_rows.tolist())
    tested = set(d.test.rows.tolist()) | set(d.test_rows.tolist())
    assert not train & tested
    assert not held & (train | tested)
    assert all(len(d.train[k]) and len(d.test[k]) for k in range(5))
    if partition not in OVERLAPPING:
        assert len(train) == len(d.train.rows)


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
    none = np.empty(0, np.int64)
    train, test = Lists.of([np.array([0, 1]), np.array([2])]), Lists.of([np.array([3]), none])
    keep_apart(train, test, np.array([3, 4]), np.array([5]), 6)
    for wrong, word in (
        ((train, test, np.array([2, 3]), none), "row 2 .* client 1 and in a test set"),
        ((train, Lists.of([np.array([1])]), none, none), "row 1 .* client 0"),
        ((train, test, none, np.array([3])), "row 3 is held out .* test rows"),
        ((train, test, none, np.array([0])), "row 0 is held out .* training rows"),
        ((train, test, np.array([6]), none), "row 6"),
    ):
        with pytest.raises(UserError, match=word):
            keep_apart(*wrong, 6)
    with pytest.raises(UserError, match="row 2 is dealt 2 times"):
        keep_disjoint(Lists.of([np.array([0, 2]), np.array([2])]))
