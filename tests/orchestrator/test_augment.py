"""Augmentations: against torchvision and by hand, by each client's own draws, on training rows."""

import math

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F

from orchestrator.config import load
from orchestrator.data.augment import Crop, Cutout, Flip, TorchVision
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.batches import Batches
from orchestrator.training.lane import Lane
from tests.configs import small
from tests.running import finish

IMAGES = torch.randint(0, 256, (40, 3, 12, 10), dtype=torch.uint8)
ALL = "data.augment=[flip, {name: crop, padding: 2}, {name: cutout, size: 5}]"


def drawn(one, n=40, seed=0):
    return torch.from_numpy(one.draw(np.random.default_rng(seed), n, tuple(IMAGES.shape[1:])))


def test_flip_is_torchvision_s():
    draws = drawn(Flip())
    made = Flip().apply(IMAGES.clone(), draws)
    for x, y, flipped in zip(IMAGES, made, draws[:, 0], strict=True):
        assert torch.equal(y, F.horizontal_flip(x) if flipped else x)
    assert 8 < int(draws.sum()) < 32
    assert not drawn(Flip(probability=0.0)).any()
    assert drawn(Flip(probability=1.0)).all()


@pytest.mark.parametrize(("mode", "theirs"), [("zero", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_crop_is_torchvision_s(mode, theirs, kind):
    one, x = Crop(padding=3, mode=mode), IMAGES.to(kind)
    draws = drawn(one)
    assert draws.unique().tolist() == list(range(7))
    for image, y, (top, left) in zip(x, one.apply(x.clone(), draws), draws.tolist(), strict=True):
        wide = F.pad(image, [3], padding_mode=theirs)
        assert torch.equal(y, F.crop(wide, top, left, 12, 10))


@pytest.mark.parametrize("size", [1, 4, 5, 30])
def test_cutout_is_a_square_around_a_pixel(size):
    one, x = Cutout(size=size), IMAGES.clamp_min(1)
    draws = drawn(one)
    for image, y, (row, column) in zip(x, one.apply(x.clone(), draws), draws, strict=True):
        for i in range(12):
            for j in range(10):
                within = -(size // 2) <= i - row < math.ceil(size / 2) and -(
                    size // 2
                ) <= j - column < math.ceil(size / 2)
                assert torch.equal(y[:, i, j], image[:, i, j] * (not within))
    assert {tuple(d) for d in drawn(one, 5000).tolist()} == {
        (i, j) for i in range(12) for j in range(10)
    }


def test_torchvision_s_transforms_are_drawn_by_the_seed_alone():
    one = TorchVision(transform="RandomRotation", options={"degrees": 40})
    draws, before = drawn(one), torch.random.get_rng_state()
    made = one.apply(IMAGES.clone(), draws)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(7)
    assert torch.equal(one.apply(IMAGES[5:9].clone(), draws[5:9]), made[5:9])
    torch.random.set_rng_state(before)
    # the angle is torch's own draw after the seed
    from torchvision.transforms import v2

    torch.manual_seed(int(draws[3, 0]))
    assert torch.equal(made[3], v2.RandomRotation(40)(IMAGES[3]))
    assert not torch.equal(made, IMAGES)


def test_what_a_client_trains_on_is_its_own_draw(monkeypatch):
    """Each input that reaches the network is the change, by the client's generator, of its row;
    also where clients of unequal batches train as one.
    """
    seen = {}
    original = Lane._inputs

    def watched(self, rows, sizes, active):
        for s, (x, y) in enumerate(original(self, rows, sizes, active)):
            for c, n in enumerate(sizes[s, : active[s]]):
                seen.setdefault(int(self.ids[c]), []).append((rows[s, c, :n], x[c, :n].clone()))
            yield x, y

    monkeypatch.setattr(Lane, "_inputs", watched)
    config = small(ALL, "local.steps=null", "local.epochs=2", "local.batch_size=16", "rounds=1",
                   "data.scale=unit", "local.block=4", "local.execution=vectorized")  # fmt: skip
    experiment = Experiment(config)
    experiment.step()
    data, changes = experiment.data, config.data.augment
    assert len({len(rows) for steps in seen.values() for rows, _ in steps}) > 1
    for client, steps in seen.items():
        stream = Batches(data.train[client], config.local, config.seed, 1, client)
        for rows, x in steps:
            expected = torch.from_numpy(data.samples.x[rows])
            for one in changes:
                draws = one.draw(stream.changing, len(rows), data.samples.shape)
                expected = one.apply(expected, torch.from_numpy(draws))
            torch.testing.assert_close(x, expected.float() / 255)


def test_evaluations_see_the_rows_as_they_are():
    """Nothing learnt: the losses of both are of the first model, on rows that nobody changed."""
    plain, changed = (finish(small("local.lr=1e-30", "rounds=1", *more)) for more in ([], [ALL]))
    for key in ("test_loss", "client_accuracy_mean"):
        assert plain.records[-1][key] == changed.records[-1][key]
    assert plain.records[-1]["train_loss"] != changed.records[-1]["train_loss"]


def test_blocks_and_restarts_change_no_bit(tmp_path):
    from orchestrator.conformance.forgetful import Forgetful

    config = small(ALL, "rounds=2")
    first = finish(config)
    forgetful = Experiment(config, Forgetful)
    while not forgetful.finished:
        forgetful.step()
    assert forgetful.state_sha256() == first.state_sha256()
    assert finish(small("rounds=2")).state_sha256() != first.state_sha256()


def test_one_of_one_s_own(tmp_path):
    """It is called for one input, with draws by its own seed."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def shaken(x, generator, by=1.0):\n"
        "    return x + (by * torch.randint(0, 9, x.shape, generator=generator)).to(x.dtype)\n"
        "def larger(x):\n"
        "    return torch.cat([x, x], -1)\n"
        "def wrong(x):\n"
        "    return x.nothing\n"
    )
    own = f"{tmp_path}/mine.py"
    config = load(None, ["data.limit=400", "model=linear", "rounds=1", "local.steps=2",
                         "data.augment={name: " + own + ":shaken, by: 2}"])  # fmt: skip
    assert finish(config).state_sha256() == finish(config).state_sha256()
    for name, said in (
        ("larger", r"makes torch.uint8 of shape \(1, 28, 56\)"),
        ("wrong", "'Tensor' object has no attribute 'nothing'"),
        ("absent", "has no 'absent'"),
    ):
        with pytest.raises(UserError, match=said):
            Experiment(load(None, ["data.limit=400", f"data.augment={own}:{name}"]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("data.augment=flipp", "did you mean 'flip'"),
        ("data.augment={name: torchvision, transform: RandAugmnt}", "did you mean 'RandAugment'"),
        ("data.augment={name: torchvision, transform: RandomRotation}", "TypeError"),
        ("data.augment={name: crop, padding: 0}", "greater than or equal to 1"),
    ],
)
def test_mistakes(given, said):
    with pytest.raises(UserError, match=said):
        load(None, [given])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["data.augment={name: crop, padding: 28, mode: reflect}"], "mirrors 28 pixels"),
        (["data.augment=flip", "data.dataset=synthetic", "data.partition=natural",
          "model=linear"], "flip: is of images, and an input has the shape"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_data(given, said):
    with pytest.raises(UserError, match=said):
        Experiment(load(None, given))
