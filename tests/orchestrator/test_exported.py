"""A trained model given away: in every form it says what the run's model says, and judged anew it
has the numbers that the run had."""

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import fedorch
from orchestrator.cli.evaluating import _known
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import run_into


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on pixels."""
    place = tmp_path_factory.mktemp("images") / "run"
    run_into(RunFolder(place), small("rounds=2", "model=lenet5"))
    return place


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A run on a CSV file, and another file of other means and orders of columns."""
    place = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(3)

    def rows(n, shift):
        x, town = rng.normal(shift, 2.0, n), rng.choice(["bonn", "oslo"], n)
        y = np.where(x + (town == "oslo") > shift, "high", "low")
        return pd.DataFrame({"x": x, "town": town, "y": y, "who": np.arange(n) % 4})

    rows(400, 10.0).to_csv(place / "old.csv", index=False)
    new = rows(300, 12.0)
    new[["who", "y", "town", "x"]].to_csv(place / "new.csv", index=False)
    (place / "c.yaml").write_text(
        f"data: {{dataset: {{name: csv, path: {place}/old.csv, label: y, client: who}}, "
        "clients: 4, partition: natural}\nmodel: linear\nrounds: 3\nlocal: {lr: 0.5}\n"
    )
    code, text = here("run", place / "c.yaml", "--in-process", "--out", place / "run")
    assert code == 0, text
    return place


def pixels():
    return torch.arange(3 * 784).view(3, 1, 28, 28).remainder(251).to(torch.uint8)


def test_every_form_says_what_the_run_s_model_says(images, tmp_path):
    expected = fedorch.open(images).outputs(pixels())
    for ending in ("onnx", "pt2", "torchscript", "pt", "safetensors"):
        code, text = here("export", images, tmp_path / f"m.{ending}")
        assert code == 0, text
        assert (tmp_path / f"m.{ending}.md").exists()
    assert here("export", images, tmp_path / "hub", "--license", "mit")[0] == 0
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (made,) = session.run(None, {"x": pixels().numpy()})
    torch.testing.assert_close(torch.from_numpy(made), expected, rtol=1e-4, atol=1e-5)
    traced = torch.jit.load(str(tmp_path / "m.torchscript"))(pixels())
    torch.testing.assert_close(traced, expected)
    with pytest.raises(torch.jit.Error, match="pixels from 0 to 255, uint8"):
        torch.jit.load(str(tmp_path / "m.torchscript"))(pixels() / 255)
    exported = torch.export.load(tmp_path / "m.pt2").module()(pixels())
    torch.testing.assert_close(exported, expected)
    weights = load_file(images / "model.safetensors")
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    for other in (
        state,
        load_file(tmp_path / "m.safetensors"),
        load_file(tmp_path / "hub/model.safetensors"),
    ):
        assert all(torch.equal(other[name], tensor) for name, tensor in weights.items())


def test_the_card_says_what_the_model_is(images, tmp_path):
    assert here("export", images, tmp_path / "hub", "--license", "mit")[0] == 0
    card = (tmp_path / "hub" / "README.md").read_text()
    result = json.loads((images / "result.json").read_text())
    assert card.startswith('---\nlicense: "mit"\n')
    assert result["weights_sha256"] in card
    assert f"| test_accuracy | {result['metrics']['test_accuracy']:.4f} |" in card
    assert json.loads((tmp_path / "hub" / "config.json").read_text())["inputs"]["dtype"] == "uint8"
    # and by its own words it can be used, wherever it was taken
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1].replace(
        '"hub"', f'"{tmp_path}/hub"'
    )
    Image.fromarray(pixels()[0, 0].numpy()).save(tmp_path / "picture.png")
    for name in ("hub", "m.torchscript"):
        if name != "hub":
            assert here("export", images, tmp_path / name)[0] == 0
            text = (tmp_path / f"{name}.md").read_text()
            code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
            code = code.replace(f'"{name}"', f'"{tmp_path}/{name}"')
        space = {}
        exec(code.replace('"picture.png"', f'"{tmp_path}/picture.png"'), space)
        made = space["made"] if name == "hub" else space["outputs"].argmax(1)
        assert made.tolist() == fedorch.open(images).predict(pixels()[:1].numpy()).tolist()
    assert here("evaluate", tmp_path / "hub")[1] == here("evaluate", images)[1]
    with pytest.raises(fedorch.UserError, match=r"holds no rounds\.parquet"):
        _ = fedorch.open(tmp_path / "hub").rounds


def test_the_card_of_a_table_s_model_says_how_inputs_are_made(table, tmp_path):
    """By its words alone, a row is what ``predict`` makes of it."""
    assert here("export", table / "run", tmp_path / "m.onnx")[0] == 0
    card = (tmp_path / "m.onnx.md").read_text()
    assert "weights are those" not in card
    for ending in ("pt", "safetensors"):
        assert here("export", table / "run", tmp_path / f"m.{ending}")[0] == 0
        of_weights = (tmp_path / f"m.{ending}.md").read_text()
        assert "network.load_state_dict(" in of_weights
        assert "Linear(in_features=3, out_features=2, bias=True)" in of_weights
    (said,) = (line for line in card.splitlines() if "Inputs:" in line)
    assert "2 outputs, whose softmax is how likely each class is" in said
    assert 'onnxruntime.InferenceSession("m.onnx")' in card
    made = re.findall(r"\(x − ([\d.e-]+)\) / ([\d.e-]+)|1 where town is '(\w+)'", said)
    (mean, std, _), (_, _, first), (_, _, second) = made
    x, town = 11.5, "oslo"
    row = [(x - float(mean)) / float(std), float(town == first), float(town == second)]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (outputs,) = session.run(None, {"x": np.array([row], np.float32)})
    expected = fedorch.open(table / "run").outputs({"x": x, "town": town})
    np.testing.assert_allclose(outputs, expected.numpy(), rtol=1e-4, atol=1e-5)
    # and its code runs as it stands
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    space = {}
    exec(code.replace('"m.onnx"', f'"{tmp_path}/m.onnx"'), space)
    expected = fedorch.open(table / "run").outputs(space["row"])
    np.testing.assert_allclose(space["outputs"], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_wrong_places_are_refused(images, tmp_path):
    for out, why in (
        (tmp_path / "m.h5", "ends in none of .onnx"),
        (images, "it is there already"),
        (tmp_path / "nowhere" / "m.pt", "there is no folder"),
    ):
        code, text = here("export", images, out)
        assert code == 2, text
        assert why in text
    (tmp_path / "m.pt.md").write_text("mine")
    code, text = here("export", images, tmp_path / "m.pt")
    assert code == 2
    assert "its card" in text
    assert not (tmp_path / "m.pt").exists()


def judged(*words):
    code, text = here("evaluate", *words, "--format", "json")
    assert code == 0, text
    return json.loads(text)


@pytest.mark.parametrize("which", ["images", "table"])
def test_judged_on_its_own_data_a_model_has_the_numbers_of_its_run(which, request):
    place = request.getfixturevalue(which)
    place = place if which == "images" else place / "run"
    result = json.loads((place / "result.json").read_text())["metrics"]
    for name, value in judged(place).items():
        assert result[name] == value


def test_other_rows_are_standardised_as_in_training(table):
    """Against predictions row by row, which know nothing of datasets and federations."""
    whole = judged(table / "run", "--set", f"data.dataset.test={table}/new.csv")
    found = judged(
        table / "run",
        "--set",
        f"data.dataset.path={table}/new.csv",
        "--set",
        "data.dataset.test=0.5",
    )
    frame = pd.read_csv(table / "new.csv")
    run = fedorch.open(table / "run")
    right = np.array(run.classes)[run.predict(frame)] == frame["y"].to_numpy()
    code, text = here(
        "data", "show", table / "run" / "config.yaml", "--set", f"data.dataset.path={table}/new.csv"
    )
    assert code == 0, text
    assert whole["test_accuracy"] == pytest.approx(right.mean())
    # all rows are about as good as the half that is tested on; with its own means they are not
    assert abs(found["test_accuracy"] - right.mean()) < 0.06
    moved = frame.assign(x=frame["x"] - 2.0)
    spoilt = (np.array(run.classes)[run.predict(moved)] == frame["y"].to_numpy()).mean()
    assert abs(found["test_accuracy"] - spoilt) > 0.1


def test_what_is_exported_is_judged_by_other_rows_too(table):
    """It has no table of its clients."""
    assert here("export", table / "run", table / "given")[0] == 0
    other = ["--set", f"data.dataset.path={table}/new.csv", "--set", "data.dataset.test=0.5"]
    assert judged(table / "given", *other) == judged(table / "run", *other)
    own = ["--set", f"data.dataset.test={table}/old.csv"]
    code, text = here("evaluate", table / "given", *own)
    assert code == 0
    assert "are rows that were there to train on" in text


def test_data_that_do_not_fit_are_refused(images, table, tmp_path):
    code, text = here("evaluate", images, "--set", "rounds=3")
    assert code == 2
    assert "can be judged by other data and metrics" in text
    code, text = here(
        "evaluate", images, "--set", "data.dataset=synthetic", "--set", "data.partition=natural"
    )
    assert code == 2
    assert "the model was trained on classes of uint8 inputs (1, 28, 28)" in text
    frame = pd.read_csv(table / "new.csv").replace({"y": {"high": "higher"}})
    frame.to_csv(tmp_path / "strange.csv", index=False)
    code, text = here(
        "evaluate", table / "run", "--set", f"data.dataset.path={tmp_path}/strange.csv"
    )
    assert code == 2
    assert "knows no class 'higher'; it knows high, low" in text
    x, y = pixels().numpy(), np.arange(3)
    np.savez(tmp_path / "n.npz", x=np.tile(x, (4, 1, 1, 1))[:, 0], y=np.tile(y, 4))
    words = ("--all-rows", "--set", f"data.dataset={{name: npz, path: {tmp_path}/n.npz}}")
    code, text = here("evaluate", images, *words)
    assert code == 0, text
    assert "the data do not name their classes; their 0 is taken for" in text
    np.savez(tmp_path / "n.npz", x=x[:1].repeat(5, 0)[:, 0], y=np.zeros(5, int))
    code, text = here("evaluate", images, *words)
    assert code == 0, text
    assert "5 rows" in text
    np.savez(tmp_path / "n.npz", x=np.tile(x, (4, 1, 1, 1))[:, 0], y=np.tile(y, 4) + 20)
    assert "knows no class 20: it has 10, from 0 to 9" in here("evaluate", images, *words)[1]


def test_a_class_that_no_folder_can_be_called():
    known = ["T-shirt/top", "Bag", "bag/T"]
    assert [_known(name, known) for name in ("T-shirt_top", "bag", "BAG_t")] == [0, 1, 2]


BRANCHING = """
import torch
from torch import nn


class Branch(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.a, self.b = nn.Linear(784, classes), nn.Linear(784, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.a(x) if x.mean() > 0.9 or not self.training else self.b(x)


class Loop(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.a = nn.Linear(784, classes)

    def forward(self, x):
        return torch.stack([self.a(row) * (2 if row[0] > row[-1] else 1) for row in x.flatten(1)])


class Clamped(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.a = nn.Linear(features, classes)

    def forward(self, x):
        return self.a(x.clamp(max=6.0) if x.max() > 6 else x)


class Levels(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.level, self.a = nn.Embedding(2, 1), nn.Linear(784, classes)

    def forward(self, x):
        return self.a(self.level((x.flatten(1) > 0).long())[..., 0])


class Tied(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(784, 784), nn.Linear(784, 784), nn.Linear(784, classes)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.c(self.b(torch.relu(self.a(x.flatten(1)))))
"""


def own(tmp_path, name, *settings):
    (tmp_path / "nets.py").write_text(BRANCHING)
    place = tmp_path / name
    run_into(RunFolder(place), small("rounds=1", f"model={tmp_path}/nets.py:{name}", *settings))
    return place


def test_what_a_trace_does_not_follow_is_not_written(tmp_path):
    """It was: with the decisions that the examples had led to."""
    place = own(tmp_path, "Loop")
    code, text = here("export", place, tmp_path / "m.torchscript")
    assert code == 2
    assert "depends on the values of its inputs" in text
    assert not (tmp_path / "m.torchscript").exists()
    assert here("export", place, tmp_path / "m.pt")[0] == 0
    of_numbers = ("data.dataset=synthetic", "data.partition=natural", "data.limit=null")
    place = own(tmp_path, "Clamped", *of_numbers)
    assert "depends on the values" in here("export", place, tmp_path / "c.torchscript")[1]


def test_weights_that_are_shared_are_written_twice(tmp_path):
    place = own(tmp_path, "Tied")
    for out in (tmp_path / "m.safetensors", tmp_path / "folder"):
        code, text = here("export", place, out)
        assert code == 0, text
    found = load_file(tmp_path / "m.safetensors")
    assert torch.equal(found["a.weight"], found["b.weight"])


def test_inputs_that_a_network_does_not_take_are_no_evidence(tmp_path):
    place = own(tmp_path, "Levels")
    code, text = here("export", place, tmp_path / "m.torchscript")
    assert code == 0, text


def test_what_does_not_fit_is_said_with_its_file_and_what_makes_it_fit(images, table, tmp_path):
    for number in range(2):
        folder = tmp_path / "photos" / ("bag", "coat")[number]
        folder.mkdir(parents=True)
        Image.new("RGB", (40, 40), (9, 9, 9 * number)).save(folder / "a.png")
    data = f"data.dataset={{name: folder, path: {tmp_path}/photos}}"
    code, text = here("evaluate", images, "--all-rows", "--set", data)
    assert code == 2
    assert "data.dataset.grey=true" in text
    assert "data.dataset.side=28 resizes images" in text
    frame = pd.read_csv(table / "new.csv")
    frame["x"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    code, text = here("predict", table / "run", table / "new.csv", tmp_path / "gaps.csv")
    assert code == 2
    assert f"{tmp_path}/gaps.csv: column" in text.replace("\n", "")


def test_the_folder_of_a_table_s_model_is_asked_by_rows(table, tmp_path, capfd):
    """Its card sent arrays of raw numbers to a model that wants them standardised."""
    run = fedorch.open(table / "run")
    assert run.export(tmp_path / "hub", license="mit") == tmp_path / "hub"
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "which `fedorch.open` makes of rows with the columns x, town;" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    space = {}
    exec(code.replace('"hub"', f'"{tmp_path}/hub"'), space)
    row = json.loads(re.search(r"predict\((.*)\)", code)[1])
    assert space["made"].tolist() == run.predict([row]).tolist()
    assert len(run.predict([row, row])) == 2
    odd = {**row, "town": "rome"}
    capfd.readouterr()
    run.predict([row, odd])
    assert "column 'town': 'rome' (row 2; 1 such rows)" in capfd.readouterr().err.replace("\n", " ")
    run.predict(np.array([[71.0, 0, 1]], np.float32))
    assert "the model wants columns that are standardised" in capfd.readouterr().err.replace(
        "\n", " "
    )
    # others' rows, whoever they are of
    frame = pd.read_csv(table / "new.csv").drop(columns="who")
    frame.to_csv(tmp_path / "nobody.csv", index=False)
    settings = {"data.dataset.path": str(tmp_path / "nobody.csv")}
    found = run.evaluate(all_rows=True, **settings)
    assert found["test_accuracy"] == pytest.approx(
        np.mean([run.classes[c] for c in run.predict(frame)] == frame["y"])
    )
    clinics = Path(__file__).parents[2] / "examples" / "own_data"
    words = ("run", clinics / "clinics.yaml", "--set", "rounds=1", "--in-process")
    assert here(*words, "--out", tmp_path / "clinics")[0] == 0
    new = pd.read_csv(clinics / "clinics.csv").head(3).assign(clinic="elsewhere")
    new.to_csv(tmp_path / "elsewhere.csv", index=False)
    with pytest.raises(UserError, match=r"--all-rows and --set data\.dataset\.path=FILE"):
        fedorch.open(tmp_path / "clinics").evaluate(
            **{"data.dataset.test": str(tmp_path / "elsewhere.csv")}
        )
    own = {k: v for k, v in run.result["metrics"].items() if k.startswith("test")}
    assert run.evaluate()[[*own]].to_dict() == pytest.approx(own)
