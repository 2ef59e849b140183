"""Folders that somebody has edited, linked or sent: nothing is written or removed outside a run's
folder, and nothing is read as results of what it is not.
"""

import os
import shutil
from functools import partial

import numpy as np
import pytest
import torch
import yaml

import fedorch
from orchestrator.cli.evaluating import evaluation
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.models.base import Model
from orchestrator.results import checkpoint, manifest
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import held
from orchestrator.rounds.experiment import Experiment
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import run_into


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Writes an MNIST of some random images."""
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()

    def write(seed):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(0, 256, (80, 28, 28), np.uint8), np.arange(80) % 10
        one = {"x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:]}
        np.savez(tmp_path / "data" / "mnist.npz", **one)

    write(0)
    return write


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What a run leaves that has finished."""
    path = tmp_path_factory.mktemp("left") / "run"
    run_into(RunFolder.new(path), small("checkpoint.every=1"))
    return path


@pytest.fixture
def folder(left, tmp_path):
    """A copy of it."""
    shutil.copytree(left, tmp_path / "run")
    return RunFolder.existing(tmp_path / "run")


def edit(folder, old, new):
    path = folder.path / "config.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


MNIST = ("data.dataset=mnist", "data.limit=60", "data.clients=3", "cohort=2", "checkpoint.every=1")


def test_other_data_are_refused(tmp_path, data):
    """On --resume and by landscape, however little has changed; and the digest is the data's."""
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small(*MNIST), stop_at=2)
    before = folder.result()["data_sha256"]
    data(1)
    with pytest.raises(UserError, match=r"dataset's files, .* are not those"):
        run_into(folder, resuming=True)
    assert folder.ending()["status"] == "stopped"
    code, text = here("landscape", folder.path, "--points", 2, "--plot", tmp_path / "l.png")
    assert (code, "are not those" in text) == (2, True)
    data(0)
    run_into(folder, resuming=True)
    assert folder.result()["data_sha256"] == before


def test_who_holds_which_rows_is_part_of_the_data():
    one, other, dealt = (
        Experiment(small(*words)).data for words in ((), ("local.lr=0.5",), ("data.partition=iid",))
    )
    assert one.sha256 == other.sha256 != dealt.sha256


@pytest.fixture
def building(monkeypatch):
    """Has every network built with what is put into it."""
    create = Model.create

    def having(put):
        def made(self, shape, classes):
            module = create(self, shape, classes)
            put(module)
            return module

        monkeypatch.setattr(Model, "create", made)

    return having


def test_other_pretrained_weights_are_refused(tmp_path, building):
    """Also of what is never trained, and so in no checkpoint."""

    def with_frozen(value):
        def put(module):
            frozen = torch.nn.Parameter(torch.full((2,), value), requires_grad=False)
            module.register_parameter("backbone", frozen)

        building(put)

    with_frozen(1.0)
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small("checkpoint.every=1"), stop_at=2)
    with_frozen(2.0)
    with pytest.raises(UserError, match="initial weights of the model are not those"):
        run_into(folder, resuming=True)
    with_frozen(1.0)
    run_into(folder, resuming=True)


def test_what_a_network_holds_beside_its_weights_is_the_same_to_the_end(tmp_path, building):
    """Tables of whole numbers that no file has: a run was judged with others."""

    def with_beside(value):
        def put(module):
            whole = torch.full((2,), value, dtype=torch.int8)
            module.register_buffer("table", whole, persistent=False)
            # of which nobody knows what it holds
            module.scratch = torch.empty(3), torch.eye(2).to_sparse()

        building(put)

    with_beside(1)
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small("checkpoint.every=1"), stop_at=2)
    with_beside(2)
    with pytest.raises(UserError, match="what the network holds that nobody trains is not that"):
        run_into(folder, resuming=True)
    with_beside(1)
    run_into(folder, resuming=True)
    run = fedorch.open(folder.path)
    x, _ = run.test()
    before = run.predict(x)
    with_beside(2)
    run = fedorch.open(folder.path)
    for use in (run.evaluate, partial(run.predict, x)):
        with pytest.raises(UserError, match="that nobody trained are not those"):
            use()
    with_beside(1)
    assert (fedorch.open(folder.path).predict(x) == before).all()


def test_joules_are_by_the_energy_of_now(folder):
    """``energy`` may change on --resume, and a running total has no break."""
    edit(folder, "step_joules: ", "step_joules: 1")
    edit(folder, "rounds: 3", "rounds: 4")
    run_into(folder, resuming=True)
    clients, energy = folder.clients(), folder.config().energy
    assert set(clients["round"]) == {1, 2, 3, 4}
    expected = energy.joules(clients["steps"].to_numpy(), clients["bytes_up"].to_numpy())
    np.testing.assert_allclose(clients["joules"], expected)
    assert (clients.groupby("client")["joules"].diff().dropna() >= 0).all()


def test_what_a_failed_run_had_before_is_no_result(folder):
    edit(folder, "rounds: 3", "rounds: 5")
    edit(folder, "stop: {}", "stop: {test_acuracy: 0.99}")
    with pytest.raises(UserError, match="do not report 'test_acuracy'"):
        run_into(folder, resuming=True)
    for read in (folder.rounds, folder.clients, folder.model):
        with pytest.raises(UserError, match=r"the run failed, and has no .*test_acuracy"):
            read()
    for words in (["wallclock", "--step-ms", 1], ["compare"], ["energy"], ["landscape"]):
        code, text = here(words[0], folder.path, *words[1:])
        assert (code, "failed" in text) == (2, True), text
    named = (folder.path / manifest.NAME).read_text()
    assert "result.json" in named
    assert "parquet" not in named


def test_an_edited_config_is_not_called_damaged(folder):
    edit(folder, "rounds: 3", "rounds: 5")
    code, text = here("compare", folder.path)
    assert (code, "--resume" in text, "another config.yaml" in text) == (2, True, True)
    run_into(folder, resuming=True)
    assert here("compare", folder.path)[0] == 0


def test_a_fixed_home_for_clients_on_resume_is_told_by_its_name(folder):
    edit(folder, "clients_per_actor: null", "clients_per_actor: 2")
    with pytest.raises(UserError, match=r"resources\.clients_per_actor gives .* and is 2"):
        run_into(folder, resuming=True)


STRAYS = ["a\nb", os.fsdecode(b"\xff\xfe"), "memory"]


@pytest.mark.parametrize("name", STRAYS)
def test_stray_files_are_not_sealed(folder, name):
    """Names that no manifest can hold, and what cannot be read."""
    stray = folder.path / name
    stray.symlink_to("/proc/self/mem") if name == "memory" else stray.write_text("mine")
    edit(folder, "rounds: 3", "rounds: 4")
    run_into(folder, resuming=True)
    assert folder.result()["rounds"] == 4
    assert here("compare", folder.path)[0] == 0
    assert stray.is_symlink() or stray.read_text() == "mine"


def test_a_manifest_names_the_file_that_cannot_be_read(tmp_path):
    (tmp_path / "x").symlink_to("/proc/self/mem")
    with pytest.raises(UserError, match=f"cannot read {tmp_path / 'x'}"):
        manifest.seal(tmp_path, ["x"])


# Links


@pytest.mark.parametrize("name", [".lock", ".result.json.partial", ".config.yaml.partial"])
def test_no_file_is_written_through_a_link(folder, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).symlink_to(victim)
    edit(folder, "rounds: 3", "rounds: 4")
    if name == ".lock":
        with pytest.raises(UserError, match=r"\.lock: it is a link"):
            run_into(folder, resuming=True)
    else:
        run_into(folder, resuming=True)
        folder.write_text("config.yaml", "new")
        assert not (folder.path / "config.yaml").is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_no_folder_is_written_through_a_link(folder, tmp_path, name):
    (folder.path / name).rename(tmp_path / "elsewhere")
    (folder.path / name).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    edit(folder, "rounds: 3", "rounds: 5")
    with pytest.raises(UserError, match=f"{name} is a link to a folder elsewhere"):
        run_into(folder, resuming=True)
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


def test_a_checkpoint_that_was_moved_away_and_linked_back(folder, tmp_path):
    """Its turn to go comes, and the link goes; what it leads to stays."""
    oldest = checkpoint.found(folder.checkpoints)[0]
    oldest.rename(tmp_path / "kept")
    oldest.symlink_to(tmp_path / "kept")
    edit(folder, "rounds: 3", "rounds: 6")
    run_into(folder, resuming=True)
    assert folder.result()["rounds"] == 6
    assert not oldest.is_symlink()
    assert len(list((tmp_path / "kept").iterdir())) == 3


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_checkpoint_is_neither_removed_nor_in_the_way_for_ever(folder, kind):
    foreign = folder.checkpoints / "round-000004"
    if kind == "folder":
        foreign.mkdir()
    (foreign / "thesis.tex" if kind == "folder" else foreign).write_text("mine")
    edit(folder, "rounds: 3", "rounds: 6")
    with pytest.raises(UserError, match="round-000004 is none, and is not removed; move it"):
        run_into(folder, resuming=True)
    foreign.rename(folder.path / "mine")
    run_into(folder, resuming=True)
    assert folder.result()["rounds"] == 6


def test_a_foreign_folder_that_looks_old_is_not_pruned(folder):
    foreign = folder.checkpoints / "round-000000"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    edit(folder, "rounds: 3", "rounds: 6")
    run_into(folder, resuming=True)
    assert (foreign / "thesis.tex").exists()


# Places


def test_a_pipe_for_a_lock(tmp_path):
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / ".lock")
    with (
        pytest.raises(UserError, match=r"\.lock: it is no file"),
        held(RunFolder(tmp_path / "run"), resuming=False),
    ):
        raise AssertionError


@pytest.mark.parametrize("place", ["/dev/null", "file"])
def test_what_is_no_folder_is_said_to_be_none(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="it is no folder"):
        RunFolder.new(place)


def test_a_home_that_the_shell_has_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    words = ["data.limit=60", "data.clients=3", "cohort=2", "rounds=1", "model=linear"]
    code, text = here(
        "run", "--in-process", "--out=~/run", *[w for s in words for w in ("--set", s)]
    )
    assert code == 0, text
    assert not (tmp_path / "~").exists()
    assert RunFolder(tmp_path / "home" / "run").ending()["status"] == "finished"
    code, text = here("wallclock", "~/run", "--step-ms", "-0")
    assert (code, "-0.0" in text) == (0, False)
    assert here("compare", "~nobody-of-that-name/run")[0] == 2


def test_runs_that_none_may_begin_any_more_are_read(tmp_path):
    """They could not be compared, judged or gone on with."""
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("loss=bce", "rounds=1"))
    raw = yaml.safe_load((folder.path / "config.yaml").read_text())
    raw["evaluation"]["metrics"] = [{"name": "calibration_error"}]
    (folder.path / "config.yaml").write_text(yaml.safe_dump(raw))
    folder.seal()
    assert folder.config().evaluation.metrics
    assert "test_accuracy" in evaluation(folder, ["evaluation.clients=false"])[0]
    with pytest.raises(UserError, match="calibration_error is of probabilities"):
        evaluation(folder, ["evaluation.metrics=[calibration_error]"])
    assert folder.config(settings=["rounds=3", "stop.test_accuracy=0.9"]).rounds == 3
    with pytest.raises(UserError, match="stop: "):
        folder.config(settings=["stop.test_loss=0.1"])
    with pytest.raises(UserError, match="calibration_error is of probabilities"):
        load(None, ["loss=bce", "evaluation.metrics=[calibration_error]"])
