"""`fedorch predict`: files become inputs as in training, and outputs classes with their names."""

import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fedorch
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import TrainedModel
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.orchestrator.test_plugins import forget
from tests.running import run_into


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on grey images of 28 pixels."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "a")
    run_into(folder, small("rounds=2"))
    return folder.path


def told(*words):
    code, text = here("predict", *words)
    assert code == 0, text
    return pd.read_csv(io.StringIO(text))


def test_images_are_resized_and_made_grey_as_in_training(digits, tmp_path):
    rng = np.random.default_rng(0)
    for name, shape in (("a.png", (28, 28)), ("b.png", (40, 30, 3))):
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(tmp_path / name)
    table = told(digits, tmp_path)
    assert table["input"].tolist() == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    with Image.open(tmp_path / "b.png") as image:
        grey = np.asarray(image.convert("L").resize((28, 28), Image.Resampling.BILINEAR))
    run = fedorch.open(digits)
    with Image.open(tmp_path / "a.png") as image:
        wanted = run.outputs(np.stack([np.asarray(image), grey]))
    assert table["class"].tolist() == [run.classes[c] for c in wanted.argmax(1)]
    assert run.classes[9] == "ankle boot"
    odds = torch.softmax(wanted, 1).amax(1).numpy()
    np.testing.assert_allclose(table["probability"], odds, rtol=1e-5)
    # Python takes what the command takes
    assert torch.equal(run.outputs(tmp_path), wanted)
    with Image.open(tmp_path / "b.png") as image:
        assert torch.equal(run.outputs(image), run.outputs(tmp_path / "b.png"))
    pair = [str(tmp_path / "b.png"), tmp_path / "a.png"]
    assert torch.equal(run.outputs(pair), wanted.flip(0))
    with pytest.raises(UserError, match="the image: its pixels are of mode I"):
        run.predict(Image.fromarray(np.zeros((28, 28), np.uint16)))
    assert run.predict(str(tmp_path / "a.png")).tolist() == wanted[:1].argmax(1).tolist()
    np.testing.assert_allclose(run.probabilities(tmp_path).max(1), odds, rtol=1e-5)
    each = told(digits, tmp_path, "--each")
    columns = each[[f"P({name})" for name in run.classes]]
    np.testing.assert_allclose(columns, torch.softmax(wanted, 1), rtol=1e-5, atol=1e-7)
    assert each["probability"].tolist() == table["probability"].tolist()


def test_images_that_are_no_squares_and_hidden_ones(tmp_path):
    """It said that the model was not trained on images, of a file that it was trained on."""
    rng, data = np.random.default_rng(0), tmp_path / "data"
    for kind in ("cat", "dog"):
        for i in range(8):
            place = data / kind / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (10, 12, 3)).astype(np.uint8)).save(place)
    dataset = {"name": "folder", "path": str(data)}
    settings = {"data.dataset": dataset, "data.partition": "iid", "data.clients": 2, "cohort": 2}
    run = fedorch.run(out=tmp_path / "run", model="linear", rounds=1, verbose=False, **settings)
    (data / ".thumbnails").mkdir()
    shutil.copy(data / "cat" / "0.png", data / ".thumbnails" / "0.png")
    table = told(tmp_path / "run", data)
    assert len(table) == 16
    with Image.open(data / "cat" / "0.png") as image:
        wanted = run.predict(np.asarray(image)[None])
    assert table["class"].iloc[0] == run.classes[int(wanted[0])]


def test_arrays(digits, tmp_path):
    x = np.random.default_rng(1).integers(0, 256, (5, 28, 28)).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, other=x[:1])
    run = fedorch.open(digits)
    classes = [run.classes[c] for c in run.predict(x)]
    table = told(digits, tmp_path / "x.npy", tmp_path / "x.npz")
    assert table["class"].tolist() == classes * 2
    code, _ = here("predict", digits, tmp_path / "x.npy", "--file", tmp_path / "t.csv")
    assert code == 0
    assert pd.read_csv(tmp_path / "t.csv")["class"].tolist() == classes


def test_a_table_s_classes_have_their_names_and_numbers_are_numbers(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 9, 60).round(1), "sex": rng.choice(["m", "f"], 60)})
    frame["ill"] = np.where(frame["age"] > 50, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for label, task, loss in (("ill", "classes", "cross_entropy"), ("age", "numbers", "mse")):
        data = {"name": "csv", "path": str(tmp_path / "t.csv"), "label": label, "task": task}
        config = load(None, [f"data.dataset={json.dumps(data)}", "data.clients=3", "cohort=3",
                             "data.partition=iid", "model=linear", "rounds=1", f"loss={loss}",
                             "local.steps=2", "local.lr=0.01"])  # fmt: skip
        folder = RunFolder(tmp_path / label)
        run_into(folder, config)
        table = told(folder.path, tmp_path / "t.csv")
        expected = fedorch.open(folder.path)
        if task == "numbers":
            wanted = expected.predict(frame)[:, 0]
            np.testing.assert_allclose(table["output 0"], wanted, rtol=1e-5)
        else:
            wanted = [expected.classes[c] for c in expected.predict(frame)]
            assert table["class"].tolist() == wanted


@pytest.mark.parametrize("separator", [",", ";"])
def test_texts_are_read_as_in_training(tmp_path, separator):
    """A file alone would say that 01 is a number, and true a truth; and names, endings and
    separators are those that training takes.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"code": rng.choice(["01", "02", "A3", "B4", "C5"], 90), "age": rng.integers(9, 90, 90)}
    )
    frame["flag"] = np.where(frame["code"] > "A", "unknown", "true")
    frame["ill"] = np.where(frame["code"] == "01", "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False, sep=separator)
    data = {"name": "csv", "path": str(tmp_path / "t.csv"), "label": "ill", "separator": separator}
    config = load(None, [f"data.dataset={json.dumps(data)}", "data.clients=3", "cohort=3",
                         "data.partition=iid", "model=linear", "rounds=20", "local.lr=0.5"])  # fmt: skip
    run_into(RunFolder(tmp_path / "r"), config)
    whole = told(tmp_path / "r", tmp_path / "t.csv")
    assert (whole["class"] == frame["ill"]).mean() > 0.9
    some = frame[frame["code"] == "01"]
    for name in ("p.csv", "P.CSV", "p.csv.gz", "p.txt", "P.csv.XZ"):
        kind = {".gz": "gzip", ".XZ": "xz"}.get(name[5:])
        some.to_csv(tmp_path / name, index=False, sep=separator, compression=kind)
        found = told(tmp_path / "r", tmp_path / name)
        expected = whole.loc[some.index, "probability"]
        assert found["class"].tolist() == whole.loc[some.index, "class"].tolist()
        np.testing.assert_allclose(found["probability"], expected, rtol=1e-6)
    if separator == ",":
        some.to_parquet(tmp_path / "p.Parquet")
        found = told(tmp_path / "r", tmp_path / "p.Parquet")
        assert found["class"].tolist() == whole.loc[some.index, "class"].tolist()
    # and judged on a file in which all are such, as many are right as are predicted
    others = frame[frame["code"] < "A"]
    part = np.where(np.arange(len(others)) < 20, "train", "test")
    others.assign(part=part).to_csv(tmp_path / "two.csv", index=False, sep=separator)
    words = ("--set", f"data.dataset.path={tmp_path}/two.csv", "--set", "data.dataset.test=part")
    code, text = here("evaluate", tmp_path / "r", *words, "--format", "json")
    assert code == 0, text
    right = whole.loc[others.index, "class"] == others["ill"]
    record, end = json.JSONDecoder().raw_decode(text)
    assert record["test_accuracy"] == pytest.approx(right[20:].mean())
    # what is told on stderr
    assert re.search(r"note: \d+ of \d+ test rows are rows that the run trained on", text[end:])


def test_what_is_no_input(digits, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "note.txt").write_text("?")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "one.npy", np.zeros((28, 28), np.uint8))
    np.save(tmp_path / "number.npy", np.array(3))
    np.savez(tmp_path / "number.npz", x=np.array(3))
    np.save(tmp_path / "narrow.npy", np.zeros((3, 27, 28), np.uint8))
    for name, said in (
        ("t.csv", "was not trained on a table"),
        ("note.txt", "its name says nothing"),
        ("empty", "no images in it"),
        ("one.npy", "give inputs of shape (n, ...)"),
        ("narrow.npy", "none of shape"),
        ("number.npy", "no array of rows"),
        ("number.npz", "no array of rows"),
        ("nowhere.png", "nowhere.png"),
    ):
        code, text = here("predict", digits, tmp_path / name)
        assert code == 2, text
        assert said in text


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Runs on numbers [3], and on ids of tokens [4] of which there are 20."""
    there = tmp_path_factory.mktemp("others")
    rng = np.random.default_rng(0)
    numbers = {"x": rng.normal(size=(60, 3)), "y": np.arange(60) % 3}
    tokens = {"x": rng.integers(0, 20, (60, 4)), "y": np.arange(60) % 3}
    made = {}
    for name, arrays, model in (
        ("numbers", numbers, "linear"),
        ("tokens", tokens, "{name: char_lstm, vocabulary: 20, width: 4}"),
    ):
        np.savez(there / f"{name}.npz", **arrays)
        config = load(None, [f"data.dataset={{name: npz, path: {there}/{name}.npz}}", "rounds=1",
                             "data.clients=3", "cohort=3", "data.partition=iid", f"model={model}",
                             "local.steps=1"])  # fmt: skip
        run_into(RunFolder(there / name), config)
        made[name] = fedorch.open(there / name)
    return made


ONE = np.ones((2, 3))
DATES = np.full((2, 3), np.datetime64("2020-01-01"))
IDS = np.ones((2, 4), np.int64)


@pytest.mark.parametrize(
    ("run", "x", "said"),
    [
        ("numbers", ONE * np.nan, "row 0 has NaN"),
        ("numbers", ONE * [[1], [np.inf]], "row 1 has NaN"),
        ("numbers", ONE * 1e300, "a number beyond float32"),
        ("numbers", ONE + 1j, "complex128; the model takes numbers"),
        ("numbers", ONE.astype(str), "takes numbers"),
        ("numbers", ONE.astype(bytes), "takes numbers"),
        ("numbers", ONE > 0, "bool; the model takes numbers"),
        ("numbers", DATES, r"datetime64\[D\]; the model takes numbers"),
        ("numbers", ONE.astype(object), "object; the model takes numbers"),
        ("numbers", np.array(3.0), "'3.0' is no array of rows"),
        ("numbers", [[1, 2], [3]], "this is no array"),
        ("numbers", torch.ones(2, 3, dtype=torch.bfloat16), "this is no array"),
        ("tokens", -IDS, "from -1 to -1; the model takes token ids"),
        ("tokens", IDS * (2**32 + 3), "the model takes token ids, 0 or more"),
        ("tokens", IDS > 0, "bool; the model takes token ids"),
        ("tokens", IDS * 20, "cannot take token ids from 20 to 20 .its embeddings have 20 rows"),
    ],
)
def test_inputs_that_training_would_refuse(others, run, x, said):
    with pytest.raises(UserError, match=said):
        others[run].predict(x)


def test_inputs_of_any_number_type(others):
    x = np.arange(6).reshape(2, 3)
    wanted = others["numbers"].outputs(x.astype(np.float32))
    for kind in (np.int8, np.uint64, np.float16, np.float64):
        assert torch.equal(others["numbers"].outputs(x.astype(kind)), wanted)
    assert others["tokens"].predict(IDS.astype(np.uint8)).shape == (2,)
    assert others["numbers"].predict(x[:0]).shape == (0,)


NETS = """import torch
from torch import nn


class Placed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(784, 8), nn.Linear(8, classes)
        self.register_buffer("place", torch.linspace(0, 1, 8), persistent=False)
        self.register_buffer("mean", torch.zeros(()), persistent=False)

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean.mul_(0.5).add_(x.mean(), alpha=0.5)
        return self.head(torch.relu(self.body(x - self.mean)) + self.place)
"""


def test_buffers_that_a_state_dict_leaves_out(tmp_path):
    """They are among what a run keeps, as all floating-point buffers are."""
    (tmp_path / "nets.py").write_text(NETS)
    folder = RunFolder(tmp_path / "r")
    end, _ = run_into(folder, small(f"model={tmp_path}/nets.py:Placed"))
    run, data = fedorch.open(folder.path), end.data
    module = run.model()
    assert float(module.mean) == float(end.algorithm.statistics()[-1]) != 0
    x, y = data.samples.x[data.test_rows], data.samples.y[data.test_rows]
    assert np.mean(run.predict(x) == y) == run.rounds["test_accuracy"].iloc[-1]
    forget()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda t: {**t, "more": torch.zeros(1)}, "its model has no more"),
        (lambda t: dict(list(t.items())[1:]), "the weights hold no"),
        (lambda t: {n: w[..., :-1].contiguous() for n, w in t.items()}, "do not fit its model"),
    ],
)
def test_weights_of_another_model(digits, tmp_path, changed, said):
    there = RunFolder(tmp_path / "r")
    shutil.copytree(digits, there.path)
    there.write_model(changed(there.model()))
    there.seal()
    with pytest.raises(UserError, match=said):
        TrainedModel(there)


def test_a_run_s_test_rows_can_be_had(digits, tmp_path):
    """They are those that its accuracy is of, and the network alone says the same of them."""
    run = fedorch.open(digits)
    x, y = run.test()
    assert x.flags.writeable
    assert x.flags.c_contiguous
    wanted = run.result["metrics"]["test_accuracy"]
    assert float((run.predict(x) == y).mean()) == pytest.approx(wanted)
    inputs = json.loads((digits / "inputs.json").read_text())
    made = (torch.from_numpy(x).float() - inputs["shift"][0]) * inputs["scale"][0]
    with torch.no_grad():
        mine = run.model()(made).argmax(1).numpy()
    assert float((mine == y).mean()) == pytest.approx(wanted)
    result = json.loads((digits / "result.json").read_text())
    shutil.copytree(digits, tmp_path / "other")
    changed = json.dumps(result | {"data_sha256": "0" * 64})
    (tmp_path / "other" / "result.json").write_text(changed)
    RunFolder(tmp_path / "other").seal()
    with pytest.raises(UserError, match="are not those that the run had"):
        fedorch.open(tmp_path / "other").test()
