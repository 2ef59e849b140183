"""Parts of a user's own: found by what a config names, the same everywhere, refused when changed."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import retire, variants
from algorithms.parts.aggregators import Aggregator
from orchestrator.cluster import jobs
from orchestrator.config import build, load
from orchestrator.errors import UserError
from orchestrator.plugins import sources, taken
from orchestrator.plugins.blame import blamed
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.taken import take_named
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.asked import asked_of, require_same_metrics
from orchestrator.rounds.drive import begin
from orchestrator.rounds.experiment import Experiment
from sweeps.plan import read_sweep
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish, run_into
from tests.sweeps.plans import results
from tests.sweeps.trials import run_here

MINE = '''"""An algorithm whose clients remember, an aggregator and a model."""
from dataclasses import dataclass

import torch
from torch import nn

from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule
from algorithms.part import option
from algorithms.parts.aggregators import WeightedMean
from orchestrator.models import Model


@dataclass(frozen=True)
class Pull(LocalRule):
    strength: float

    def state(self, received, spec):
        return {"last": torch.zeros_like(received["w"])}

    def direction(self, gradient, work):
        pulled = gradient + self.strength * work.state["last"]
        work.state["last"] = work.state["last"] + gradient
        return pulled


class Mine(FedAvg):
    class Options(FedAvg.Options):
        """FedAvg with a memory of gradients."""

        name: str = "mine"
        strength: float = option(0.01, "of the memory", ge=0)

    def rule(self):
        return Pull(self.options.strength)


class Half(WeightedMean):
    """Half of the weight is the first client's."""

    name: str = "half"

    def weights(self, samples, counts):
        weights = 0.5 * super().weights(samples, counts)
        weights[0] += 1 - weights.sum()
        return weights


class Tiny(Model):
    """Two layers."""

    name: str = "tiny"
    width: int = option(8, "of the hidden layer", ge=1)

    def build(self, shape, classes):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, self.width), nn.ReLU(), nn.Linear(self.width, classes)
        )
'''
CONFIG = {
    "plugins": ["parts/mine.py"], "algorithm": {"name": "mine", "strength": 0.1},
    "aggregator": "half", "model": {"name": "tiny", "width": 6}, "rounds": 4, "cohort": 4,
    "data": {"limit": 400, "clients": 6}, "local": {"steps": 3, "block": 2},
    "checkpoint": {"every": 1},
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """A config, and the plugin that it names from its own folder."""
    (tmp_path / "c" / "parts").mkdir(parents=True)
    (tmp_path / "c" / "parts" / "mine.py").write_text(MINE)
    file = tmp_path / "c" / "mine.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    yield file
    forget()


def forget():
    """Nothing of a plugin is left in this process."""
    for module in [m for m in sys.modules if m.startswith(f"{sources.PACKAGE}.")]:
        retire(module)
        del sys.modules[module]
    sources.SOURCES.clear()


def test_a_run_has_its_plugin_with_it(config, tmp_path):
    """In its folder, by its digest, also when the file is gone; killed and resumed, with equal bits."""
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    alone, _ = run_into(whole, load(config))
    run_into(cut, load(config), stop_at=2)
    (config.parent / "parts" / "mine.py").unlink()
    assert (cut.path / "plugins" / "mine.py").read_text() == MINE
    forget()
    assert "mine" not in variants(AlgorithmOptions)
    resumed, _ = run_into(cut, resuming=True)
    assert resumed.weights_sha256() == alone.weights_sha256()
    assert cut.result()["state_sha256"] == whole.result()["state_sha256"]
    (digest,) = whole.result()["plugins"].values()
    assert digest == cut.config().plugins[0].sha256
    assert str(tmp_path) not in (whole.path / "config.yaml").read_text()


def test_its_parts_are_in_effect(config):
    mine = finish(load(config))
    other = finish(load(config, ["algorithm.strength=0"]))
    usual = finish(load(config, ["algorithm=fedavg"]))
    assert mine.weights_sha256() != other.weights_sha256() == usual.weights_sha256()
    assert mine.net.spec.size == 784 * 6 + 6 + 60 + 10


def test_a_changed_plugin_ends_the_run(config, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config), stop_at=2)
    (folder.path / "plugins" / "mine.py").write_text(MINE + "\n")
    forget()
    with pytest.raises(UserError, match="is not what it was"):
        run_into(folder, resuming=True)


def test_a_run_goes_on_with_a_plugin_that_is_named(config, tmp_path):
    """Another one of the same name, from the next round on; the results say so."""
    (config.parent / "parts" / "nets.py").write_text(NETS)
    settings = [f"model={config.parent}/parts/nets.py:Own"]
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config, settings), stop_at=2)
    before = folder.plugins()
    newer = tmp_path / "mine.py"
    newer.write_text(MINE.replace("0.5 * super()", "0.25 * super()"))
    forget()
    code, text = here("run", "--resume", folder.path, "--plugin", newer, "--in-process")
    assert code == 0, text
    after = folder.plugins()
    assert after["mine"] != before["mine"]
    assert after["nets"] == before["nets"]
    assert folder.result()["plugins"] == after
    (note,) = folder.result()["notes"]
    assert "plugin mine is another one from round 3 on" in note
    assert "0.25" in (folder.path / "plugins" / "mine.py").read_text()
    forget()
    newest = tmp_path / "newest"
    newest.mkdir()
    (newest / "mine.py").write_text(MINE.replace("0.5 * super()", "0.125 * super()"))
    code, text = here(
        "run", "--resume", folder.path, "--plugin", newest / "mine.py", "--in-process"
    )
    assert code == 2
    assert "the run is finished, and nothing of it would be by another plugin mine" in text
    assert folder.plugins() == after
    forget()
    code, text = here("run", "--resume", folder.path, "--plugin", config.parent / "nothing.py")
    assert code == 2
    assert "the run has no plugin 'nothing'; it has mine, nets" in text


def test_the_note_of_an_exchange_outlives_a_kill(config, tmp_path, monkeypatch):
    """It is in a checkpoint before config.yaml says that the run goes on with another."""
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config, ["checkpoint.every=100"]), stop_at=2)
    newer = tmp_path / "mine.py"
    newer.write_text(MINE.replace("0.5 * super()", "0.25 * super()"))
    forget()
    experiment = Experiment(folder.config([str(newer)]))
    begin(experiment, folder, resuming=True)  # and then the process is killed
    forget()
    run_into(folder, resuming=True)
    assert "plugin mine is another one from round 3 on" in folder.result()["notes"][0]


def test_a_module_that_was_changed_after_its_import_needs_another_process(tmp_path, monkeypatch):
    (tmp_path / "changing_parts.py").write_text("STRENGTH = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    take_named(["changing_parts"])
    take_named(["changing_parts"])
    (tmp_path / "changing_parts.py").write_text("STRENGTH = 2\n")
    with pytest.raises(UserError, match="changed since this process has imported it"):
        take_named(["changing_parts"])


NETS = """from torch import nn


class Own(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(784, classes)

    def forward(self, x):
        return self.head(x.flatten(1))
"""


def test_another_version_takes_the_place_of_the_first(config):
    """In one process, as in a notebook: the parts are those of the file as it is now."""
    first = load(config)
    (config.parent / "parts" / "mine.py").write_text(MINE.replace("0.01", "0.07"))
    second = load(config, ["algorithm={name: mine}"])
    assert second.algorithm.strength == 0.07
    assert first.plugins != second.plugins
    (config.parent / "parts" / "mine.py").write_text(MINE)
    assert load(config, ["algorithm={name: mine}"]).algorithm.strength == 0.01


def test_actors_find_it(config, company):
    """On other nodes, too: they ask the cluster for the file."""
    chosen = load(config, ["resources.actors=2"])
    there, alone = finish(chosen, company.plane(chosen)), finish(chosen)
    assert there.weights_sha256() == alone.weights_sha256()


def test_a_sweep_s_trials_have_its_plugins(config, tmp_path, ray_session):
    sweep = {"base": "c/mine.yaml", "axes": {"algorithm.strength": [0.0, 0.1]}, "loggers": []}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(sweep))
    plan = read_sweep(tmp_path / "s.yaml")
    assert "parts/mine.py" not in plan.model_dump_json()
    run_here(plan, tmp_path / "s")
    found = results(tmp_path / "s")
    assert len({r["weights_sha256"] for r in found.values()}) == 2
    assert all(r["plugins"].keys() == {"mine"} for r in found.values())
    for axis in ({"axes": {"plugins": [["a.py"], ["b.py"]]}}, {"set": ["plugins=[a.py]"]}):
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(sweep | axis))
        with pytest.raises(UserError, match="have those of its base"):
            read_sweep(tmp_path / "s.yaml")


def test_commands_know_it(config, tmp_path):
    file = config.parent / "parts" / "mine.py"
    code, text = here("list", "aggregators", "--plugin", file)
    assert code == 0
    assert "Half of the weight is the first client's (mine.py)" in text
    code, text = here("describe", "mine", "--plugin", file)
    assert code == 0
    assert "of the memory" in text
    out = tmp_path / "out"
    code, text = here(
        "run", "--in-process", "--plugin", file, "--set", "algorithm=mine", "--set", "data.limit=400",
        "--set", "model=linear", "--set", "rounds=1", "--set", "local.steps=1", "--out", out,
    )  # fmt: skip
    assert code == 0, text
    assert json.loads((out / "result.json").read_text())["plugins"].keys() == {"mine"}
    code, text = here("run", "--in-process", "--set", "algorithm=mino", "--plugin", file)
    assert code == 2
    assert "did you mean 'mine'" in text


def test_a_default_that_follows_from_another_is_described(tmp_path):
    """KeyError: its factory was asked without the other."""
    (tmp_path / "dep.py").write_text(
        "import fedorch\n"
        "from pydantic import Field\n"
        "class Twice(fedorch.Weigher):\n"
        "    name: str = 'twice'\n"
        "    w: int = fedorch.option(2, 'a number')\n"
        "    v: int = Field(default_factory=lambda own: 2 * own['w'], description='twice w')\n"
        "    def start(self, slots, observation, seed):\n"
        "        return None\n"
    )
    code, text = here("describe", "twice", "--plugin", tmp_path / "dep.py")
    assert code == 0, text
    assert "by other" in text


FIGURE = """
import fedorch


class Mine(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        name: str = "mine"
        records = {"lost": "seconds lost"}
        figures = (fedorch.Figure("slowness", "How slow", "seconds", "s", {"lost": "lost"}),)

    def round(self, t, clients):
        return super().round(t, clients) | {"lost": 0.1 * t}
"""


def test_its_figures_are_drawn_by_a_process_that_has_not_run_it(config, tmp_path):
    """The page of the run had them, and `plot` did not know them."""
    (config.parent / "parts" / "mine.py").write_text(FIGURE)
    settings = ["algorithm={name: mine}", "aggregator=mean", "model=linear", "rounds=2"]
    run_into(RunFolder(tmp_path / "run"), load(config, settings))
    forget()
    code, text = here("plot", tmp_path / "run")
    assert "How slow: seconds" in " ".join(text.split()), text
    forget()
    picture = tmp_path / "slow.svg"
    code, text = here("plot", tmp_path / "run", "--figure", "slowness", "--out", picture)
    assert (code, picture.is_file()) == (0, True), text


MEASURE = "def above(outputs, targets, *, level=0.5):\n    return float(outputs.amax(1).gt(level).sum())\n"


def test_a_metric_is_one_in_all_rounds(config, tmp_path):
    """Its options are the config's, which a run that is resumed may have others of."""
    (tmp_path / "measure.py").write_text(MEASURE)
    named = f"{tmp_path}/measure.py:above"
    base = ["algorithm=fedavg", "aggregator=mean", "model=linear", "plugins=[]"]

    def wanted(rounds, metrics):
        return load(
            config, [*base, f"rounds={rounds}", f"evaluation.metrics={json.dumps(metrics)}"]
        )

    folder = RunFolder(tmp_path / "run")
    low, high = ({"name": named, "level": level, "better": "more"} for level in (0.1, 0.9))
    run_into(folder, wanted(1, [low]))
    folder.open(wanted(2, [high, "f1_macro"]))
    with pytest.raises(UserError, match=r"above was recorded with other settings \(options\)"):
        run_into(folder, resuming=True)
    folder.open(wanted(2, [low, "f1_macro"]))
    e, _ = run_into(folder, resuming=True)
    assert ["test_f1_macro" in record for record in e.records] == [False, True]
    # nor by way of a round without it
    gone = asked_of(wanted(2, ["f1_macro"]), e.asked)
    with pytest.raises(UserError, match="above was recorded with other settings"):
        require_same_metrics(asked_of(wanted(2, [high]), {}), gone, "here")


CALLED = """
import fedorch


class Counted(fedorch.Metric):
    name: str = "{name}"
    k: int = fedorch.option(1, "of it")

    @property
    def called(self):
        return f"hits{{self.k}}"

    def value(self, outputs, targets):
        return float(self.k)
"""


def test_a_metric_is_one_by_what_it_is_recorded_as(tmp_path):
    """Not by its name: two of one name have columns of their own, two of one column are refused."""
    for name in ("some", "more"):
        (tmp_path / f"{name}.py").write_text(CALLED.format(name=name))
    plugins = [str(tmp_path / f"{name}.py") for name in ("some", "more")]

    def asked(*metrics):
        given = [f"plugins={json.dumps(plugins)}", f"evaluation.metrics={json.dumps(metrics)}"]
        return asked_of(small(*given), {})

    two, first = ({"name": "some", "k": k} for k in (2, 1))
    both = asked(two, first)
    assert {*both["metrics"]} == {"hits1", "hits2"}
    require_same_metrics(asked(two), both, "here")
    with pytest.raises(UserError, match=r"hits2 was recorded with other settings \(name\)"):
        require_same_metrics(asked({"name": "more", "k": 2}), both, "here")


WRONG = {
    "import nowhere_at_all": "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'",
    "x = 1\ny = x +": "line 2: SyntaxError: invalid syntax",
    "\n\nraise SystemExit(3)": "line 3: SystemExit: 3",
    "from algorithms.parts.aggregators import Mean\nclass M(Mean):\n    name: str = 'median'":
        "M is named 'median', as algorithms.parts",
    "from algorithms.fedavg import FedAvg\nclass M(FedAvg):\n    class Options(FedAvg.Options):\n"
    "        name: str = 'fedprox'": "M.Options is named 'fedprox', as algorithms.fedprox.FedProx",
    "\xff": "cannot be read",
    "#" * 2_000_000: "2000000 bytes are more than code has",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_file_is_a_sentence(text, tmp_path):
    (tmp_path / "wrong.py").write_bytes(text.encode("latin1"))
    before = set(variants(Aggregator))
    for _ in range(2):
        with pytest.raises(UserError, match=r"^plugins: ") as told:
            build({"plugins": [str(tmp_path / "wrong.py")]})
        assert WRONG[text] in str(told.value)
        assert set(variants(Aggregator)) == before
    forget()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["nowhere.py"], "cannot read nowhere.py"),
        (["nowhere_at_all"], "there is no module 'nowhere_at_all'"),
        (["nowhere_at_all.of.it"], "there is no module 'nowhere_at_all.of.it'"),
        (["a-b.py"], "named by letters, digits and _"),
        ([{"name": "mine", "sha256": "0" * 64}], "no module 'mine' here"),
        ([3], "plugins"), ("mine.py", "plugins"), ([{"file": "x.py"}], "plugins"),
    ],
)  # fmt: skip
def test_what_is_no_plugin(named, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-b.py").write_text("")
    with pytest.raises(UserError) as told:
        build({"plugins": named})
    assert message in str(told.value)


def test_one_that_is_named_twice_is_one(tmp_path):
    """By a config and by the command; two files of one name are two."""
    for folder, text in (("a", "A = 1"), ("b", "B = 2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(text)
    first, second = (str(tmp_path / folder / "same.py") for folder in "ab")
    assert len(build({"plugins": [first, first]}).plugins) == 1
    with pytest.raises(UserError, match="two of them are named 'same'"):
        build({"plugins": [first, second]})
    forget()


def test_what_is_raised_elsewhere_has_its_line(tmp_path):
    """An error of another process comes as a text, inside others."""
    (tmp_path / "far.py").write_text("A = 1")
    (plugin,) = build({"plugins": [str(tmp_path / "far.py")]}).plugins
    told = f'ray::f()\n  File "{plugin.module}.py", line 7, in upload\nValueError: late boom'
    for raised in (RuntimeError(told), OSError(told)):
        raised.__cause__ = ValueError("late boom")
        outer = RuntimeError("training clients 0 failed")
        outer.__cause__ = raised
        said = "far, line 7, in upload: ValueError: late boom"
        with pytest.raises(UserError, match=said), blamed([plugin]):
            raise outer
    forget()


def test_an_installed_module(tmp_path, monkeypatch):
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    file = tmp_path / "my_package" / "parts.py"
    file.write_text(MINE.replace('"mine"', '"packaged"').replace('"half"', '"packaged"'))
    monkeypatch.syspath_prepend(tmp_path)
    chosen = build({"plugins": ["my_package.parts"], "algorithm": "packaged"})
    assert chosen.algorithm.name == "packaged"
    (known,) = chosen.plugins
    assert taken.origin(type(chosen.algorithm)) == "my_package.parts"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match=r"my_package.parts is not what it was"):
        build({"plugins": [known.model_dump()]})
    retire("my_package.parts")
    del sys.modules["my_package.parts"]


def test_an_installed_package_is_its_sources(tmp_path, monkeypatch):
    """To import it leaves compiled files beside them, which made it another."""
    (tmp_path / "my_parts").mkdir()
    (tmp_path / "my_parts" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (known,) = build({"plugins": ["my_parts"]}).plugins
    (tmp_path / "my_parts" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "my_parts" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    assert build({"plugins": [known.model_dump()]}).plugins == (known,)
    del sys.modules["my_parts"]


def test_what_distributions_offer(monkeypatch, capsys):
    """Their entry points are imported without being named; a broken one is told, and in nobody's way."""
    good = SimpleNamespace(name="a", module="good", dist=None, load=lambda: None)
    bad = SimpleNamespace(name="b", module="bad", dist=SimpleNamespace(name="dist"), load=broken)
    monkeypatch.setattr(taken, "entry_points", lambda group: [good, bad])
    taken.installed.cache_clear()
    assert taken.installed() == ("good",)
    assert "b of dist cannot be imported: ImportError: no" in capsys.readouterr().err
    taken.installed.cache_clear()


def broken():
    raise ImportError("no")


def test_a_plugin_is_read_from_text():
    assert Plugin.model_validate("a/b.py").name == "b"
    assert Plugin.model_validate("a.b").file == ""
    take_named([])


def test_code_that_came_with_a_folder_is_not_run_by_itself(config, tmp_path, monkeypatch):
    """Somebody may have sent it: who compares two runs does not run their code."""
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config, ["rounds=1"]))
    forget()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another user's"))
    for words in (["compare", folder.path], ["run", "--in-process", "--resume", folder.path]):
        code, text = here(*words)
        assert code == 2
        assert "is code that you have not run before" in text
        assert "mine" not in variants(AlgorithmOptions)
    here("list", "models", "--plugin", folder.path / "plugins" / "mine.py")
    assert here("compare", folder.path)[0] == 0


EVIL = "from pathlib import Path\nPath({!r}).touch()\n"


@pytest.mark.parametrize("way", ["a path", "a file", "a module", "a model"])
def test_nor_is_any_other_that_its_config_names(way, config, tmp_path, monkeypatch):
    """Whoever has sent the folder has written its config, too."""
    monkeypatch.syspath_prepend(tmp_path / "installed")
    (tmp_path / "installed").mkdir()
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(config, ["rounds=1"]))
    forget()
    for place in (folder.path / "evil.py", tmp_path / "installed" / "evilness.py"):
        place.write_text(EVIL.format(str(tmp_path / "done")))
    raw = yaml.safe_load((folder.path / "config.yaml").read_text())
    digest = raw["plugins"][0]["sha256"]
    raw |= {
        "a path": {"plugins": ["./evil.py"]},
        "a file": {"plugins": [{"name": "evil", "file": "./evil.py", "sha256": digest}]},
        "a module": {"plugins": [{"name": "evilness", "sha256": "0" * 64, "kept": False}]},
        "a model": {"plugins": [], "model": "./evil.py:Net"},
    }[way]
    (folder.path / "config.yaml").write_text(yaml.safe_dump(raw))
    for words in (["compare", folder.path], ["run", "--in-process", "--resume", folder.path]):
        code, text = here(*words)
        assert code == 2, text
        assert not (tmp_path / "done").exists()


def test_a_job_carries_it(config, tmp_path):
    place = tmp_path / "job"
    place.mkdir()
    assert jobs._carry(["run", str(config)], place) == "run mine.yaml"
    forget()
    config.unlink()
    assert load(place / "mine.yaml").algorithm.name == "mine"
    assert {p.name for p in place.iterdir()} == {"mine.py", "mine.yaml"}


def test_the_example():
    """Its updates are no longer than it says, and its clients hold one half of the classes each."""
    e = finish(load(Path("examples/plugins/clipped.yaml"), ["rounds=1", "data.limit=1000"]))
    assert 0 < e.records[-1]["update_norm"] <= 0.5 + 1e-6
    held = e.data.histogram() > 0
    assert not held[:5, 5:].any()
    assert not held[5:, :5].any()
    forget()


OF_OTHERS = {
    "raises": ("1 / 0", r"plugins: mine, line 10, in combine: ZeroDivisionError"),
    "leaves": ("raise SystemExit(0)", r"plugins: mine, line 10, in combine: SystemExit"),
    "returns nothing": ("return None", r"with parts of mine: AttributeError: .*fedorch check"),
    "returns too little": (
        "return fedorch.Combined(rows.updates[0, :3], None)",
        r"aggregator mine: of updates of shape \(7850,\) it makes one of shape \(3,\)",
    ),
}


@pytest.mark.parametrize("what", OF_OTHERS)
def test_what_a_part_of_one_s_own_does_wrong_is_a_sentence(what, tmp_path):
    """Each was "a fault of fedorch's own", or (SystemExit) the end of the run with exit code 0."""
    body, said = OF_OTHERS[what]
    (tmp_path / "mine.py").write_text(
        "import fedorch\n\nclass Mine(fedorch.Aggregator):\n    name: str = 'mine'\n\n"
        "    def weights(self, samples, counts):\n        return None\n\n"
        f"    def combine(self, rows):\n        {body}\n"
    )
    config = load(None, [f"plugins=[{tmp_path}/mine.py]", "aggregator=mine", "data.limit=200",
                         "model=linear", "data.clients=3", "cohort=3", "local.steps=1"])  # fmt: skip
    with pytest.raises(UserError, match=said):
        Experiment(config).step()


COUNTING = """import fedorch

calls = []


class Counting(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        \"\"\"Steps that get shorter.\"\"\"

        name: str = "counting"

    options: Options
    server_state = (*fedorch.FedAvg.server_state, "kept")

    def start(self):
        super().start()
        self.kept, self.lost, self.fixed = 0, 0, [1]

    def apply(self, updates):
        calls.append(len(calls))
        self.kept, self.lost = self.kept + 1, self.lost + 1
        self.w = self.w + self.aggregate(updates, "delta") / self.lost
"""


def test_what_no_checkpoint_holds_is_told(tmp_path):
    """Resumed it was silently another run: once in each, by the names that a person looks for."""
    (tmp_path / "counting.py").write_text(COUNTING)
    least = ["data.limit=400", "data.clients=4", "cohort=2", "model=linear", "rounds=3"]
    config = load(None, [*least, f"plugins=[{tmp_path}/counting.py]", "algorithm=counting"])
    folder = RunFolder(tmp_path / "a")
    run_into(folder, config)
    (note,) = folder.result()["notes"]
    assert note.startswith(
        "round 1 changes Counting.lost and calls of counting, which no checkpoint"
    )
    forget()
