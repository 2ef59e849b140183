"""A model is judged by other data as it was trained, or the command says why not; and what a run
goes on with is what it began with.
"""

from collections import Counter, OrderedDict, deque

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fedorch
from orchestrator.cli.evaluating import _fitting, evaluation
from orchestrator.config import load
from orchestrator.data.own.characters import Alphabet
from orchestrator.data.samples import Request, Samples
from orchestrator.errors import UserError
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.results.run_folder import RunFolder
from tests.running import run_into
from tests.sweeps.plans import SMALL


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
    assert type(state["kept"]) is type(kept)
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
