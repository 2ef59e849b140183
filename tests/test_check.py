"""``fedorch new`` and ``fedorch check``: what is written passes, and each check finds its fault."""

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.cli.catalogue import KINDS
from orchestrator.cli.templates import TEMPLATES
from orchestrator.clients.ledger import Ledger
from orchestrator.conformance.battery import outcomes, trials
from orchestrator.conformance.checks import BATTERY
from orchestrator.errors import UserError
from tests.sets import quick


def fedorch(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(found.exception, UserError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("kind", quick(TEMPLATES, "aggregator"))
def test_what_is_written_runs_and_passes(here, kind):
    said = fedorch("new", f"fresh_{kind}", "--kind", kind)
    assert f"fedorch check fresh_{kind}.py" in said
    key, _ = TEMPLATES[kind]
    assert f"--set {key}=" in said
    checked = fedorch("check", f"fresh_{kind}.py")
    assert "all that apply are passed" in checked
    assert (
        "does not apply" not in checked.replace("it looks at the rows", "") or kind == "aggregator"
    )
    with pytest.raises(UserError, match="is there already"):
        fedorch("new", f"fresh_{kind}", "--kind", kind)


@pytest.mark.parametrize("name", ["", "A", "a b", "1a", "class", "a" * 90, "../a"])
def test_what_is_no_name(here, name):
    with pytest.raises(UserError, match="is no name"):
        fedorch("new", name)
    with pytest.raises(UserError, match="did you mean 'model'"):
        fedorch("new", "a", "--kind", "modell")


FAULTS = {
    "three rounds run, and nothing is NaN": """
class Part(fedorch.Aggregator):
    name: str = 'faulty'
    def weights(self, samples, counts):
        return None
    def combine(self, rows):
        return 'nothing'
""",
    "the same seed is the same bits": """
class Part(fedorch.Sampler):
    name: str = 'faulty'
    def sample(self, draw, size):
        return np.sort(np.random.default_rng().choice(draw.clients, size, replace=False))
""",
    "lost actors change no bit": """
calls = []
class Rule(fedorch.LocalRule):
    def upload(self, work):
        calls.append(1)
        return {'delta': (work.w - work.start) / len(calls)}
class Part(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        name: str = 'faulty'
    def rule(self):
        return Rule()
    def start_again(self):
        pass
""",
    "kill and resume change no bit": """
class Part(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        name: str = 'faulty'
    def apply(self, updates):
        self.done = getattr(self, 'done', 0) + 1
        before = self.w.clone()
        super().apply(updates)
        self.w = before + (self.w - before) / self.done
""",
    "vectorised is sequential": """
class Rule(fedorch.LocalRule):
    def direction(self, gradient, work):
        return gradient - 0.5 * gradient.mean(0, keepdim=True)
class Part(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        name: str = 'faulty'
    def rule(self):
        return Rule()
""",
    "sizes of blocks: rounding only": """
class Rule(fedorch.LocalRule):
    def direction(self, gradient, work):
        return gradient * len(work.clients)
class Part(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        name: str = 'faulty'
    def rule(self):
        return Rule()
""",
    "any order of rows": """
class Part(fedorch.Aggregator):
    name: str = 'faulty'
    def weights(self, samples, counts):
        return None
    def combine(self, rows):
        return fedorch.Combined(rows.updates[0], None)
""",
    "weights sum the rows to the vector": """
class Part(fedorch.Aggregator):
    name: str = 'faulty'
    def weights(self, samples, counts):
        return None
    def combine(self, rows):
        some = torch.ones(len(rows.updates)) / len(rows.updates)
        return fedorch.Combined(2 * some @ rows.updates, some)
""",
    "weights have the sum 1": """
class Part(fedorch.Aggregator):
    name: str = 'faulty'
    def weights(self, samples, counts):
        return np.ones(len(samples))
    def combine(self, rows):
        raise TypeError
""",
    "messages are each row's own": """
class Part(fedorch.Compressor):
    name: str = 'faulty'
    def compress(self, rows, draws):
        return rows - rows.mean(0, keepdim=True)
    def nbytes(self, size):
        return size
""",
    "cohorts are drawn by seed and round": """
class Part(fedorch.Sampler):
    name: str = 'faulty'
    def sample(self, draw, size):
        return np.arange(size)[::-1].copy()
""",
    "shared out by the seed": """
class Part(fedorch.Partitioner):
    name: str = 'faulty'
    def split(self, pool):
        order = np.random.default_rng().permutation(len(pool.rows))
        return np.array_split(order, pool.clients)
""",
    "loaded twice, the same": """
class Part(fedorch.Dataset):
    name: str = 'faulty'
    def read(self, request):
        x = np.random.default_rng().normal(size=(400, 5)).astype(np.float32)
        return fedorch.Samples(x, np.arange(400) % 4, 300, 4)
""",
    "built by the seed; each sample by itself": """
class Norm(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.inner = torch.nn.Linear(features, classes)
    def forward(self, x):
        out = self.inner(x.flatten(1))
        return out - out.mean(0)
class Part(fedorch.Model):
    name: str = 'faulty'
    def build(self, shape, classes):
        return Norm(784, classes)
""",
    "gradient of its values; each sample by itself": """
class Part(fedorch.Loss):
    name: str = 'faulty'
    def per_sample(self, outputs, targets):
        right = outputs.gather(1, targets[:, None])[:, 0]
        return (right.detach() - 1) * right
""",
    "each input by its own draws": """
class Part(fedorch.Augmentation):
    name: str = 'faulty'
    def draw(self, rng, n, shape):
        return rng.random((n, 1))
    def apply(self, x, draws):
        return x.flip(0)
""",
    "rounds, a resume and an end are taken": """
class Lines(fedorch.Log):
    def add(self, record):
        int(record['test_accuracy'])
class Part(fedorch.Tracker):
    name: str = 'faulty'
    def begin(self, run):
        return Lines()
""",
    "who is malicious is by the seed": """
class Part(fedorch.Forging):
    name: str = 'faulty'
    def malicious(self, seed, clients):
        return np.array([clients])
    def forge(self, honest, benign, draws):
        return honest
""",
}


def outcomes_of(file):
    """Check -> what came of it, of the one part in the file."""
    (trial,) = trials(file, KINDS)
    return {one.check: one for one in outcomes(trial, lambda title: None)}


@pytest.mark.parametrize(
    "title",
    quick(FAULTS, "kill and resume change no bit", "any order of rows", "shared out by the seed"),
)
def test_each_check_finds_its_fault(here, title):
    (here / "faulty.py").write_text(
        "import numpy as np\nimport torch\nimport fedorch\n" + FAULTS[title]
    )
    found = outcomes_of("faulty.py")
    assert found[title].said == "fails", found
    assert found[title].why
    with pytest.raises(UserError, match="checks fail"):
        fedorch("check", "faulty.py")


def test_a_metric_whose_value_is_no_number_is_found(here):
    (here / "tensors.py").write_text(
        "import fedorch\n"
        "class Part(fedorch.Metric):\n"
        "    name: str = 'tensors'\n"
        "    def value(self, outputs, targets):\n"
        "        return outputs.mean()\n"
    )
    found = outcomes_of("tensors.py")
    assert "its value is a Tensor" in found["any order of rows"].why


def test_bytes_that_are_not_booked_are_found(here, monkeypatch):
    monkeypatch.setattr(Ledger, "received", lambda self, ids, nbytes: None)
    (here / "fine.py").write_text(
        "import fedorch\n"
        "class Part(fedorch.FedAvg):\n"
        "    class Options(fedorch.FedAvg.Options):\n"
        "        name: str = 'fine'\n"
    )
    found = outcomes_of("fine.py")
    assert "and 0 are booked" in found["the ledger has what is sent"].why


def test_every_check_has_a_fault():
    known = {*FAULTS, "the ledger has what is sent"}
    assert {check.title for check in BATTERY} == known


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "it defines no parts"),
        ("import nothing_there", "ModuleNotFoundError"),
        ("1 +", "line 1"),
    ],
)
def test_what_cannot_be_checked(here, text, message):
    (here / "other.py").write_text(text)
    with pytest.raises(UserError, match=message):
        fedorch("check", "other.py")
