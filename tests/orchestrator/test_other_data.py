"""A model is judged by other data as it was trained, or the command says why not; and what a run
goes on with is what it began with.
"""

from collections import Counter, OrderedDict, deque
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fedorch
from orchestrator.cli.evaluating import _fitting, evaluation
from orchestrator.cli.running import Series, run_here, run_on_ray, seed_folders
from orchestrator.clients.actor import ClientActor
from orchestrator.config import load
from orchestrator.data.own.characters import Alphabet
from orchestrator.data.samples import Request, Samples
from orchestrator.errors import UserError
from orchestrator.imports import (
    NOTED,
    digest_of,
    imports_of,
    is_installed,
    require_as_imported,
    require_imports,
)
from orchestrator.results import usage
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import trainable
from sweeps.data import IMPORTS, Shelf
from sweeps.results import by_trial
from tests.running import run_into
from tests.sweeps.plans import SMALL, sweep
from tests.sweeps.trials import Here
from tests.sweeps.trials import run_here as sweep_here


def table(place, rows, seed, **more):
    rng = np.random.default_rng(seed)
    x = rng.normal([50, 7], [12, 2], (rows, 2)).round(3)
    frame = pd.DataFrame({"age": x[:, 0], "dose": x[:, 1]})
    frame["sex"] = rng.choice(["f", "m"], rows)
    frame["ill"] = np.where(x[:, 0] / 12 + x[:, 1] > 7.7, "yes", "no")
    for name, values in more.items():
        frame[name] = values
    frame.to_csv(place, index=False)
    return frame


@pytest.fixture
def judged(tmp_path):
    """A model of a table whose test is a file of its own."""
    table(tmp_path / "train.csv", 300, 0)
    table(tmp_path / "test.csv", 100, 1)
    dataset = f"{{name: csv, path: {tmp_path}/train.csv, label: ill, test: {tmp_path}/test.csv}}"
    settings = [f"data.dataset={dataset}", "data.clients=3", "cohort=3", "model=linear", "rounds=3"]
    folder = RunFolder(tmp_path / "run")
    run_into(folder, load(None, [*settings, "data.partition=iid", "local.lr=0.3"]))
    return RunFolder.viewed(str(folder.path))


def test_another_file_is_not_judged_with_the_run_s_test_file(judged, tmp_path):
    """Its rows were mixed with those, or, without --all-rows, not looked at at all."""
    table(tmp_path / "new.csv", 70, 2)
    other = f"data.dataset.path={tmp_path}/new.csv"
    with pytest.raises(UserError, match=r"would still be those of .*test\.csv"):
        evaluation(judged, [other])
    assert evaluation(judged, [other], every=True)[1] == 70
    both = [other, f"data.dataset.test={tmp_path}/test.csv"]
    assert evaluation(judged, both)[1] == 100


def test_what_the_model_does_not_use_may_be_empty(judged, tmp_path, capsys):
    """Rows were dropped, or refused, for a remark that somebody had written into some of them."""
    remarks = ["well done", *[None] * 69]
    table(tmp_path / "new.csv", 70, 2, remark=remarks)
    settings = [f"data.dataset.path={tmp_path}/new.csv"]
    assert evaluation(judged, settings, every=True)[1] == 70
    assert evaluation(judged, [*settings, "data.dataset.missing=drop"], every=True)[1] == 70
    frame = table(tmp_path / "new.csv", 70, 2)
    frame.loc[:4, "dose"] = None
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert evaluation(judged, [*settings, "data.dataset.missing=drop"], every=True)[1] == 65
    assert "5 of 70 rows have empty fields" in capsys.readouterr().err


def test_a_row_of_a_frame_is_a_row(judged, tmp_path):
    run, frame = fedorch.Run(judged.place), table(tmp_path / "new.csv", 20, 2)
    whole = run.outputs(frame)
    for i in range(20):
        torch.testing.assert_close(run.outputs(frame.iloc[i])[0], whole[i])
    torch.testing.assert_close(run.outputs([frame.iloc[3], dict(frame.iloc[4])]), whole[3:5])
    twice = pd.concat([frame, frame[["age"]]], axis=1)
    with pytest.raises(UserError, match="more than one column 'age'"):
        run.predict(twice)
    with pytest.raises(UserError, match="stand in a list with images, and files, alone"):
        run.predict([Image.new("L", (2, 2)), np.zeros(4)])


def test_images_that_do_not_count_are_told(tmp_path, capsys):
    """A class whose images have another ending was gone, and those in folders of their own."""
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/more/3.png", "c/1.jfif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), int(name[2] == "1")).save(tmp_path / name, "png")
    (tmp_path / "about.txt").touch()
    dataset = f"data.dataset={{name: folder, path: {tmp_path}, grey: true, test: 0.5}}"
    assert len(load(None, [dataset]).data.dataset.load(Request(0, 1)).y) == 4
    said = capsys.readouterr().err
    assert "2 files are no images in folders of classes, and do not count (b/more/3.png, c" in said


def test_what_is_no_input_is_refused(tmp_path, judged):
    frame = pd.DataFrame({"a": [[0, 1], [1]] * 4, "label": [0, 1] * 4})
    frame.to_parquet(tmp_path / "t.parquet")
    parquet = f"data.dataset={{name: parquet, path: {tmp_path}/t.parquet}}"
    with pytest.raises(UserError, match="row 1 is a ndarray, and neither a number nor a text"):
        load(None, [parquet]).data.dataset.load(Request(0, 1))
    images = np.zeros((8, 3, 4, 4), np.uint8)
    np.savez(tmp_path / "i.npz", x=images, y=np.arange(8) % 2)
    with pytest.raises(UserError, match=r"these seem to have their channels first"):
        load(None, [f"data.dataset={{name: npz, path: {tmp_path}/i.npz}}"]).data.dataset.load(
            Request(0, 1)
        )
    run = fedorch.Run(judged.place)
    with pytest.raises(UserError, match=r"data\.limit: a set is no setting"):
        run.evaluate(**{"data.limit": {3}})
    with pytest.raises(UserError, match="give the path of a file, not 5"):
        run.export(5)
    assert run.evaluate(True, **{"data.dataset.path": tmp_path / "train.csv"}).size


def test_names_are_not_merged_and_labels_keep_their_order(tmp_path):
    """1e1 and 10 were one client; and numbers were judged by each other's."""
    who = [name for name in ("1e1", "10", "1e2", "2") for _ in range(4)]
    (tmp_path / "t.csv").write_text(
        "who,a,u,v\n" + "".join(f"{name},{i},{i / 2},{-i}\n" for i, name in enumerate(who))
    )
    dataset = f"name: csv, path: {tmp_path}/t.csv, client: who, task: numbers"
    found = load(None, [f"data.dataset={{{dataset}, label: [u, v]}}"]).data.dataset
    assert found.load(Request(0, 1)).owners == ("10", "1e1", "1e2", "2")
    settings = [f"data.dataset={{{dataset}, label: [u, v]}}", "loss=mse", "model=linear"]
    settings += ["data.partition=natural", "data.clients=4", "cohort=4", "rounds=1"]
    run_into(RunFolder(tmp_path / "r"), load(None, settings))
    folder = RunFolder.viewed(str(tmp_path / "r"))
    with pytest.raises(UserError, match="the model predicts u, v, in this order"):
        evaluation(folder, ["data.dataset.label=[v, u]"])


def classes(names, y, **more):
    return Samples(
        np.zeros((len(y), 2), np.float32), np.array(y), 1, len(names), names=names, **more
    )


def known(names, outputs, task="classes", **more):
    kinds = {"shape": [2], "dtype": "float32", "shift": [], "scale": []}
    return {**kinds, "outputs": outputs, "task": task, "classes": names, **more}


def test_classes_are_those_of_the_same_names():
    """Of a model without names, the data's were numbered in the order of the alphabet."""
    assert _fitting(classes(("3", "7"), [0, 1, 1]), known([], 10)).y.tolist() == [3, 7, 7]
    # numbers that are names of their own
    own = _fitting(classes(("1", "2", "3"), [0, 1, 2]), known(["1", "2", "3"], 3))
    assert own.y.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="have no names, only numbers from 0 to 9"):
        _fitting(classes(("one", "two"), [0, 1, 1]), known([], 10))
    found = _fitting(classes(("b", "a"), [0, 1, 1]), known(["a", "b"], 2))
    assert (found.y.tolist(), found.names) == ([1, 0, 0], ("a", "b"))


def test_classes_of_tokens_are_those_of_the_same_names():
    tags = np.array([[0, 1], [2, -100], [1, 1]])
    data = classes(("x", "y"), [0, 1, 1])
    data = Samples(
        data.x, data.y, 1, 2, targets=tags, names=("LOC", "O", "PER"), tags=3
    )  # fmt: skip
    found = _fitting(data, known(["O", "PER", "LOC"], 3, "tokens"))
    assert found.targets.tolist() == [[2, 0], [1, -100], [0, 0]]
    with pytest.raises(UserError, match="knows no class 'LOC'"):
        _fitting(data, known(["O", "PER", "ORG"], 3, "tokens"))


def test_token_ids_are_those_of_training():
    alphabet = Alphabet("abc", closed=False)
    assert Alphabet.told(str(alphabet)) == alphabet
    assert Alphabet.told(str(Alphabet())) == Alphabet()
    assert Alphabet.told("words") is None
    ids = {"dtype": "int32", "tokens": "words, hashed to 50 (vocabulary)"}
    other = Samples(
        np.zeros((3, 2), np.int32), np.array([0, 1, 1]), 1, 2, tokens=str(alphabet)
    )  # fmt: skip
    with pytest.raises(UserError, match=r"by other means \(characters and others: abc\)"):
        _fitting(other, known(["0", "1"], 2) | ids)


ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.parametrize(
    "kept",
    [
        {(1, "a"): 3, (2,): ONE}, {1: ONE, "1": TWO}, {"m/0": ONE, "m": [TWO]}, (1, (2.5, None)),
        [np.float64(0.1) / 3, np.float64("-inf"), np.bool_(True), np.int64(3), 0.1],
        {3: np.float32(0.5)}, [np.array(3.0), np.float32(1.1) * 2], {"x": np.arange(6.0)[::-2], "y": np.arange(6).reshape(2, 3).T},
        OrderedDict(a=[True, float("inf")]), [], (),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_checkpoint_holds_comes_back(kept, tmp_path):
    save(tmp_path, 1, {"kept": kept}, 1)
    _, state, _ = load_latest(tmp_path)
    assert type(state["kept"]) is (dict if isinstance(kept, dict) else type(kept))
    torch.testing.assert_close(_plain(state["kept"]), _plain(kept))
    kinds = [
        [type(v) for v in (s.values() if isinstance(s, dict) else s)] for s in (state["kept"], kept)
    ]
    assert kinds[0] == kinds[1]
    shapes = [
        [
            np.shape(v)
            for v in (s.values() if isinstance(s, dict) else s)
            if isinstance(v, np.ndarray)
        ]
        for s in (state["kept"], kept)
    ]
    assert shapes[0] == shapes[1]


def _plain(value):
    """With arrays and NumPy's numbers as tensors and Python's."""
    if isinstance(value, dict):
        return {
            str((type(k).__name__, k))
            if isinstance(k, tuple)
            else int(k)
            if isinstance(k, np.integer)
            else k: _plain(v)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize(
    "kept",
    [
        {1, 2}, deque([1]), Counter("ab"), np.ma.array([1.0], mask=[False]), np.array(["a"]),
        torch.ones(2, dtype=torch.complex64), np.ones(2, ">f4"), np.ones(2, np.longdouble),
    ],
    ids=lambda kept: type(kept).__name__,
)  # fmt: skip
def test_what_no_checkpoint_can_hold_is_said_after_the_first_round(kept, tmp_path):
    class Keeping(fedorch.FedAvg):
        class Options(fedorch.FedAvg.Options):
            """FedAvg that keeps something."""

            name: str = "keeping"

        options: Options
        server_state = (*fedorch.FedAvg.server_state, "kept")

        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            self.kept = kept

    with pytest.raises(UserError, match=f"can hold kept, a {type(kept).__name__}: state is made"):
        run_into(RunFolder(tmp_path / "r"), load(None, [*SMALL, "algorithm=keeping"]))
    assert Keeping


SCALED = """
import fedorch
from factor_of_mine import FACTOR

class Scaled(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        '''FedAvg, scaled.'''

        name: str = "scaled"

    options: Options
"""


def test_what_is_of_a_plugin_s_imports(tmp_path, monkeypatch):
    """Files, those that they import, packages above, of modules, too; not what is installed."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pack_a").mkdir()
    for name, text in {
        "pack_a/__init__.py": "", "pack_a/parts.py": "from . import inner\nimport numpy\n",
        "pack_a/inner.py": "def late():\n    import lone_b\n", "lone_b.py": "V = 1\n",
        "broken_c.py": "print 1\n",
        "named_d.py": "from pack_a.inner import late\ntry:\n    import broken_c\nexcept SyntaxError:\n    pass\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    plugins = {
        "file": load(None, [f"plugins=[{tmp_path}/named_d.py]"]).plugins,
        "module": load(None, ["plugins=[pack_a.parts]"]).plugins,
    }
    before = {kind: digest_of(imports_of(one)) for kind, one in plugins.items()}
    assert all(before.values())
    (tmp_path / "lone_b.py").write_text("V = 2\n")  # which this process has imported before
    assert {kind: digest_of(imports_of(one)) for kind, one in plugins.items()} == before
    (tmp_path / "lone_b.py").write_text("V = 1\n")
    for name in ("pack_a/__init__.py", "pack_a/inner.py", "lone_b.py"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(f"{text}\n# other\n")
        NOTED.clear()  # as in another process
        now = {kind: digest_of(imports_of(one)) for kind, one in plugins.items()}
        assert all(now[kind] != before[kind] for kind in now), name
        (tmp_path / name).write_text(text)
        NOTED.clear()
    assert {kind: digest_of(imports_of(one)) for kind, one in plugins.items()} == before


def test_what_an_import_of_all_brings_and_who_has_two_names(tmp_path, monkeypatch):
    """``import *`` was taken for nothing, and a second name for another content."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "pack_e")
    (tmp_path / "pack_e").mkdir()
    for name, text in {
        "pack_e/__init__.py": "__all__ = ['deep_f']\n", "pack_e/deep_f.py": "V = 1\n",
        "all_g.py": "from pack_e import *\n", "one_h.py": "import deep_f\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    every, alone = (
        load(None, [f"plugins=[{tmp_path}/{n}.py]"]).plugins for n in ("all_g", "one_h")
    )
    assert "pack_e.deep_f" in imports_of(every)
    assert [*imports_of(alone)] == ["deep_f"]
    require_as_imported([*every, *alone])
    require_as_imported([*alone, *every])
    before = digest_of(imports_of(every))
    (tmp_path / "pack_e" / "deep_f.py").write_text("V = 2\n")
    with pytest.raises(UserError, match=r"deep_f\.py, which they import, was changed since"):
        require_as_imported(every)
    NOTED.clear()
    assert digest_of(imports_of(every)) != before


def test_libraries_are_nobody_s_own_code(tmp_path, monkeypatch):
    """A plugin that imports torch took minutes where torch lay in a folder of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("site-packages/lib_i.py", "lib_j.py", "lib_j-1.dist-info/METADATA"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert is_installed(str(tmp_path / "site-packages" / "lib_i.py"))
    assert is_installed(str(tmp_path / "lib_j.py"))
    assert is_installed(pd.__file__)
    assert not is_installed(str(Path(__file__)))


def test_a_sweep_goes_on_by_what_its_plugins_import(tmp_path):
    """Trials by one version of a module stood in one table with those by another."""
    folder = RunFolder(tmp_path)
    Shelf({}, {IMPORTS: "a"}).leave(folder)
    with pytest.raises(UserError, match="plugins import are not those that the sweep was begun"):
        Shelf({}, {IMPORTS: "b"}).require_known(folder)
    Shelf({}, {IMPORTS: "a"}).require_known(folder)
    Shelf({}).leave(folder)
    Shelf({}, {IMPORTS: "b"}).require_known(folder)  # of a sweep of before


def test_a_sweep_whose_modules_change_ends_and_goes_on(tmp_path, monkeypatch, ray_session):
    """Trials by what a file had become, or had been, stood in one table."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trainable, "REPORT_SECONDS", 0.0)
    factor, run = tmp_path / "factor_of_all.py", Here._run
    factor.write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled_all.py").write_text(
        SCALED.replace("_mine", "_all").replace("scaled", "all")
    )
    base = {"plugins": [f"{tmp_path}/scaled_all.py"], "algorithm": "all"}
    plan = sweep(axes={"local.lr": [0.1, 0.2, 0.3]}, base=base)

    def edited(self, trial, trials):
        run(self, trial, trials)
        factor.write_text("FACTOR = 2.0\n")

    with monkeypatch.context() as patch:
        patch.setattr(Here, "_run", edited)
        with pytest.raises(UserError, match=r"was changed since .*; 2 of 3 trials are to go: its"):
            sweep_here(plan, tmp_path / "s")
    factor.write_text("FACTOR = 1.0\n")
    sweep_here(plan, tmp_path / "s", resume=True)
    assert [one.status for one in by_trial(tmp_path / "s").values()] == 3 * ["finished"]


def test_a_process_with_other_imports_is_of_no_use(tmp_path, monkeypatch, ray_session):
    """A client actor that took a dead one's place, or a trial's process, ran what a file had become."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_ours.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled_too.py").write_text(
        SCALED.replace("_mine", "_ours").replace("scaled", "two")
    )
    config = load(None, [*SMALL, f"plugins=[{tmp_path}/scaled_too.py]", "algorithm=two"])
    shelf = Shelf.of([config])
    world = Experiment(config).world
    shelf.require_code(config)
    assert ClientActor(world, "run", 0, 0.0).ready().device == "cpu"
    (tmp_path / "factor_of_ours.py").write_text("FACTOR = 3.0\n")
    NOTED.clear()
    for there in (ClientActor(world, "run", 0, 0.0).ready, partial(shelf.require_code, config)):
        with pytest.raises(
            UserError, match=r"module factor_of_ours, .* is not what the run was begun with"
        ):
            there()
    require_imports(config.plugins, {})  # of a run of before


def test_what_a_plugin_imports_is_a_part_of_the_run(tmp_path, monkeypatch, capsys):
    """A run went on by other code, or was one of several seeds of it, without a word."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_mine.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled.py").write_text(SCALED)

    def series(*seeds):
        settings = [*SMALL, f"plugins=[{tmp_path}/scaled.py]", "algorithm=scaled"]
        configs = {seed: load(None, [*settings, f"seed={seed}"]) for seed in seeds}
        return Series(seed_folders(configs), str(tmp_path / "s")).run(run_here)

    (first,) = series(0)
    assert "imports_sha256" in first.result()
    assert len(series(0, 1)) == 2
    (tmp_path / "factor_of_mine.py").write_text("FACTOR = 0.5\n")
    with pytest.raises(
        UserError, match=r"factor_of_mine\.py, which they import, was changed since"
    ):
        run_into(first, first.config([], ["rounds=4"]), resuming=True)
    capsys.readouterr()
    usage.tell_of_imports(first)  # what this process has imported is the run's
    assert "modules" not in capsys.readouterr().err
    NOTED.clear()
    with pytest.raises(UserError, match="or of what plugins import"):
        series(0, 1, 2)
    with pytest.raises(UserError, match="modules that its plugins import are not those"):
        run_into(first, first.config([], ["rounds=4"]), resuming=True)
    capsys.readouterr()
    fedorch.Run(first.place).evaluate()
    assert "modules that its plugins import are not those" in capsys.readouterr().err


@pytest.mark.long
def test_a_module_that_only_this_process_finds_is_said(tmp_path, monkeypatch, ray_session):
    """All that was said was that the server's actor had died."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_theirs.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled.py").write_text(SCALED.replace("mine", "theirs"))
    config = load(None, [*SMALL, f"plugins=[{tmp_path}/scaled.py]", "algorithm=scaled"])
    with pytest.raises(UserError, match="No module named 'factor_of_theirs' in Ray's processes"):
        run_on_ray(config, RunFolder(tmp_path / "r"), False, [])
