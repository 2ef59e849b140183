"""Parameter counts of the papers' models, and their initial weights."""

import pytest
import torch

from algorithms.part import variants
from orchestrator.models import Model, Net

GREY = (1, 28, 28)
COUNTS = [
    ("linear", {}, GREY, 10, 7_850),
    ("linear", {}, (60,), 10, 610),
    ("mlp", {}, GREY, 10, 79_510),
    ("mlp", {"hidden": (100, 100)}, GREY, 62, 94_862),
    ("lenet5", {}, GREY, 10, 61_706),
    ("fedaa_cnn", {}, (3, 32, 32), 10, 62_006),
    ("fedaa_resnet", {}, GREY, 10, 678_794),
    ("drdm_cnn", {}, GREY, 10, 794_310),
    ("fasttext", {"vocabulary": 100, "width": 8}, (16,), 4, 836),
]


@pytest.mark.parametrize(("name", "options", "shape", "classes", "count"), COUNTS)
def test_counts_and_outputs(name, options, shape, classes, count):
    net = Net.of(variants(Model)[name](**options), shape, classes, 0)
    assert net.spec.size == count
    x = torch.zeros(
        2, *shape, dtype=torch.long if len(shape) == 1 and name == "fasttext" else torch.float
    )
    assert net.module(x).shape == (2, classes)


def test_initial_weights_depend_on_the_seed_only():
    model = variants(Model)["lenet5"]()
    torch.manual_seed(1)
    a = Net.of(model, GREY, 10, 0).initial
    torch.manual_seed(2)
    assert torch.equal(a, Net.of(model, GREY, 10, 0).initial)
    assert not torch.equal(a, Net.of(model, GREY, 10, 1).initial)


def test_the_thesis_lenet_is_glorot_initialised():
    net = Net.of(variants(Model)["lenet5"](), GREY, 10, 0)
    w = dict(net.module.named_parameters())
    assert w["7.weight"].abs().max() <= (6 / (400 + 120)) ** 0.5
    assert w["7.bias"].abs().max() == 0


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet5", (60,)), ("fasttext", GREY), ("lenet5", (1, 8, 8))]
)
def test_models_refuse_shapes_that_they_cannot_take(name, shape):
    with pytest.raises(ValueError, match="needs"):
        variants(Model)[name]().build(shape, 10)


def test_binding_makes_the_module_a_view_of_the_vector():
    net = Net.of(variants(Model)["fedaa_resnet"](), GREY, 10, 0)
    w, buffers = torch.randn(net.spec.size), torch.rand(net.buffer_spec.size)
    net.bind(w, buffers)
    before = w.clone()
    with torch.no_grad():
        for p in net.module.parameters():
            p.add_(1)
    torch.testing.assert_close(w, before + 1)
    net.module.train()
    statistics = buffers.clone()
    net.module(torch.randn(4, *GREY))
    assert not torch.equal(buffers, statistics)
