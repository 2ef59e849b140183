"""Partition recipes against brute force, and the properties that all of them share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.part import variants
from orchestrator.data import FederatedData
from orchestrator.data.federated import DataConfig
from orchestrator.data.partitioners import Partitioner, Pool
from orchestrator.errors import UserError

DISJOINT = ["iid", "dirichlet", "pfnm", "sorted", "label", "shards", "glue_dirichlet"]


def pool(n=600, clients=6, classes=5, seed=0, owner=None):
    labels = np.random.default_rng(1).integers(0, classes, n)
    return Pool(np.arange(n), labels, classes, clients, seed, owner)


def make(name, **options):
    return variants(Partitioner)[name](**options)


@pytest.mark.parametrize("name", DISJOINT)
@settings(max_examples=15, deadline=None)
@given(clients=st.integers(1, 12), seed=st.integers(0, 5), n=st.integers(60, 200))
def test_every_row_goes_to_exactly_one_client(name, clients, seed, n):
    p = pool(n, clients, seed=seed)
    parts = make(name).split(p)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts)) == list(range(n))
    again = make(name).split(p)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "pfnm", "shards", "zipf", "glue_dirichlet"])
def test_another_seed_gives_another_split(name):
    a, b = (make(name).split(pool(seed=s)) for s in (0, 1))
    assert any(not np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_dirichlet_sizes_are_equal_and_alpha_controls_the_mix():
    def dominance(alpha):
        p = pool(6000, 20)
        parts = make("dirichlet", alpha=alpha).split(p)
        assert {len(x) for x in parts} == {300}
        return np.mean([np.bincount(p.labels[x]).max() / len(x) for x in parts])

    assert dominance(0.1) > dominance(5.0) + 0.1 > dominance(1000.0)
    assert dominance(1000.0) < 0.3


def test_pfnm_respects_its_minimum_and_its_cap():
    p = pool(2000, 10)
    parts = make("pfnm", alpha=0.5, least=20).split(p)
    assert min(map(len, parts)) >= 20
    with pytest.raises(UserError, match="found no split"):
        make("pfnm", alpha=0.01, least=190, attempts=20).split(p)


def test_zipf_sizes_and_mixes():
    p = pool(3000, 10)
    parts = make("zipf", sigma=0.7, alpha=0.5).split(p)
    share = np.arange(1, 11) ** -0.7
    assert [len(x) for x in parts] == np.floor(3000 * share / share.sum()).astype(int).tolist()
    equal = make("zipf", sigma=0.0, alpha=100.0).split(p)
    assert {len(x) for x in equal} == {300}
    mixes = np.array([np.bincount(p.labels[x], minlength=5) / 300 for x in equal])
    assert abs(mixes - 0.2).max() < 0.15


def test_zipf_repeats_a_row_only_when_its_class_is_used_up():
    p = pool(1000, 5)
    parts = make("zipf", alpha=0.2).split(p)
    for c in range(5):
        uses = np.bincount(
            np.concatenate([x[p.labels[x] == c] for x in parts]).astype(int), minlength=1000
        )
        uses = uses[p.labels == c]
        assert uses.max() - uses.min() <= 1


def test_sorted_fraction_by_hand():
    labels = np.array([2, 0, 1, 0, 2, 1, 1, 0, 2, 0])
    parts = make("sorted", fraction=0.6).split(Pool(np.arange(10), labels, 3, 2, 0))
    # first six rows sorted by label: 1 3 | 2 5 | 0 4 -> cut in two; the rest 6 7 | 8 9
    assert [x.tolist() for x in parts] == [[1, 3, 2, 6, 7], [5, 0, 4, 8, 9]]


def test_label_skew_by_hand():
    labels = np.array([1, 0, 0, 2, 0, 1])
    parts = make("label", label=0).split(Pool(np.arange(6), labels, 3, 3, 0))
    assert [x.tolist() for x in parts] == [[1, 2], [4, 0], [3, 5]]
    with pytest.raises(UserError, match="not one of the 3 classes"):
        make("label", label=7).split(Pool(np.arange(6), labels, 3, 3, 0))


def test_shards_give_few_labels():
    p = pool(1000, 10, classes=10)
    for x in make("shards", per_client=2).split(p):
        assert len(np.unique(p.labels[x])) <= 4


def test_glue_quotas_are_kept_where_they_can_be():
    p = pool(4000, 8, classes=2)
    parts = make("glue_dirichlet", alpha=50.0).split(p)
    assert all(400 < len(x) < 600 for x in parts)


def test_natural_clients():
    owner = np.array([0, 1, 1, 2, 0])
    p = Pool(np.arange(5), np.zeros(5, int), 1, 3, 0, owner)
    assert [x.tolist() for x in make("natural").split(p)] == [[0, 4], [1, 2], [3]]
    with pytest.raises(UserError, match="natural clients"):
        make("natural").split(Pool(np.arange(5), np.zeros(5, int), 1, 4, 0, owner))


def data(**options):
    return FederatedData.build(DataConfig(**options), options.pop("seed", 0))


def test_held_out_rows_are_taken_out_of_the_pool():
    d = data(clients=5, heldout={"per_class": 7}, partition="iid")
    assert np.bincount(d.samples.y[d.heldout_rows]).tolist() == [7] * 10
    assert not set(d.heldout_rows) & set(d.train.rows)
    assert len(d.train.rows) == 8000 - 70
    first = np.flatnonzero(d.samples.y[:8000] == 3)[:7]
    assert set(first) <= set(d.heldout_rows)


def test_client_tests_have_the_clients_mix():
    d = data(clients=8, partition={"name": "dirichlet", "alpha": 0.5})
    for k in range(8):
        train = np.bincount(d.samples.y[d.train[k]], minlength=10) / len(d.train[k])
        test = np.bincount(d.samples.y[d.test[k]], minlength=10) / len(d.test[k])
        assert abs(train - test).max() < 0.03
        assert (d.test[k] >= 8000).all()


def test_local_tests_are_the_clients_own_rows():
    d = data(clients=4, pool="all", partition="iid")
    assert len(d.train.rows) + len(d.test.rows) == 10000
    assert not set(d.train.rows) & set(d.test.rows)
    assert [len(d.test[k]) for k in range(4)] == [625] * 4


def test_a_limit_and_too_many_clients():
    assert len(data(clients=4, limit=100).train.rows) == 100
    with pytest.raises(UserError, match="cannot share 100"):
        data(clients=101, limit=100)
    with pytest.raises(UserError, match="more than the 8000"):
        data(limit=9000)
    with pytest.raises(UserError, match="only"):
        data(heldout={"per_class": 5000})


@settings(max_examples=30, deadline=None)
@given(
    clients=st.integers(1, 12),
    seed=st.integers(0, 5),
    n=st.integers(60, 200),
    sigma=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_disjoint_zipf_has_zipf_s_sizes_and_no_row_twice(clients, seed, n, sigma):
    p = pool(n, clients, seed=seed)
    usual, disjoint = (
        make("zipf", alpha=0.1, sigma=sigma, disjoint=d).split(p) for d in (False, True)
    )
    assert [len(x) for x in disjoint] == [len(x) for x in usual]
    rows = np.concatenate(disjoint)
    assert len(np.unique(rows)) == len(rows)
    # nothing was used up yet: the first client's mix, and what it is drawn by, are the same
    if np.bincount(p.labels[usual[0]], minlength=5).max() < 0.1 * n:
        assert sorted(usual[0]) == sorted(disjoint[0])


def test_disjoint_zipf_needs_a_row_for_everyone():
    with pytest.raises(UserError, match="20 rows do not give each of 20 clients"):
        make("zipf", sigma=2.0, disjoint=True).split(pool(20, 20))


def test_disjoint_zipf_is_checked(monkeypatch):
    """The data are built with it, and a row that is dealt twice all the same is found."""
    config = DataConfig(clients=5, partition={"name": "zipf", "disjoint": True}, limit=600)
    data = FederatedData.build(config, 0)
    assert len(np.unique(data.train.rows)) == len(data.train.rows)
    twice = np.arange(120)
    monkeypatch.setattr(variants(Partitioner)["zipf"], "split", lambda self, pool: [twice] * 5)
    with pytest.raises(UserError, match="is dealt 5 times"):
        FederatedData.build(config, 0)
    FederatedData.build(config.model_copy(update={"partition": make("zipf")}), 0)
