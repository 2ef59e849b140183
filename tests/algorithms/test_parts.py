"""Parts, samplers and aggregators."""

import numpy as np
import pytest
from pydantic import ValidationError

from algorithms.contract import Cohort
from algorithms.draws import generator, torch_seed
from algorithms.part import nearest, variants
from algorithms.parts.aggregators import Mean, WeightedMean
from algorithms.parts.samplers import Cyclic, Draw, Sampler, Uniform, Weighted


def draw(t, n=20, samples=None):
    return Draw(3, t, np.ones(n) if samples is None else samples)


def test_a_part_keeps_its_name():
    with pytest.raises(ValidationError, match="named uniform"):
        Uniform(name="weighted")
    assert list(variants(Sampler)) == ["cyclic", "uniform", "weighted"]


def test_nearest_names_are_suggested():
    assert nearest("unifrm", ["uniform", "cyclic"]).startswith("did you mean 'uniform'?")
    assert "did you mean" not in nearest("zzz", ["uniform"])
    # a part of names before what is as long and sounds alike
    columns = ["cohort", "client_accuracy_worst", "client_loss_worst"]
    assert nearest("worst", columns).startswith("did you mean 'client_accuracy_worst' or 'client_l")


def test_draws_depend_on_every_key_and_on_nothing_else():
    keys = [(0, "a", 1, 2), (1, "a", 1, 2), (0, "b", 1, 2), (0, "a", 2, 1), (0, "a", 1)]
    numbers = [generator(*k).integers(2**40) for k in keys]
    assert len(set(numbers)) == len(keys)
    assert numbers == [generator(*k).integers(2**40) for k in keys]
    assert torch_seed(0, "a", 1) == torch_seed(0, "a", 1) != torch_seed(0, "a", 2)


@pytest.mark.parametrize("sampler", [Uniform(), Weighted(), Cyclic()])
def test_cohorts_are_distinct_sorted_and_repeatable(sampler):
    for t in range(1, 8):
        ids = sampler.sample(draw(t), 5)
        assert len(set(ids)) == 5
        assert list(ids) == sorted(ids)
        assert np.array_equal(ids, sampler.sample(draw(t), 5))
    assert not all(
        np.array_equal(sampler.sample(draw(t), 5), sampler.sample(draw(1), 5)) for t in range(2, 8)
    )


def test_cyclic_serves_everybody_before_anybody_twice():
    served = np.concatenate([Cyclic().sample(draw(t), 5) for t in range(1, 5)])
    assert sorted(served) == list(range(20))


def test_weighted_sampling_follows_the_weights():
    samples = np.array([1.0, 2.0, 7.0])
    hits = np.bincount(
        [Weighted(replace=True).sample(draw(t, samples=samples), 1)[0] for t in range(3000)],
        minlength=3,
    )
    np.testing.assert_allclose(hits / 3000, samples / 10, atol=0.03)


def test_uniform_sampling_is_uniform():
    hits = np.zeros(20)
    for t in range(4000):
        hits[Uniform().sample(draw(t), 5)] += 1
    np.testing.assert_allclose(hits / 4000, 0.25, atol=0.03)


def test_repeated_clients_count_by_how_often_they_were_drawn():
    cohort = Cohort.of([4, 1, 4, 4])
    assert cohort.ids.tolist() == [1, 4]
    assert Mean().weights(np.array([10, 30]), cohort.counts).tolist() == [0.25, 0.75]
    assert WeightedMean().weights(np.array([10, 30]), cohort.counts).tolist() == [0.1, 0.9]
