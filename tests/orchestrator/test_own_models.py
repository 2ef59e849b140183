"""A network of one's own by the path of its file, called with what its signature asks for."""

import json

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.orchestrator.test_cli import here
from tests.orchestrator.test_plugins import forget
from tests.running import finish, resumed, run_into

NETS = '''import torch
from torch import nn


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, in_channels, num_classes, width=8, *, act="relu"):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784 * in_channels, width))
        self.act, self.head = getattr(torch, act), nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.act(self.body(x)))


def plain(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))


def needs(classes, depth):
    return plain(None, classes)


def anything(**options):
    return plain(None, options["classes"])


def double(classes):
    return plain(None, classes).double()


def brain(classes):
    return plain(None, classes).bfloat16()


def frozen(classes):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 20).bfloat16(), nn.Linear(20, classes))
    net[1].requires_grad_(False)
    return net


def lazy(classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def imaginary(classes):
    net = plain(None, classes)
    net[1].weight = nn.Parameter(net[1].weight.to(torch.complex64))
    return net


def narrow(classes):
    return plain(None, classes - 1)


def pair(classes):
    class Two(nn.Module):
        def forward(self, x):
            return x, x
    return Two()


def breaks(classes):
    raise RuntimeError("no such thing")


def number(classes):
    return 3


CONSTANT = 3
'''
CONFIG = {
    "model": "./nets.py:Net", "rounds": 3, "cohort": 4, "data": {"limit": 400, "clients": 6},
    "local": {"steps": 3, "block": 2}, "checkpoint": {"every": 1},
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "nets.py").write_text(NETS)
    (tmp_path / "c" / "x.yaml").write_text(yaml.safe_dump(CONFIG))
    yield tmp_path / "c" / "x.yaml"
    forget()


def of(config, name, **options):
    model = {"name": f"{config.parent}/nets.py:{name}", **options}
    return load(config, [f"model={json.dumps(model)}"])


def test_it_is_the_model(config, company):
    """With its options, its first weights by the seed, on both planes, resumed."""
    small, large = of(config, "Net"), of(config, "Net", width=30, act="tanh", init="glorot")
    net = Experiment(large).net
    assert isinstance(net.module, nn.Module)
    assert type(net.module).__name__ == "Net"
    assert net.spec.size == 784 * 30 + 30 + 300 + 10
    assert not net.module.head.bias.any()
    assert large.model.init == "glorot"
    again = finish(of(config, "Net"))
    assert finish(small).weights_sha256() == again.weights_sha256()
    chosen = load(config, ["resources.actors=2"])
    assert finish(chosen, company.plane(chosen)).weights_sha256() == again.weights_sha256()


def test_a_run_has_it(config, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config), stop_at=1)
    (config.parent / "nets.py").unlink()
    forget()
    resumed, _ = run_into(folder, resuming=True)
    (config.parent / "nets.py").write_text(NETS)
    assert resumed.weights_sha256() == finish(load(config)).weights_sha256()
    code, text = here("compare", folder.path)
    assert code == 0, text


def test_a_function_does(config):
    for name in ("plain", "anything"):
        chosen = of(config, name, **({"classes": 10} if name == "anything" else {}))
        with torch.random.fork_rng():
            assert Experiment(chosen).net.spec.size == 7850


WRONG = {
    "Nett": "no 'Nett'; did you mean 'Net'",
    "needs": "needs depth: give it among the options",
    "double": "the parameter 1.weight is torch.float64, and torch.float32 is what is trained",
    "brain": "the parameter 1.weight is torch.bfloat16, and torch.float32",
    "frozen": "1.weight is torch.bfloat16, which NumPy does not have",
    "lazy": "1.weight has no shape yet",
    "imaginary": "the parameter 1.weight is torch.complex64, and real numbers are trained",
    "narrow": "makes torch.float32 of shape (5, 9)",
    "pair": "makes tuple of inputs",
    "breaks": "RuntimeError: no such thing",
    "number": "makes a int, and no nn.Module",
    "CONSTANT": "is a int, which cannot be called",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_model(name, config):
    with pytest.raises(UserError, match="config: ") as told:
        Experiment(of(config, name))
    assert WRONG[name] in str(told.value)


def test_wrong_options_and_places(config):
    with pytest.raises(UserError, match=r"takes no 'widht'; did you mean 'width'"):
        Experiment(of(config, "Net", widht=3))
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.py"):
        load(config, ["model=nowhere.py:Net"])
    with pytest.raises(
        UserError, match=r"size mismatch|shapes cannot be multiplied|inputs of shape"
    ):
        Experiment(of(config, "Net", in_channels=3))
    with pytest.raises(UserError, match="there is no plugin 'nothing'"):
        load(None, ["model={name: own, of: 'nothing:Net'}"])
    with pytest.raises(UserError, match="there is no plugin 'os'"):
        load(None, ["model={name: own, of: 'os:system', options: {command: 'true'}}"])


def test_recurrent_layers_are_trained_one_client_after_the_other(tmp_path):
    """torch has no batching rule for them; it was a fault of ours under ``auto``."""
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n"
        "class Reads(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.inner, self.head = nn.LSTM(28, 4, batch_first=True), nn.Linear(4, classes)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.inner(x[:, 0])[0][:, -1])\n"
    )
    config = load(None, [f"model={tmp_path}/nets.py:Reads", "data.limit=200", "data.clients=3",
                         "cohort=3", "rounds=1", "local.steps=1"])  # fmt: skip
    assert finish(config).config.local.execution == "sequential"


DRAWING = """import numpy as np
import torch
from torch import nn


class Noisy(nn.Module):
    def __init__(self, classes, kind="training"):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(784, classes)

    def forward(self, x):
        x = x.flatten(1)
        if self.kind == "numpy" and self.training:
            x = x + float(np.random.rand())
        elif self.training or self.kind == "always":
            x = x + 0.1 * torch.randn(x.shape)
        return self.head(x)
"""


def test_draws_of_its_own_are_keyed(config, company):
    """They are found by trying; and a network whose draws cannot be keyed is refused."""
    (config.parent / "nets.py").write_text(DRAWING)
    drawing = of(config, "Noisy")
    once = finish(drawing)
    assert once.config.local.execution == "sequential"
    torch.rand(3)
    assert finish(drawing).weights_sha256() == once.weights_sha256()
    model = json.dumps({"name": f"{config.parent}/nets.py:Noisy"})
    chosen = load(config, [f"model={model}", "resources.actors=2"])
    assert finish(chosen, company.plane(chosen)).weights_sha256() == once.weights_sha256()
    for kind, said in (("always", "differ in evaluation"), ("numpy", "differ from pass to pass")):
        with pytest.raises(UserError, match=said):
            Experiment(of(config, "Noisy", kind=kind))


def test_inputs_are_tried_as_they_are(tmp_path):
    """Token ids are whole numbers, which an embedding wants."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "ids.npz", x=rng.integers(0, 20, (60, 5)), y=np.arange(60) % 3)
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n"
        "class Reads(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.words, self.head = nn.Embedding(20, 4), nn.Linear(4, classes)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.words(x).mean(1))\n"
    )
    config = load(None, [f"model={tmp_path}/nets.py:Reads", "data.clients=3", "cohort=3",
                         f"data.dataset={{name: npz, path: {tmp_path}/ids.npz}}", "rounds=1",
                         "local.steps=1", "data.partition=iid"])  # fmt: skip
    assert np.isfinite(finish(config).records[-1]["test_loss"])


STATEFUL = """import torch
from torch import nn


class Keeps(nn.Module):
    def __init__(self, classes, kind="plain"):
        super().__init__()
        self.kind, self.count, self.seen = kind, 0, []
        self.box, self.loose = [{"n": 0}], [torch.zeros(())][0]
        self.missing = float("nan")
        self.generator = torch.Generator().manual_seed(0)
        self.head = nn.Linear(784, classes)
        if kind == "normed":
            self.head = nn.Sequential(nn.Linear(784, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, classes))
        if kind == "weights":
            self.head = torch.nn.utils.weight_norm(self.head)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        x = x.flatten(1)
        if self.training and self.kind == "own":
            x = x + torch.randn(x.shape, generator=self.generator)
        if self.training and self.kind == "counts":
            self.count += 1
            x = x * self.count
        if self.training and self.kind == "buffer":
            self.steps += 1
            x = x * self.steps
        if self.training and self.kind == "tired":
            self.count += 1
            x = x * (1 if self.count < 50 else 0.5)
        if self.training and self.kind == "hoards":
            self.seen.append(len(x))
            x = x * (1 if len(self.seen) < 50 else 0.5)
        if self.training and self.kind == "inside":
            self.box[0]["n"] += 1
            x = x * (1 if self.box[0]["n"] < 50 else 0.5)
        if self.training and self.kind == "tensor":
            self.loose += 1
            x = x * (1 if self.loose < 50 else 0.5)
        if self.training and self.kind == "later":
            self.steps += 1
            x = x * (1 if self.steps < 50 else 0.5)
        return self.head(x)
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        *((kind, "differ from pass to pass") for kind in ("own", "counts", "buffer", "normed")),
        ("later", "changes its buffer steps, which is torch.int64"),
        ("tired", "each pass in training changes its count"),
        ("hoards", "each pass in training changes its seen"),
        ("inside", "each pass in training changes its box"),
        ("tensor", "each pass in training changes its loose"),
    ],
)
def test_what_a_network_keeps_that_is_not_sent_is_refused(config, kind, said):
    """It would differ from actor to actor, and after a resume."""
    (config.parent / "nets.py").write_text(STATEFUL)
    with pytest.raises(UserError, match=said):
        Experiment(of(config, "Keeps", kind=kind))


def test_batch_norm_may_count(config):
    (config.parent / "nets.py").write_text(
        """from torch import nn

def normed(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.BatchNorm1d(5), nn.Linear(5, classes))
"""
    )
    assert np.isfinite(Experiment(of(config, "normed")).step()["train_loss"])


def test_a_network_that_cannot_be_copied_is_tried_all_the_same(config):
    (config.parent / "nets.py").write_text(STATEFUL)
    tried = Experiment(of(config, "Keeps", kind="weights"))
    assert not tried.net.may_draw
    assert tried.net.module.training
    assert np.isfinite(tried.step()["train_loss"])


def test_one_row_is_tried_too(config):
    (config.parent / "nets.py").write_text(
        NETS
        + """

class Squeezed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(784, classes)

    def forward(self, x):
        return self.head(x.flatten(1)).squeeze(0)
"""
    )
    with pytest.raises(
        UserError, match=r"makes torch.float32 of shape \(10,\) of inputs of shape \(1,"
    ):
        Experiment(of(config, "Squeezed"))


WEIGHTS = """import numpy as np
import torch
from torch import nn


class Drawn(nn.Module):
    def __init__(self, classes, kind="numpy"):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(784, classes)
        if kind == "numpy":
            self.head.weight.data = torch.tensor(np.random.rand(classes, 784), dtype=torch.float32)
        if kind == "frozen":
            self.requires_grad_(False)
        if kind == "features":
            self.register_buffer("features", torch.tensor(np.random.randint(9, size=784)))

    def forward(self, x):
        out = self.head(x.flatten(1))
        return out - out.mean(0) if self.kind == "mixed" else out
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("numpy", "first weights differ"),
        ("frozen", "no parameters"),
        ("features", "beside its weights .* differs from one time to the next"),
        ("mixed", "on the other inputs"),
    ],
)
def test_weights_and_batches(config, kind, said):
    """By the seed; to be trained; and each input judged by itself."""
    (config.parent / "nets.py").write_text(WEIGHTS)
    with pytest.raises(UserError, match=said):
        Experiment(of(config, "Drawn", kind=kind))


def test_options_have_one_more_spelling(config):
    """The one that a run's config has, and a sweep's axes."""
    same = [load(config, [f"model={json.dumps({'name': f'{config.parent}/nets.py:Net', **o})}"])
            for o in ({"width": 5}, {"options": {"width": 5}})]  # fmt: skip
    assert same[0].model == same[1].model
    assert load(config, ["model.options.width=7"]).model.options == {"width": 7}


MODES = """import torch
from torch import nn


class Modes(nn.Module):
    def __init__(self, classes, kind="quarter"):
        super().__init__()
        self.kind = kind
        self.head, self.body = nn.Linear(8, classes), nn.Linear(784, 8)

    def forward(self, x):
        x = x.flatten(1)
        if self.kind == "mean" and self.training:
            x = x + 0.5 * x.mean(0)
        out = self.head(torch.relu(self.body(x)))
        return out / 4 if self.kind == "quarter" and self.training else out
"""


def test_a_network_is_trained_in_training_mode_whatever_is_judged_between(config):
    """Also where clients are trained at once: an evaluation had left it in its own mode."""
    (config.parent / "nets.py").write_text(MODES)
    model = f"model={config.parent}/nets.py:Modes"

    def digest(*settings):
        return finish(load(config, [model, "rounds=4", *settings])).weights_sha256()

    at_once = digest("local.execution=vectorized")
    assert digest("local.execution=vectorized", "evaluation.every=4") == at_once
    one = finish(load(config, [model, "rounds=4", "local.execution=sequential"]))
    both = finish(load(config, [model, "rounds=4", "local.execution=vectorized"]))
    torch.testing.assert_close(one.algorithm.w, both.algorithm.w, rtol=1e-4, atol=1e-5)


FROZEN = """import torch
from torch import nn


class Frozen(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, classes)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()  # and nothing is returned

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x.flatten(1)))))


class Begun(Frozen):
    def __init__(self, classes):
        super().__init__(classes)
        self.norm.eval()

    train = nn.Module.train
"""


@pytest.mark.parametrize("name", ["Frozen", "Begun"])
def test_a_network_that_sets_its_parts_modes_itself_is_told_before_its_first_step(config, name):
    """Its train() was first called after an evaluation: how often one looked decided the bits."""
    (config.parent / "nets.py").write_text(FROZEN)
    model = f"model={config.parent}/nets.py:{name}"
    runs = [finish(load(config, [model, "rounds=4", f"evaluation.every={n}"])) for n in (1, 4)]
    assert runs[0].weights_sha256() == runs[1].weights_sha256()
    before = Net.of(runs[0].config.model, (1, 28, 28), 10, 0).initial_buffers
    assert torch.equal(runs[0].algorithm.statistics(), before) == (name == "Frozen")


def test_a_network_that_mixes_its_batch_is_not_padded(config):
    (config.parent / "nets.py").write_text(MODES)
    mixing = of(config, "Modes", kind="mean")
    assert Experiment(mixing).config.local.execution == "sequential"
    raw = {"name": f"{config.parent}/nets.py:Modes", "kind": "mean"}
    with pytest.raises(UserError, match="depends on the others of the batch"):
        Experiment(load(config, [f"model={json.dumps(raw)}", "local.execution=vectorized"]))


def test_what_enters_the_last_layer_is_of_the_one_that_is_called_last(config):
    """The head is named first in the class; MOON's features are the body's outputs all the same."""
    (config.parent / "nets.py").write_text(MODES)
    net = Experiment(of(config, "Modes")).net
    net.module.eval()
    x = torch.rand(3, 1, 28, 28)
    _, features = net.featured(x)
    torch.testing.assert_close(features, torch.relu(net.module.body(x.flatten(1))))


def test_a_batch_of_one_row_is_refused_where_batch_norm_can_make_nothing_of_it(config):
    (config.parent / "nets.py").write_text(
        "from torch import nn\n\n"
        "def normed(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))\n"
        "def spread(classes):\n"
        "    return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, classes))\n"
    )
    even = [
        "data.partition=iid",
        "data.clients=4",
        "cohort=4",
        "data.limit=132",
        "rounds=1",
        "local={epochs: 1, batch_size: 32}",
    ]

    def built(name, *settings):
        return Experiment(load(config, [f"model={config.parent}/nets.py:{name}", *even, *settings]))

    with pytest.raises(
        UserError, match=r"client 0 has 33, of which a mini-batch \(of 32\) has one"
    ):
        built("normed")
    with pytest.raises(UserError, match="in pieces of 1"):
        built("normed", "local.batch_size=11", "local.micro_batch=1")
    for fine in (
        ["local.drop_last=true"],
        ["local.batch_size=11"],
        ["local={steps: 1, batch_size: 32}"],
    ):
        assert built("normed", *fine).step()["steps"] > 0
    assert built("spread").step()["steps"] == 2


SCALED = """import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(784, classes)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.scale * self.head(x.flatten(1))


class Counted(Scaled):
    def __init__(self, classes):
        super().__init__(classes)
        self.register_buffer("seen", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            self.seen.mul_(0.9).add_(0.1)
        return super().forward(x)
"""


@pytest.mark.parametrize("name", ["Scaled", "Counted"])
def test_a_number_that_is_learned(config, tmp_path, name):
    """A parameter, and a buffer, with no axis: trained in both ways, resumed, kept and used."""
    (config.parent / "nets.py").write_text(SCALED)
    model = f"model={json.dumps({'name': f'{config.parent}/nets.py:{name}'})}"
    ends = [finish(load(config, [model, f"local.execution={how}"]))
            for how in ("sequential", "vectorized" if name == "Scaled" else "sequential")]  # fmt: skip
    once, other = (e.algorithm.model() for e in ends)
    torch.testing.assert_close(once, other, rtol=1e-4, atol=1e-5)
    scale = ends[0].net.spec.views(once)["scale"]
    assert scale.shape == ()
    assert float(scale) != 0.5
    assert resumed(ends[1].config, tmp_path, 1).state_sha256() == ends[1].state_sha256()


def test_a_number_in_a_barycenter(config):
    (config.parent / "nets.py").write_text(SCALED)
    model = f"model={json.dumps({'name': f'{config.parent}/nets.py:Scaled'})}"
    end = finish(load(config, [model, "algorithm=feddual", "aggregator.layers=2"]))
    assert np.isfinite(end.records[-1]["test_loss"])


def test_a_buffer_of_a_finer_type_is_tried_as_it_is_trained(config):
    """In the flat vector it is float32, so what passes in float64 alone is refused at once."""
    (config.parent / "nets.py").write_text(
        """import torch
from torch import nn


class Shifted(nn.Module):
    def __init__(self, classes, cast=True):
        super().__init__()
        self.cast, self.head = cast, nn.Linear(784, classes)
        self.register_buffer("shift", torch.zeros(784, 784, dtype=torch.float64))

    def forward(self, x):
        x = x.flatten(1).double()
        return self.head((x @ (self.shift.double() if self.cast else self.shift)).float())
"""
    )
    with pytest.raises(UserError, match=r"inputs of shape \(5, 1, 28, 28\)"):
        Experiment(of(config, "Shifted", cast=False))
    tried = Experiment(of(config, "Shifted"))
    assert np.isfinite(tried.step()["train_loss"])


ODD = """import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self, classes, kind):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(784, classes)
        self.register_buffer("mean", torch.zeros(784))
        if kind == "shared":
            self.bias = nn.Parameter(self.head.bias.data[2:])
        self.code = nn.Parameter(torch.zeros(784), requires_grad=False)
        if kind == "columns":
            both = torch.zeros(5, 4)
            self.left, self.right = (nn.Parameter(half) for half in both.chunk(2, 1))
        if kind == "whole":
            self.whole = nn.Parameter(torch.zeros(4, 3), requires_grad=False)
            self.rows = nn.ParameterList([self.whole.data[1], self.whole.data[2]])
            self.rows[0].requires_grad = False
        if kind == "watched":
            self.register_buffer("watch", self.head.bias.detach())
        if kind == "late":
            self.head.bias.register_post_accumulate_grad_hook(print)

    def forward(self, x):
        x = x.flatten(1)
        if self.training and self.kind == "assigned":
            self.mean = x.detach().mean(0)
        if self.training and self.kind == "code":
            self.code = nn.Parameter(x.detach().mean(0), requires_grad=False)
        if self.training and self.kind == "data":
            self.head.weight.data = self.head.weight.data.clamp(-1, 1)
        if self.training and self.kind == "clamped":
            with torch.no_grad():
                self.head.weight.clamp_(-1, 1)
        return self.head(x - self.mean)
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("shared", "head.bias and bias share memory"),
        ("watched", "head.bias and watch share memory"),
        ("late", "head.bias has a hook for when its gradient is in .grad"),
        ("whole", "whole and rows.1 share memory"),
        ("code", "puts another tensor in the place of its parameter code"),
        ("data", r"of its parameter head\.weight, .*self\.head\.weight\.data\.copy_\("),
        ("assigned", r"puts another tensor in the place of its buffer mean, .*self.mean.copy_\("),
    ],
)
def test_what_a_plain_loop_would_heed_and_a_flat_vector_does_not_is_refused(config, kind, said):
    """They had been trained as something else: parts by themselves, without the hook, on old means."""
    (config.parent / "nets.py").write_text(ODD)
    with pytest.raises(UserError, match=said):
        Experiment(of(config, "Odd", kind=kind))


@pytest.mark.parametrize("kind", ["columns", "clamped"])
def test_what_shares_nothing_and_writes_in_place_is_right(config, kind):
    (config.parent / "nets.py").write_text(ODD)
    assert np.isfinite(Experiment(of(config, "Odd", kind=kind)).step()["train_loss"])
