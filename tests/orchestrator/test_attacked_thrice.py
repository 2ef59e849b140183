"""What another hour of attack found, all of it with exit code 0: choices and comparisons by a
metric of one's own, data of a library, settings on a run's own config, numbers of NumPy's.
"""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import fedorch
from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from fedorch.runs import config_of
from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison import show_comparison
from orchestrator.cli.evaluating import evaluation
from orchestrator.cli.exporting import write_model
from orchestrator.config import load
from orchestrator.data.columns import of_numbers
from orchestrator.errors import UserError
from orchestrator.pages.sentence import in_common
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import more_is_better
from sweeps.plan import read_sweep
from tests.configs import small
from tests.running import run_into

METRICS = """
def inaccuracy(outputs, targets):
    return float((outputs.argmax(1) != targets).float().mean())


def neg_mae(outputs, targets):
    return -inaccuracy(outputs, targets)
"""
KINDS = {"inaccuracy": "less", "neg_mae": "more"}


@pytest.fixture
def judged(tmp_path):
    """A good rate and a bad one, judged by metrics whose names say the opposite of what they are."""
    (tmp_path / "m.py").write_text(METRICS)
    own = [{"name": f"{tmp_path}/m.py:{name}", "better": better} for name, better in KINDS.items()]
    folders = []
    for rate in (0.1, 1e-6):
        folders.append(RunFolder(tmp_path / str(rate)))
        config = small("rounds=2", f"local.lr={rate}", f"evaluation.metrics={json.dumps(own)}")
        run_into(folders[-1], config)
    return folders


def test_a_metric_is_better_as_it_says_itself(judged):
    runs = Runs.read(judged)
    assert runs.more_is_better("test_inaccuracy") is False
    assert runs.more_is_better("client_neg_mae_worst10") is True
    assert runs.more_is_better("client_neg_mae_std") is False
    assert runs.more_is_better("client_inaccuracy_jain") is True
    text = show_comparison(judged, None, ["test_neg_mae"], form="latex")
    for name in KINDS:
        good, bad = (float(one.result()["metrics"][f"test_{name}"]) for one in judged)
        assert good < bad if name == "inaccuracy" else good > bad
        label = f"test {name.replace('_', ' ')} "
        (line,) = (one for one in text.splitlines() if one.startswith(label))
        assert [cell.strip().startswith(r"\textbf") for cell in line.split("&")[1:]] == [
            True,
            False,
        ]


def test_how_uneven_is_worse_of_whatever():
    for name in ("accuracy", "f1_macro", "auroc", "r2", "loss", "mae"):
        assert more_is_better(f"client_{name}_angle") is False
        assert more_is_better(f"client_{name}_kl") is False
        assert more_is_better(f"client_{name}_jain") is True


def test_a_sweep_chooses_as_the_metric_says(tmp_path):
    (tmp_path / "m.py").write_text(METRICS)
    for name, better in KINDS.items():
        plan = {
            "base": {"evaluation": {"metrics": [{"name": f"./m.py:{name}", "better": better}]}},
            "axes": {"local.lr": [0.1, 0.2]},
            "metric": f"validation_{name}",
        }
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(plan))
        read = read_sweep(tmp_path / "s.yaml")
        assert read.direction == ("min" if better == "less" else "max")
        # what is stored needs no plugin any more to say it
        assert read.changed((), None).mode == read.direction
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**plan, "mode": "min"}))
    assert read_sweep(tmp_path / "s.yaml").direction == "min"


def of_library(place, seed, names, more=()):
    """Two classes told apart by the sum of two numbers, in the order of ``names``."""
    import datasets

    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 150))
    label = np.where(a + b > 0, names.index("well"), names.index("ill"))
    kinds = datasets.Features(
        {"a": datasets.Value("float64"), "b": datasets.Value("float64"),
         "label": datasets.ClassLabel(names=names)}
    )  # fmt: skip
    rows = datasets.Dataset.from_dict({"a": a, "b": b, "label": label}, features=kinds)
    split = rows.train_test_split(0.3, seed=0)
    split.save_to_disk(place)
    return {"name": "huggingface", "path": str(place), **dict(more)}


def trained_on(place, dataset):
    """The folder of a linear model of some given data."""
    config = load(None, [
        f"data.dataset={json.dumps(dataset)}", "data.clients=3", "cohort=3", "model=linear",
        "data.partition=iid", "rounds=4", "local.epochs=5", "local.lr=0.5",
    ])  # fmt: skip
    run_into(RunFolder(place), config)
    return RunFolder.viewed(str(place))


def test_classes_of_a_library_are_told_apart_by_their_names(tmp_path):
    one = of_library(tmp_path / "one", 0, ["well", "ill"])
    other = of_library(tmp_path / "other", 1, ["ill", "well"])
    folder = trained_on(tmp_path / "run", one)
    # in the order of the data, which is not that of the alphabet
    assert fedorch.open(folder.place).classes == ["well", "ill"]
    moved = evaluation(folder, [f"data.dataset={json.dumps(other)}"])[0]
    assert folder.result()["metrics"]["test_accuracy"] > 0.9
    assert moved["test_accuracy"] > 0.9
    for inputs, said in (("[a, label]", "is the label, and no input"), ("[a, a]", "twice")):
        config = small(f"data.dataset={json.dumps(one)}", f"data.dataset.inputs={inputs}")
        with pytest.raises(UserError, match=said):
            fedorch.Experiment(config)


def test_columns_of_a_library_are_known_by_their_names(tmp_path):
    """Who has them in another order was judged by the other number: 0.99 became 0.50."""
    rng, places = np.random.default_rng(0), {}
    rows = pd.DataFrame({"u": rng.normal(size=400), "z": rng.normal(size=400)})
    rows["ill"] = np.where(rows["u"] > 0, "yes", "no")
    for called, columns in (("a", ["u", "z"]), ("b", ["z", "u"]), ("c", ["z", "v"])):
        places[called] = tmp_path / called
        places[called].mkdir()
        table = rows.rename(columns={"u": "v"} if "v" in columns else {})[[*columns, "ill"]]
        table[:300].to_csv(places[called] / "train.csv", index=False)
        table[300:].to_csv(places[called] / "test.csv", index=False)
    one = {"name": "huggingface", "path": str(places["a"]), "label": "ill"}
    folder = trained_on(tmp_path / "run", one)
    moved = f"data.dataset.path={places['b']}"
    assert evaluation(folder, [moved])[0]["test_accuracy"] > 0.95
    other = f"data.dataset.path={places['c']}"
    with pytest.raises(UserError, match="has no column 'u', which the model was trained on"):
        evaluation(folder, [other])
    found = evaluation(folder, [other, "data.dataset.inputs=[v, z]"])
    assert found[0]["test_accuracy"] > 0.95


def test_inputs_are_made_as_in_training_or_not_at_all(tmp_path, capsys):
    """Of a library, and of arrays, a table's columns were not standardised: 0.99 became 0.48."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(500, 100, 200), "b": rng.normal(size=200)})
    rows["ill"] = np.where(rows["a"] > 500, "yes", "no")
    (tmp_path / "hf").mkdir()
    rows.to_csv(tmp_path / "t.csv", index=False)
    rows[:150].to_csv(tmp_path / "hf" / "train.csv", index=False)
    rows[150:].to_csv(tmp_path / "hf" / "test.csv", index=False)
    np.savez(
        tmp_path / "t.npz", x=rows[["a", "b"]].to_numpy(np.float32),
        y=(rows["ill"] == "yes").to_numpy(np.int64),
    )  # fmt: skip
    table = {"name": "csv", "path": f"{tmp_path}/t.csv", "label": "ill"}
    folder = trained_on(tmp_path / "run", table)
    with pytest.raises(UserError, match=r"columns of a table \(a, b\).*as CSV or Parquet"):
        evaluation(folder, [f"data.dataset={{name: huggingface, path: {tmp_path}/hf, label: ill}}"])
    capsys.readouterr()
    evaluation(folder, [f"data.dataset={{name: npz, path: {tmp_path}/t.npz}}"])
    said = " ".join(capsys.readouterr().err.split())
    assert "was trained on columns (a, b), standardised by its training rows" in said


@pytest.mark.parametrize("every", [False, True])
def test_nobody_is_malicious_on_other_data(tmp_path, every):
    """By number it was the one who stood in the attacker's place; of few clients there was none."""
    rng, lines = np.random.default_rng(0), ["a,b,who,label"]
    lines += [
        f"{a},{b},k{i % 6},{int(a > 0)}" for i, (a, b) in enumerate(rng.normal(size=(240, 2)))
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    fewer = [line for line in lines if ",k1," not in line and ",k4," not in line]
    (tmp_path / "q.csv").write_text("\n".join(fewer))
    run_into(
        RunFolder(tmp_path / "run"),
        load(None, [
            f"data.dataset={{name: csv, path: {tmp_path}/t.csv, client: who}}", "model=linear",
            "data.partition=natural", "data.clients=6", "cohort=6", "rounds=2",
            "attack={name: label_flip, ids: [5]}",
        ]),
    )  # fmt: skip
    folder = RunFolder.viewed(str(tmp_path / "run"))
    other = [f"data.dataset.path={tmp_path}/q.csv", *["data.clients=4"] * (not every)]
    record = evaluation(folder, other, every)[0]
    assert 0 <= record["test_accuracy"] <= 1
    if not every:
        assert record["client_accuracy_weighted"] == pytest.approx(record["test_accuracy"])


def test_numbers_of_numpy_are_numbers():
    """A cohort of one was a part of 1.0: everybody."""
    for kind in (np.int64, np.int32, np.uint8):
        assert config_of(None, cohort=kind(1)).cohort_size == 1
        assert config_of({"cohort": kind(1), "data": {"clients": kind(7)}}).cohort_size == 1
    assert config_of(None, **{"local.lr": np.float32(0.5)}).local.lr == 0.5


def test_what_a_config_says_is_not_replaced_by_what_the_data_suggest():
    x = np.random.default_rng(0).normal(size=(60, 5)).astype("float32")
    data = (x, (x[:, 0] > 0).astype(int), np.arange(60) % 6)
    said = {"cohort": 2, "rounds": 1, "data": {"partition": "iid", "clients": 3}}
    config = fedorch.Experiment(said, model=torch.nn.Linear(5, 2), data=data).config
    assert (config.cohort_size, config.data.partition.name, config.data.clients) == (2, "iid", 3)
    config = fedorch.Experiment(model=torch.nn.Linear(5, 2), data=data).config
    assert (config.cohort_size, config.data.partition.name, config.data.clients) == (
        6,
        "natural",
        6,
    )


SAME = ["fedavg", "fednova", "fedbn", "afl", "feddual", "fedaa", "fda_opt", "ditto", "server_only"]


@pytest.mark.parametrize("before", [name for name in SAME if name in variants(AlgorithmOptions)])
def test_another_algorithm_on_a_run_s_own_config_has_its_own_defaults(before):
    """Those of the one before stayed, and stood under the other's name in tables."""
    whole = config_of(None, algorithm=before)
    for name in (name for name in SAME if name in variants(AlgorithmOptions)):
        assert config_of(whole, algorithm=name) == config_of(None, algorithm=name)
    changed = config_of(whole, **{"algorithm": "fednova", "aggregator": "mean"})
    assert changed.aggregator.name == "mean"
    mine = config_of(None, **{"algorithm": before, "rounds": 7, "data.clients": 50})
    assert config_of(mine, algorithm="fedbn").rounds == 7


@pytest.mark.parametrize(
    ("algorithm", "key"), [("feddual", "reading"), ("fedaa", "preset")], ids=["feddual", "fedaa"]
)
def test_another_preset_on_a_run_s_own_config_is_that_preset(algorithm, key, tmp_path):
    options = variants(AlgorithmOptions)[algorithm]
    fresh = {
        p: load(None, [f"algorithm={{name: {algorithm}, {key}: {p}}}"]) for p in options.presets
    }
    assert len(fresh) > 1
    for one in fresh.values():
        (tmp_path / "config.yaml").write_text(one.dump())
        for preset, expected in fresh.items():
            found = load(tmp_path / "config.yaml", [f"algorithm.{key}={preset}"])
            assert found == expected


def test_a_goal_met_within_a_round_is_told_of_the_model_that_is_kept(tmp_path):
    """The card had the numbers of another model beside this one's digest."""
    config = load(None, [
        "data.dataset=synthetic", "data.partition=natural", "data.clients=6", "cohort=6",
        "local.steps=50", "local.lr=0.05", "local.batch_size=8", "model=linear", "rounds=3",
        "evaluation.every_steps=7", "stop={test_accuracy: 0.3}", "round_end={name: fda, theta: 1e9}",
    ])  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    run_into(folder, config)
    metrics = folder.result()["metrics"]
    assert metrics["evaluated_steps"] < metrics["steps_total"]
    write_model(RunFolder.viewed(folder.place), tmp_path / "m.safetensors", "unknown")
    (card,) = (path for path in tmp_path.iterdir() if path.name.endswith(".md"))
    said = f"the model after {metrics['evaluated_steps']:.0f} local steps, the weights those after"
    assert said in card.read_text()


def test_data_of_one_kind_from_two_files_are_told_of(tmp_path):
    folders = []
    for name, flipped in (("a", 0), ("b", 1)):
        rows = [f"{i / 60},{i % 7},{(i + flipped) % 2}" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,y", *rows]))
        folders.append(RunFolder(tmp_path / name))
        run_into(
            folders[-1],
            load(None, [
                f"data.dataset={{name: csv, path: {tmp_path}/{name}.csv, label: y}}", "rounds=1",
                "data.clients=3", "cohort=3", "model=linear", "data.partition=iid", f"name={name}",
            ]),
        )  # fmt: skip
    text = show_comparison(folders, None, form="markdown")
    assert (
        "f different data, which are not tested against one another: "
        f"csv (path {tmp_path}/a.csv), csv (path {tmp_path}/b.csv)" in " ".join(text.split())
    )


@pytest.mark.parametrize(
    "setting",
    [
        "local.optimizer={name: sgd, nesterov: true}",
        "server_optimizer={name: sgd, nesterov: true}",
        "data={dataset: synthetic, partition: natural, client_test: {source: local}}",
    ],
)
def test_options_that_would_do_nothing_are_refused(setting):
    with pytest.raises(UserError, match=r"momentum, which is 0|natural clients have their rows"):
        load(None, [setting])


BREAKS = """
import numpy as np
import pandas as pd

import fedorch


class Picks(fedorch.Sampler):
    name: str = "picks_test"
    ids: tuple[int, ...] = (0, 1)

    def sample(self, draw, size):
        return np.array(self.ids)


class Short(fedorch.Aggregator):
    name: str = "short_test"

    def weights(self, samples, counts):
        return None

    def combine(self, rows):
        return fedorch.Combined(rows.updates.mean(0)[:1], None)
"""


def test_a_part_that_breaks_its_contract_is_told_which(tmp_path):
    """The server was drawn as a client, a cohort was smaller than was asked for, one number was
    added to all parameters.
    """
    (tmp_path / "breaks_parts.py").write_text(BREAKS)
    plugin = f"plugins=[{tmp_path}/breaks_parts.py]"
    for ids in ("[0, 6]", "[0]", "[2, 2]", "[-1, 2]"):
        config = small(plugin, "cohort=2", f"sampler={{name: picks_test, ids: {ids}}}")
        with pytest.raises(UserError, match="round 1: sampler picks_test: it draws"):
            fedorch.Experiment(config).step()
    with pytest.raises(UserError, match="aggregator short_test: of updates of shape"):
        fedorch.Experiment(small(plugin, "aggregator=short_test")).step()
    assert fedorch.Experiment(small(plugin, "cohort=2", "sampler=picks_test")).step()["cohort"] == 2


NAMES = """
import fedorch


class Named(fedorch.FedAvg):
    class Options(fedorch.AlgorithmOptions):
        name: str = "named_test"
        reports: str = "cohort"

    def round(self, t, clients):
        return super().round(t, clients) | {self.options.reports: 99.0}
"""
GAINS = """
import fedorch


class Gains(fedorch.Compressor):
    name: str = "gains_test"

    def compress(self, rows, draws):
        return rows

    def nbytes(self, size):
        return -size
"""


def test_an_algorithm_s_number_does_not_take_the_place_of_a_round_s_own(tmp_path):
    (tmp_path / "takes_names.py").write_text(NAMES)
    base = small().model_dump(exclude={"algorithm"}) | {"plugins": [f"{tmp_path}/takes_names.py"]}

    def recorded(name):
        config = config_of(base, algorithm={"name": "named_test", "reports": name})
        return fedorch.Experiment(config).step()

    for name in ("cohort", "train_loss", "bytes_up"):
        with pytest.raises(UserError, match=f"algorithm named_test: round returns '{name}', by"):
            recorded(name)
    assert recorded("mine")["mine"] == 99.0


def test_a_config_says_that_the_server_s_messages_make_up_for_what_they_leave_out():
    given = [
        f"compression.downlink={{name: {name}, error_feedback: {said}}}"
        for name in ("top_k", "qsgd")
        for said in ("true", "false")
    ]
    dumped = [load(None, [one]).compression.downlink.error_feedback for one in given]
    assert dumped == [True] * 4
    assert not load(None, ["compression.uplink=qsgd"]).compression.uplink.error_feedback


def test_long_numbers_in_a_row_are_no_constant():
    numbers = np.float64(2**53) + np.arange(0.0, 1000.0, 2.0)
    column = of_numbers("id", numbers, standardize=True)
    assert column["std"] == pytest.approx(np.std(np.arange(0.0, 1000.0, 2.0)), rel=1e-3)
    for constant in (0.1, 1e15 / 3, 0.0):
        assert of_numbers("c", np.full(1000, constant), standardize=True)["std"] == 1.0


def test_no_message_is_smaller_than_nothing(tmp_path):
    (tmp_path / "gains_parts.py").write_text(GAINS)
    config = small(f"plugins=[{tmp_path}/gains_parts.py]", "compression.uplink=gains_test")
    with pytest.raises(UserError, match=r"compressor gains_test: nbytes\(\d+\) is -"):
        fedorch.Experiment(config).step()


def test_a_part_that_an_algorithm_brought_along_goes_with_it():
    """FedAvg on what was FedAdam's config was FedAdam, if one option had been set."""
    tuned = config_of(None, **{"algorithm": "fedadam", "server_optimizer.lr": 0.05})
    assert config_of(tuned, algorithm="fedavg") == config_of(None, algorithm="fedavg")
    mine = config_of(None, **{"algorithm": "fedavg", "aggregator": "median"})
    assert config_of(mine, algorithm="fedprox").aggregator.name == "median"


def test_what_is_set_as_a_mapping_stays_set(tmp_path):
    said = {"steps": 7, "lr": 0.3}
    whole = config_of(None)
    for given in ({"local": said}, {"local.steps": 7, "local.lr": 0.3}):
        local = config_of(whole, algorithm="fedaa", **given).local
        assert (local.steps, local.lr) == (7, 0.3)
    (tmp_path / "config.yaml").write_text(whole.dump())
    for order in (1, -1):
        settings = ["local={steps: 7, lr: 0.3}", "algorithm=fedaa"][::order]
        local = load(tmp_path / "config.yaml", settings).local
        assert (local.steps, local.lr) == (7, 0.3)


BAKED = """import torch


class Baked(torch.nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.head = torch.nn.Linear(784, classes)

    def forward(self, x):
        return self.head(x.flatten(1)[torch.arange(int(x.shape[0]))])
"""


@pytest.mark.parametrize("form", ["onnx", "torchscript"])
def test_a_network_that_an_export_would_fix_to_a_number_of_rows_is_refused(tmp_path, form):
    """ONNX had one for two rows; TorchScript's refusal was a fault."""
    (tmp_path / "baked.py").write_text(BAKED)
    run_into(RunFolder(tmp_path / "run"), small(f"model={tmp_path}/baked.py:Baked", "rounds=1"))
    with pytest.raises(UserError, match="depends on"):
        write_model(RunFolder.viewed(str(tmp_path / "run")), tmp_path / f"m.{form}", "unknown")
    assert not (tmp_path / f"m.{form}").exists()


def test_a_last_round_that_is_judged_late_reaches_the_trackers(tmp_path):
    config = small("rounds=7", "evaluation.every=5", "track=[csv, jsonl]")
    folder = RunFolder(tmp_path / "run")
    run_into(folder, config, stop_at=4)
    fewer = config.model_copy(update={"rounds": 4})
    (tmp_path / "run" / "config.yaml").write_text(fewer.dump())
    run_into(RunFolder(tmp_path / "run"), resuming=True)
    accuracy = RunFolder.viewed(str(tmp_path / "run")).result()["metrics"]["test_accuracy"]
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert len(lines) == 5
    last = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert float(last["test_accuracy"]) == accuracy


def test_only_what_is_equal_is_said_to_be_common():
    one = small("local.lr=0.1234567", "algorithm=fedprox", "attack={name: gaussian, fraction: 0.3}")
    other = small(
        "local.lr=0.1234574", "algorithm=fedprox", "attack={name: gaussian, fraction: 0.3}"
    )
    assert "learning rate" in in_common([one, one])
    assert "learning rate" not in in_common([one, other])
    assert "attack gaussian" in in_common([one, other])


def test_other_data_may_be_few_and_name_classes_in_another_case(tmp_path, capsys):
    one = of_library(tmp_path / "one", 0, ["well", "ill"])
    config = load(None, [
        f"data.dataset={json.dumps(one)}", "data.clients=3", "cohort=3", "model=linear",
        "data.partition=iid", "rounds=1", "data.limit=60",
    ])  # fmt: skip
    run_into(RunFolder(tmp_path / "run"), config)
    folder = RunFolder.viewed(str(tmp_path / "run"))
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    # fewer rows than the run's own limit
    text = "\n".join(["a,b,label", *(f"{a},{b},{'Well' if a > 0 else 'ILL'}" for a, b in rows)])
    (tmp_path / "t.csv").write_text(text)
    table = f"name: csv, path: {tmp_path}/t.csv"
    with pytest.raises(UserError, match=r"was trained on no table.*in the order a, b"):
        evaluation(folder, [f"data.dataset={{{table}}}"])  # it would be scaled by its own rows
    with pytest.raises(UserError, match="was trained on no table"):
        evaluation(folder, [f"data.dataset={{{table}, standardize: false, features: [b, a]}}"])
    evaluation(folder, [f"data.dataset={{{table}, standardize: false}}"])
    assert "do not name their classes" not in capsys.readouterr().err
