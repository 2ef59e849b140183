"""The flat view."""

import pytest
import torch
from torch import nn

from algorithms.flat import ParamSpec, floating_buffers, slices, trainable


@pytest.fixture
def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(8, 2))


def test_vector_and_tensors_are_the_same_numbers(module):
    params = trainable(module)
    spec = ParamSpec.of(params)
    flat = spec.flatten(params)
    assert flat.shape == (sum(p.numel() for p in params.values()),)
    for name, view in spec.views(flat).items():
        assert torch.equal(view, params[name])
        assert view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
    for name, copy in spec.tensors(flat).items():
        assert torch.equal(copy, params[name])
        assert copy.is_contiguous()


def test_a_batch_of_clients_views_row_by_row(module):
    params = trainable(module)
    spec = ParamSpec.of(params)
    rows = torch.randn(3, spec.size)
    batch = spec.views(rows)
    for c in range(3):
        for name, view in spec.views(rows[c]).items():
            assert torch.equal(batch[name][c], view)
    assert torch.equal(spec.write(list(batch.values()), torch.empty_like(rows)), rows)


def test_a_number_is_a_tensor_too():
    tensors = {"weight": torch.randn(2, 3), "scale": torch.tensor(2.5)}
    spec = ParamSpec.of(tensors)
    flat = spec.flatten(tensors)
    assert flat.tolist() == [*tensors["weight"].flatten().tolist(), 2.5]
    assert spec.views(flat)["scale"].shape == ()
    spec.views(flat)["scale"].fill_(7)
    assert flat[-1] == 7
    rows = torch.randn(3, 4, spec.size)
    assert torch.equal(spec.views(rows)["scale"], rows[..., -1])
    assert torch.equal(spec.write(list(spec.views(rows).values()), torch.empty_like(rows)), rows)
    assert spec.tensors(flat)["scale"] == 7


def test_layers_and_slices(module):
    spec = ParamSpec.of(trainable(module))
    assert spec.layers == ("0", "1", "3")
    (last,) = slices(spec.chosen(1))
    assert (last.start, last.stop) == (spec.size - 18, spec.size)
    (both,) = slices(spec.chosen(2))
    assert both.stop - both.start == 18 + 8
    assert slices(spec.chosen(r"\.bias$"))[-1] == slice(spec.size - 2, spec.size)
    with pytest.raises(ValueError, match="no tensor matches"):
        spec.chosen("nothing")
    with pytest.raises(ValueError, match="has 3 layers"):
        spec.chosen(4)


def test_counters_are_no_statistics(module):
    assert set(floating_buffers(module)) == {"1.running_mean", "1.running_var"}
