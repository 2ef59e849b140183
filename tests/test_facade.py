"""``import fedorch``: the same bits as the command, what is in a run's folder, objects of one's own."""

import html
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import nn

import fedorch
from fedorch.sweeps import _from_here
from orchestrator.config import load
from orchestrator.models.given import give
from orchestrator.rounds.experiment import Experiment
from sweeps.plan import read_sweep

SMALL = {"model": "linear", "rounds": 2, "data.clients": 4, "cohort": 2, "local.steps": 2, "data.limit": 400}  # fmt: skip
SETTINGS = [f"{key}={value}" for key, value in SMALL.items()]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return fedorch.run(out=tmp_path_factory.mktemp("facade") / "a", verbose=False, **SMALL)


def finish(*settings):
    e = Experiment(load(None, [*SETTINGS, *settings]))
    while not e.finished:
        e.step()
    return e


def test_a_run_has_the_command_s_bits_and_tables(done):
    e = finish()
    assert done.result["weights_sha256"] == e.weights_sha256()
    assert done.rounds["test_accuracy"].tolist() == [r["test_accuracy"] for r in e.records]
    assert done.summary["test_accuracy"] == e.records[-1]["test_accuracy"]
    assert len(done.clients) == 8
    assert done.config.local.block is not None
    assert done.report.is_file()
    shown = html.unescape(done._repr_html_())
    assert done.report.read_text() in shown
    assert done.path in repr(done)
    again = fedorch.open(done.path)
    pd.testing.assert_frame_equal(again.rounds, done.rounds)


def test_the_model_predicts_as_it_was_evaluated(done):
    data = finish().data
    rows = data.test_rows
    x, y = data.samples.x[rows], data.samples.y[rows]
    assert np.mean(done.predict(x) == y) == done.rounds["test_accuracy"].iloc[-1]
    # one image, without its channel, with the channel last
    assert done.predict(x[0]) == done.predict(x[0, 0]) == done.predict(x[:1].transpose(0, 2, 3, 1))
    assert len({tuple(p) for p in [done.predict(x), done.predict(x[:, 0])]}) == 1
    loss = nn.functional.cross_entropy(done.outputs(x), torch.from_numpy(y))
    assert float(loss) == pytest.approx(done.rounds["test_loss"].iloc[-1], rel=1e-5)
    assert not done.model().training
    for wrong, message in ((x.astype(float), "pixels"), (x[:, :, :9], "none of shape")):
        with pytest.raises(fedorch.UserError, match=message):
            done.predict(wrong)
    (done.folder.path / "inputs.json").write_text("{}")
    with pytest.raises(fedorch.UserError, match=r"inputs.json is damaged"):
        done.predict(x)


def test_seeds_and_comparisons(tmp_path):
    runs = fedorch.run(out=tmp_path / "s", seeds=range(2), verbose=False, **SMALL)
    other = fedorch.run(
        out=tmp_path / "o", verbose=False, algorithm="scaffold", name="other", **SMALL
    )
    assert [run.result["seed"] for run in runs] == [0, 1]
    table = fedorch.compare([tmp_path / "s", other]).table()
    (name, *_), both = table.columns[0], table.xs("test_accuracy")
    ends = [run.rounds["test_accuracy"].iloc[-1] for run in runs]
    assert both[name, "mean"] == pytest.approx(np.mean(ends))
    assert both[name, "sem"] == pytest.approx(np.std(ends, ddof=1) / np.sqrt(2))
    assert (both[name, "n"], both["other (seed 0)", "n"]) == (2, 1)
    # three lines, of seeds, of what is the same, and of what cannot be tested
    notes = fedorch.compare([tmp_path / "s", other]).notes
    assert "mean ± standard error over seeds" in notes[0]
    assert any("fewer than two seeds" in note for note in notes)
    gone = fedorch.run(
        out=tmp_path / "g", verbose=False, non_finite="keep", **{**SMALL, "local.lr": 1e38}
    )
    spread = fedorch.compare([other, gone]).table().xs("client_accuracy_var")
    assert sorted(spread.xs("n", level=1)) == [0, 1]
    assert any("diverged" in note for note in fedorch.compare([other, gone]).notes)
    assert len(fedorch.open(tmp_path / "s")[1:]) == 1
    (line,) = runs.plot("test_loss").axes[0].get_lines()
    both = np.array([run.rounds["test_loss"] for run in runs])
    np.testing.assert_allclose(line.get_ydata(), both.mean(0))
    (band,) = runs.plot("test_loss").axes[0].collections
    (outline,) = band.get_paths()
    error = both.std(0, ddof=1) / np.sqrt(2)
    assert outline.vertices[:, 1].max() == pytest.approx((both.mean(0) + error).max())
    assert len(other.plot().axes[0].get_lines()) == 3
    with pytest.raises(fedorch.UserError, match="did you mean 'test_loss'"):
        runs.plot("test_lost")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fedorch.run(3), "give the path of a YAML file"),
        (lambda: fedorch.run(seeds=["a"]), "give whole numbers, not 'a'"),
        (lambda: fedorch.run(seeds=[0.5]), "give whole numbers, not 0.5"),
        (lambda: fedorch.run(seeds=[1, 0, 1]), "seeds: 1 is there twice"),
        (lambda: fedorch.run(seeds=[1, 0], seed=5), "seed: seeds says which"),
        (lambda: fedorch.run(seeds="012"), "give a list of whole numbers"),
        (lambda: fedorch.compare(3), "give a list of runs"),
        (lambda: fedorch.compare([]).table(), "no runs to compare"),
        (lambda: fedorch.compare([]).plot(), "no runs to compare"),
    ],
)
def test_what_makes_no_runs_is_a_sentence(call, message):
    with pytest.raises(fedorch.UserError, match=message):
        call()
    assert fedorch.compare([])._repr_html_() == "&lt;Runs: 0&gt;"


def test_configs_are_files_mappings_and_configs(tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text("rounds: 3\nlocal: {lr: 0.2}\n")
    one = fedorch.Experiment(tmp_path / "c.yaml", **SMALL)
    two = fedorch.Experiment({"rounds": 3, "local": {"lr": 0.2}}, **SMALL)
    three = fedorch.Experiment(two.config)
    assert one.config == two.config == three.config
    assert (one.config.rounds, one.config.local.lr) == (2, 0.2)
    with pytest.raises(fedorch.UserError, match="did you mean 'rounds'"):
        fedorch.Experiment(round=3)


def test_an_experiment_with_a_network_and_data_of_its_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)).astype(np.float32)
    y = np.where(x[:, 0] + x[:, 1] > 0, "up", "down")
    who = rng.choice(["a", "b", "c"], 200)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    first = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    e = fedorch.Experiment(model=net, data=(x, y, who), rounds=30, **{"local.lr": 0.5})
    assert e.config.data.clients == e.config.cohort == 3
    start = torch.cat([t.flatten() for t in first.values()])
    torch.testing.assert_close(e.weights, start)
    assert len(e.run(np.int64(2))) == e.round == 2
    table = e.run()
    assert len(table) == 30
    assert table["test_accuracy"].iloc[-1] > 0.9
    assert not torch.equal(e.weights, start)
    for name, tensor in net.state_dict().items():  # whoever gave it has it as it was
        assert torch.equal(tensor, first[name])
    trained, rows = e.model(), e.inner.data.test_rows
    samples = e.inner.data.samples
    right = trained(torch.from_numpy(samples.x[rows])).argmax(1).numpy() == samples.y[rows]
    assert right.mean() == table["test_accuracy"].iloc[-1]
    assert set(e.clients["client"]) == {0, 1, 2}
    again = fedorch.Experiment(model=net, data=(x, y, who), rounds=30, **{"local.lr": 0.5})
    again.run()
    assert again.weights_sha256() == e.weights_sha256()
    numbers = fedorch.Experiment(
        model=nn.Linear(5, 1), data=(x, x[:, 0] * 2), loss="mse", rounds=20,
        **{"data.clients": 4, "cohort": 4, "data.partition": "iid", "local.lr": 0.1},
    )  # fmt: skip
    assert numbers.run()["test_loss"].iloc[-1] < 0.01


class Uncopied(nn.Linear):
    """What some modules are that hold what is no leaf."""

    def __deepcopy__(self, memo):
        raise RuntimeError("not this one")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": (np.zeros((4, 2)),)}, "give \\(x, y\\)"),
        ({"data": (np.zeros((4, 2)), np.arange(3))}, "4 inputs, and 3 entries in y"),
        ({"data": (np.full((40, 2), np.nan), np.arange(40) % 2)}, "NaN"),
        ({"model": nn.Linear(3, 3)}, "model"),
        ({"model": {"name": "given", "sha256": "0"}}, "hand it over again"),
        ({"data.dataset": "given"}, "hand them over again"),
        ({"data": 3}, "give \\(x, y\\)"),
        ({"data": ([[1], [2, 3]], [0, 1])}, "data: x: this is no array"),
        ({"data": (np.zeros((4, 2)), None)}, "data: y: 'None' is no array of rows"),
        ({"config": 3}, "give the path of a YAML file"),
        ({"plugins": "mine.py"}, "plugins: give a list of files"),
        ({"model": nn.Linear(3, 3).bfloat16()}, "bfloat16"),
        ({"model": nn.LazyLinear(3)}, "no shape yet"),
        ({"model": Uncopied(3, 3)}, "cannot be copied: RuntimeError: not this one"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_sentence(given, message):
    with pytest.raises(fedorch.UserError, match=message):
        fedorch.Experiment(**given).step()


def test_what_would_have_no_effect_is_refused_and_records_are_copies():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), np.arange(40) % 2
    samples = fedorch.Samples(x=x, y=y, classes=2, train=30)
    plain = {"model": "linear", "data.clients": 4, "cohort": 2, "rounds": 2}
    with pytest.raises(fedorch.UserError, match=r"given, and data\.dataset names others"):
        fedorch.Experiment(data=(x, y), **plain, **{"data.dataset": "fashion_mnist"})
    with pytest.raises(fedorch.UserError, match="say which rows are for the test"):
        fedorch.Experiment(data=samples, test=0.5, **plain)
    hooked = nn.Linear(6, 2)
    hooked.weight.register_hook(lambda gradient: 0 * gradient)
    with pytest.raises(fedorch.UserError, match="its parameter weight has a hook"):
        fedorch.Experiment(data=(x, y), model=hooked)
    e = fedorch.Experiment(data=samples, **plain)
    e.step().clear()
    assert e.step()["round"] == 2


class Closed(nn.Module):
    """A network with a function that closes over it, which copies share."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 2)
        self.encode = lambda x: self.first(x)

    def forward(self, x):
        return self.encode(x)


def closed_at_runtime():
    net = nn.Sequential(nn.Linear(6, 2))
    net.forward = lambda x, layer=net[0]: layer(x)
    return net


def hooked_by_itself():
    net = nn.Sequential(nn.Linear(6, 2))
    net[0].register_forward_hook(partial(lambda w, m, i, o: o + w.sum(), net[0].weight))
    net[0].register_forward_hook(lambda m, i, o: o + net[0].weight.sum())
    return net


@pytest.mark.parametrize("make", [Closed, closed_at_runtime, hooked_by_itself])
def test_a_network_whose_copies_would_share_its_weights_is_refused(make):
    """Its first layer stayed as it was, and nothing was said."""
    x, y = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 2
    with pytest.raises(fedorch.UserError, match="holds parts of the module itself"):
        fedorch.Experiment(data=(x, y), model=make(), **{"data.clients": 2, "cohort": 2})


def test_functions_that_hold_nothing_of_a_network_are_no_reason_to_refuse_it():
    net = nn.Sequential(nn.Linear(6, 2))
    seen = []
    net[0].register_forward_hook(lambda module, given, made: seen.append(made.shape))
    net.act = lambda x: nn.functional.relu(x) + len(seen)
    net.named = lambda x: x.hooked_by_itself  # an attribute, and no global of this name
    net.kept = partial(nn.functional.leaky_relu, negative_slope=0.1)
    net.norm = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert give(net)


def test_a_model_that_was_taken_out_is_its_own():
    e = fedorch.Experiment(rounds=2, model="linear", **{"data.clients": 4, "cohort": 2})
    first = e.model()
    kept = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    e.step()
    second = e.model().state_dict()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, kept[name])
        assert not torch.equal(tensor, second[name])
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_networks_of_other_functions_are_others():

    def leaking(slope):
        return lambda x: nn.functional.leaky_relu(x, slope)

    leaky = nn.functional.leaky_relu
    functions = (
        torch.tanh, torch.relu, lambda x: x, leaking(0.1), leaking(0.9),
        partial(leaky, negative_slope=0.1), partial(leaky, negative_slope=0.9), None,
    )  # fmt: skip
    made = [nn.Linear(6, 2) for _ in functions]
    for module, function in zip(made, functions, strict=True):
        module.load_state_dict(made[0].state_dict())
        module.between = function
    made[-1].register_forward_hook(lambda module, inputs, out: 2 * out)
    assert len({give(module) for module in made}) == len(made)
    assert give(made[3]) == give(made[3])


def test_a_series_that_is_stopped_is_no_result(tmp_path, monkeypatch):
    def stopped(config, folder, begun, interrupts):
        raise KeyboardInterrupt

    for way in ("run_here", "run_on_ray"):  # whether or not tests before it have started Ray
        monkeypatch.setattr(f"fedorch.runs.{way}", stopped)
    with pytest.raises(KeyboardInterrupt):
        fedorch.run(out=tmp_path / "s", seeds=[0, 1], **SMALL)


def test_a_run_that_is_stopped_is_no_result(tmp_path, monkeypatch):
    """A script's loop went on, with a run of some rounds beside whole ones."""
    for way in ("run_here", "run_on_ray"):
        monkeypatch.setattr(f"fedorch.runs.{way}", lambda *given: {"status": "stopped"})
    with pytest.raises(KeyboardInterrupt):
        fedorch.run(out=tmp_path / "s", **SMALL)


def test_a_network_that_was_edited_is_another():
    """As in a notebook: the same names and first weights, other code, or another number."""

    def net(source, power=1):
        space = {"nn": nn, "torch": torch}
        exec(source, space)
        torch.manual_seed(0)
        return space["Cell"](power)

    source = (
        "class Cell(nn.Module):\n"
        "    def __init__(self, power):\n"
        "        super().__init__()\n"
        "        self.power, self.head = power, nn.Linear(4, 2)\n"
        "    def forward(self, x):\n"
        "        return self.head(torch.relu(x) ** self.power)\n"
    )
    x, y = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32), np.arange(80) % 2

    def digest(module):
        run = fedorch.Experiment(
            model=module, data=(x, y, np.arange(80) % 4), rounds=1, **{"local.steps": 1}
        )
        run.run()
        return run.weights_sha256()

    first = digest(net(source))
    assert digest(net(source)) == first
    assert digest(net(source.replace("relu", "tanh"))) != first
    assert digest(net(source, power=2)) != first


def test_a_round_that_was_interrupted_is_not_done_twice(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32), np.arange(80) % 2
    run = fedorch.Experiment(model="linear", data=(x, y, np.arange(80) % 4), rounds=3)
    run.step()
    with monkeypatch.context() as patched:
        patched.setattr(type(run.inner.judge), "judge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.step()
    with pytest.raises(fedorch.UserError, match="round 2 was interrupted in its middle"):
        run.run()


def interrupt(judge):
    raise KeyboardInterrupt


def test_names():
    """What others may rely on: a change here is for the changelog."""
    for name in fedorch.__all__:
        assert getattr(fedorch, name).__name__ == name
    assert sorted(fedorch._PLACES) == sorted(fedorch.__all__) == dir(fedorch)
    assert len(set(fedorch.__all__)) == 54
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedorch.nothing  # noqa: B018
    assert (Path(fedorch.__file__).parent / "py.typed").is_file()


def test_a_plugin_needs_no_other_import(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import fedorch\n\n"
        "class Halves(fedorch.Partitioner):\n"
        "    name: str = 'halves_of_mine'\n"
        "    part: float = fedorch.option(0.5, 'of the rows', gt=0, lt=1)\n\n"
        "    def split(self, pool):\n"
        "        cut = int(self.part * len(pool.rows))\n"
        "        order = pool.rng().permutation(len(pool.rows))\n"
        "        return [order[:cut], order[cut:]]\n"
    )
    e = fedorch.Experiment(
        {"plugins": [str(tmp_path / "mine.py")], "cohort": 2},
        **{"data.partition": {"name": "halves_of_mine", "part": 0.25}, "data.clients": 2, "model": "linear"},
    )  # fmt: skip
    assert e.inner.data.train.sizes.tolist() == [2000, 6000]


def test_it_is_imported_at_once_and_says_what_hides_it(tmp_path):
    code = "import sys, fedorch; print(sorted({'torch', 'ray', 'pandas'} & set(sys.modules)))"
    assert _python(code).stdout.strip() == "[]"
    for name in ("algorithms", "rl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "algorithm.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fedorch; fedorch.Algorithm"
    found = _python(code)
    assert found.returncode == 1
    assert f"{tmp_path}/algorithms/algorithm.py hides it" in found.stderr
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fedorch.__main__ as f; f.main()"
    )
    found = _python(code)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert f"{tmp_path}/algorithms/__init__.py hides it" in line


def _python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_by_actors_on_the_session_s_cluster(ray_session, tmp_path):
    run = fedorch.run(out=tmp_path / "r", verbose=False, **{"resources.actors": 2}, **SMALL)
    assert run.result["weights_sha256"] == finish().weights_sha256()
    assert run.result["actors"] == 2


def test_a_sweep(ray_session, tmp_path):
    plan = {
        "name": "tiny",
        "base": {"model": "linear", "rounds": 1, "cohort": 2, "data": {"clients": 4, "limit": 400}},
        "axes": {"local.lr": [0.01, 0.1]},
        "metric": "test_accuracy",
        "choose_on": "test",
    }
    swept = fedorch.sweep(plan, out=tmp_path / "sweep")
    assert len(swept.table()) == 2
    runs = fedorch.open_sweep(tmp_path / "sweep").runs()
    assert sorted(run.config.local.lr for run in runs) == [0.01, 0.1]
    (best,) = swept.best()
    assert best.summary["test_accuracy"] == pytest.approx(swept.table()["mean"].max())
    with pytest.raises(fedorch.UserError, match=r"^sweep: axis: there is no such key"):
        fedorch.sweep({"name": "x", "axis": {}}, out=tmp_path / "other")
    with pytest.raises(fedorch.UserError, match="it holds a object, which is no setting"):
        fedorch.sweep({"name": "x", "axes": {"local.lr": [object()]}}, out=tmp_path / "other")


def test_a_sweep_of_python_s_own_things(done, tmp_path, monkeypatch):
    """NumPy's numbers and ranges were tracebacks, and files were looked for in a folder that was
    gone.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(
        "from torch import nn\nclass N(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    base = {"model": "./nets.py:N", "data": {"dataset": {"name": "npz", "path": Path("./d.npz")}}}
    plan = {
        "name": "x", "base": base, "axes": {"local.lr": np.logspace(-2, -1, 2)}, "seeds": range(2),
        "cells": [{"label": "a", "settings": ["data.dataset.path=./e.npz"]}],
    }  # fmt: skip
    found = read_from(plan, tmp_path)
    assert found.axes["local.lr"].grid == pytest.approx((0.01, 0.1))
    assert found.seeds == (0, 1)
    # Path forgets its ./
    assert found.base["data"]["dataset"]["path"] == "d.npz"
    assert found.base["model"]["of"].endswith(":N")
    assert found.cells[0].settings == (f"data.dataset.path={tmp_path / 'e.npz'}",)
    part = {"data": done.config.data, "local": {"lr": torch.tensor(0.5)}}
    axes = {"rounds": np.array([np.int64(1), 2], dtype=object)}
    again = read_from({"name": "x", "base": part, "axes": axes}, tmp_path)
    assert again.base["local"] == {"lr": 0.5}
    assert again.axes["rounds"].grid == (1, 2)
    again = read_from({"name": "x", "base": done.config}, tmp_path)
    assert again.base["rounds"] == done.config.rounds


def read_from(plan, folder):
    """A sweep that was given as a mapping, as it is read."""
    file = folder / "read"
    file.mkdir(exist_ok=True)
    (file / "sweep.yaml").write_text(yaml.safe_dump(_from_here(plan)))
    return read_sweep(file / "sweep.yaml")


def test_result_json_is_the_same(done):
    assert json.loads((done.folder.path / "result.json").read_text())["name"] == done.result["name"]


def test_rows_of_a_table_are_predicted_as_they_are(tmp_path):
    """The model's own accuracy from the file's test rows, which go in as the file has them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, 400),
            "sex": rng.choice(["f", "m", "x"], 400),
            "pulse": rng.normal(70, 9, 400),
            "half": np.repeat([0, 1], 200),
        }
    )
    score = frame["age"] + 20 * (frame["sex"] == "m") + frame["pulse"] / 9
    frame["ill"] = np.where(score > score.median(), "yes", "no")
    frame.to_csv(tmp_path / "p.csv", index=False)
    run = fedorch.run(
        {
            "data": {
                "dataset": {"name": "csv", "path": str(tmp_path / "p.csv"), "label": "ill",
                            "test": "half"},
                "partition": "iid", "clients": 4,
            },
            "cohort": 4, "rounds": 5, "model": "linear", "evaluation": {"clients": False},
        },
        out=tmp_path / "r", verbose=False,
    )  # fmt: skip
    test = frame[frame["half"] == 1]
    assert run.classes == ["no", "yes"]
    right = np.array(run.classes)[run.predict(test)] == test["ill"]
    assert right.mean() == pytest.approx(run.summary["test_accuracy"], abs=1e-6)
    one = dict(test.iloc[0])
    assert run.predict(one).tolist() == run.predict(test.iloc[:1]).tolist()
    for wrong, said in (
        (test.drop(columns="sex"), "no column 'sex'"),
        (test.assign(age="old"), "column 'age' holds no numbers"),
        (test.assign(pulse=np.nan), "column 'pulse': row 1 is empty"),
        (test.assign(pulse=pd.Timestamp("2020-01-01")), "column 'pulse' holds no numbers"),
        (test.assign(pulse=test["pulse"] + 1j), "column 'pulse' holds no numbers"),
    ):
        with pytest.raises(fedorch.UserError, match=said):
            run.predict(wrong)


@pytest.mark.parametrize("test", [0.0, 1.5, [0, 1] * 10, np.ones(7, bool), "0.2"])
def test_which_rows_are_for_the_test(test):
    x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
    with pytest.raises(fedorch.UserError, match="a bool for each of the 20 rows"):
        fedorch.Experiment(data=(x, y), test=test, **SMALL)
