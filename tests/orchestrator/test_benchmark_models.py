"""Networks of others' benchmarks have the sizes that arithmetic gives; timm's are timm's."""

import itertools
import json
from functools import cached_property
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.models import Net
from orchestrator.models.benchmarks import PflCnn, ResNet18GroupNorm, Vgg11
from orchestrator.models.recurrent import CharLstm
from orchestrator.models.timm_models import TimmModel
from orchestrator.models.vision import TorchVisionModel
from orchestrator.rounds.experiment import Experiment


def built(model, shape, classes):
    net = Net.of(model, shape, classes, 0)
    x = torch.zeros(2, *shape, dtype=torch.int64 if len(shape) == 1 else torch.float32)
    assert net.module.eval()(x).shape == (2, classes)
    return net


def conv(inputs, outputs):
    return 9 * inputs * outputs + outputs


def lstm(inputs, width):
    # four gates of an input, the state and two biases
    return 4 * width * (inputs + width + 2)


@pytest.mark.parametrize(
    ("options", "characters", "expected"),
    [
        ({"vocabulary": 80}, 80, 80 * 8 + lstm(8, 256) + lstm(256, 256) + 257 * 80),
        ({}, 80, 81 * 8 + lstm(8, 256) + lstm(256, 256) + 257 * 80),
        ({"vocabulary": 90}, 90, 820_522 + 2 * 4 * 256),  # Reddi et al. 2021, one bias each
        ({"vocabulary": 80, "width": 100}, 80, 80 * 8 + lstm(8, 100) + lstm(100, 100) + 101 * 80),
        ({"vocabulary": 9, "embedding": 3, "width": 4, "layers": 1}, 5, 27 + lstm(3, 4) + 25),
    ],
)
def test_char_lstm_has_its_size(options, characters, expected):
    assert built(CharLstm(**options), (7,), characters).spec.size == expected


def test_char_lstm_reads_from_the_first_to_the_last():
    """By the equations of an LSTM, gates i, f, g and o."""
    net = built(CharLstm(width=3, layers=1, embedding=2), (4,), 5).module
    ids = torch.tensor([[1, 0, 3, 2]])
    w = dict(net.lstm.named_parameters())
    h, c = torch.zeros(3), torch.zeros(3)
    for x in net.embedding.weight[ids[0]]:
        gates = w["weight_ih_l0"] @ x + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]
        i, f, g, o = gates.split(3)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    torch.testing.assert_close(net(ids)[0], net.head(h))
    with pytest.raises(ValueError, match="needs ids of characters"):
        CharLstm().build((1, 28, 28), 5)


def test_pfl_cnn_has_its_size():
    expected = conv(3, 32) + conv(32, 64) + (64 * 14 * 14 + 1) * 128 + 129 * 10
    net = built(PflCnn(), (3, 32, 32), 10)
    assert net.spec.size == expected == 1_626_442
    assert [m.p for m in net.module if isinstance(m, nn.Dropout)] == [0.25, 0.5]
    plain = built(PflCnn(dropout=False), (1, 28, 28), 62)
    assert not plain.stochastic
    assert plain.spec.size == conv(1, 32) + conv(32, 64) + (64 * 12 * 12 + 1) * 128 + 129 * 62


def test_vgg11_has_its_size():
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    convs = sum(conv(a, b) for a, b in itertools.pairwise(widths))
    sizes = {norm: built(Vgg11(norm=norm), (3, 32, 32), 10) for norm in ("none", "batch", "group")}
    norms = 2 * sum(widths[1:])
    assert sizes["none"].spec.size == convs + 513 * 10 == 9_225_610
    assert sizes["batch"].spec.size == sizes["group"].spec.size == convs + 513 * 10 + norms
    assert sizes["batch"].buffer_spec.size == norms
    assert not sizes["group"].buffer_spec.size
    groups = [m.num_groups for m in sizes["group"].module.modules() if isinstance(m, nn.GroupNorm)]
    assert groups == [2] * 8


def test_resnet18_gn_is_torchvision_s_with_two_groups():
    net = built(ResNet18GroupNorm(), (3, 32, 32), 10)
    # torchvision's 11,689,512 with 1,000 classes and a 7x7 stem
    assert net.spec.size == 11_689_512 - 513 * 990 - 64 * 3 * (49 - 9)
    same = TorchVisionModel(norm="group", stem="small")
    again = Net.of(same, (3, 32, 32), 10, 0)
    assert torch.equal(net.initial, again.initial)
    groups = {m.num_groups for m in net.module.modules() if isinstance(m, nn.GroupNorm)}
    assert groups == {2}


@pytest.mark.parametrize("model", [PflCnn(), Vgg11()], ids=lambda model: model.name)
def test_images_that_are_too_small_are_refused(model):
    with pytest.raises(ValueError, match="needs images of at least"):
        model.build((3, 5, 5), 10)


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
class TestTimm:
    @cached_property
    def timm(self):
        import timm

        return timm

    def made(self, **options):
        return Net.of(TimmModel.model_validate(options), (3, 32, 32), 7, 0).module

    def test_it_is_timm_s(self):
        ours = self.made(of="resnet18", options={"drop_path_rate": 0.1})
        theirs = self.timm.create_model("resnet18", num_classes=7)
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(2, 3, 32, 32)
        assert torch.equal(ours.eval()(x), theirs.eval()(x))

    def test_group_norm_keeps_the_activations(self):
        ours = self.made(of="mobilenetv3_small_050", norm="group", groups=4)
        theirs = self.timm.create_model("mobilenetv3_small_050", num_classes=7)
        assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in ours.modules())
        kinds = (nn.ReLU, nn.Hardswish, nn.Hardsigmoid)
        found = [
            sum(type(m).__name__ in {k.__name__ for k in kinds} for m in net.modules())
            for net in (ours, theirs)
        ]
        assert found[0] == found[1] > 0
        # with each batch norm's mean and deviation for a group's, the network is theirs
        for (_, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert a.shape == b.shape
        with pytest.raises(ValueError, match="batch norm of other things than images"):
            self.made(of="levit_128s", norm="group", options={"img_size": 32})

    @pytest.mark.parametrize("ending", ["pt", "safetensors"])
    def test_weights_of_a_file(self, tmp_path, ending):
        from safetensors.torch import save_file

        theirs = self.timm.create_model("resnet10t")
        path = tmp_path / f"r.{ending}"
        (torch.save if ending == "pt" else save_file)(theirs.state_dict(), str(path))
        ours = self.made(of="resnet10t", weights=str(path))
        assert torch.equal(ours.layer1[0].conv1.weight, theirs.layer1[0].conv1.weight)
        assert ours.fc.out_features == 7
        with pytest.raises(UserError, match="holds no state dict of timm's resnet18"):
            self.made(of="resnet18", weights=str(path))
        with pytest.raises(ValueError, match="for images of other channels"):
            TimmModel(of="resnet10t", weights=str(path)).build((1, 32, 32), 7)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"of": "resnet19"}, "timm has no 'resnet19'; did you mean 'resnet"),
            ({"of": "resnet10t", "options": {"wide": 3}}, "model.options: timm's resnet10t: "),
            ({"of": "resnet10t", "options": {"in_chans": 3}}, "in_chans is not for them to say"),
            ({"of": "resnet10t", "options": {"pretrained": True}}, "pretrained is not for them"),
            ({"of": "resnet10t", "weights": "nowhere.pt"}, "there is no file nowhere.pt"),
        ],
    )
    def test_what_cannot_be_built_is_said(self, options, message):
        with pytest.raises((ValueError, UserError), match=message) as told:
            self.made(**options)
        assert len(str(told.value)) < 400

    def test_a_run_whose_dropped_paths_are_keyed(self):
        """The draws are found though they are rare, and do not depend on who has drawn before."""
        model = {"name": "timm", "of": "resnet10t", "options": {"drop_path_rate": 0.3}}
        data = {"name": "torchvision", "dataset": "FakeData",
                "options": {"size": 40, "image_size": [3, 16, 16], "num_classes": 2}}  # fmt: skip
        given = [f"data.dataset={json.dumps(data)}", "data.clients=2", "cohort=2", "rounds=1",
                 "data.client_test.least=2", "local.steps=1", "local.batch_size=8",
                 f"model={json.dumps(model)}"]  # fmt: skip
        weights = []
        for seed in (7, 8):
            experiment = Experiment(load(None, given))
            assert experiment.config.local.execution == "sequential"
            torch.manual_seed(seed)
            record = experiment.step()
            assert np.isfinite(record["train_loss"])
            weights.append(experiment.algorithm.w)
            assert experiment.net.stochastic
        assert torch.equal(*weights)
