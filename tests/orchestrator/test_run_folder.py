"""A run's folder: nobody else's, whole or refused, whatever happens to the disk and the files."""

import json
import os
import resource
import shutil

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results import checkpoint, manifest
from orchestrator.results.contents import MODEL
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, held
from orchestrator.rounds.experiment import Experiment
from orchestrator.tracking import Tracked
from orchestrator.tracking.board import Board
from tests.configs import small
from tests.running import finish, run_into


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What a run leaves that was stopped after its second round of three."""
    path = tmp_path_factory.mktemp("left") / "run"
    run_into(RunFolder.new(path), small("checkpoint.every=1"), stop_at=2)
    return path


@pytest.fixture
def folder(left, tmp_path):
    shutil.copytree(left, tmp_path / "run")
    return RunFolder.existing(tmp_path / "run")


def flip(path, bit):
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


def some_bits(path):
    """Every bit of a short file, and so many of a long one, the last ones among them."""
    size = 8 * path.stat().st_size
    return sorted({*range(0, size, max(1, size // 150)), *range(size - 8, size)})


READERS = {
    "result.json": RunFolder.result,
    "rounds.parquet": RunFolder.rounds,
    "clients.parquet": RunFolder.clients,
    "model.safetensors": RunFolder.model,
    manifest.NAME: RunFolder.result,
}


@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_of_a_result_is_noticed(folder, name):
    whole = (folder.path / name).read_bytes()
    for bit in some_bits(folder.path / name):
        flip(folder.path / name, bit)
        with pytest.raises(UserError, match=r"damaged|holds no"):
            READERS[name](folder)
        (folder.path / name).write_bytes(whole)


@pytest.mark.parametrize("name", [checkpoint.TENSORS, checkpoint.REST, manifest.NAME])
def test_every_flipped_bit_of_a_checkpoint_is_said_and_the_one_before_is_used(folder, name):
    newest = checkpoint.found(folder.checkpoints)[-1] / name
    whole = newest.read_bytes()
    for bit in some_bits(newest):
        flip(newest, bit)
        t, _, notes = checkpoint.load_latest(folder.checkpoints)
        assert t == 1
        assert "round-000002 is damaged" in notes[0]
        newest.write_bytes(whole)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "list", "folder"])
def test_a_foreign_file_is_a_sentence_that_names_it(folder, name, damage):
    path = folder.path / name
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "list": b"[]"}[damage])
    with pytest.raises(UserError, match=name) as told:
        READERS[name](folder)
    assert len(str(told.value)) < 1000


def test_what_is_sealed_and_no_result_is_refused_too(folder):
    for text in ("[]", "{}", '{"status": "sleeping"}', "nothing", "[" * 100_000):
        (folder.path / "result.json").write_text(text)
        folder.seal()
        with pytest.raises(UserError, match=r"cannot read .*result.json"):
            folder.result()
    (folder.path / "result.json").write_text('{"status": "failed", "error": "why"}')
    folder.seal()
    assert folder.ending()["error"] == "why"


def test_a_damaged_newest_checkpoint_costs_rounds_and_no_bits(folder):
    flip(checkpoint.found(folder.checkpoints)[-1] / checkpoint.REST, 4000)
    experiment, notes = run_into(folder, resuming=True)
    assert "is damaged" in notes[0]
    assert experiment.state_sha256() == finish(small()).state_sha256()


def test_results_that_are_behind_their_checkpoints_are_told(tmp_path, capsys):
    """Of a run that was stopped, went on, and was killed."""
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=4", "checkpoint.every=1"), stop_at=2)
    folder.tell_if_behind()
    assert not capsys.readouterr().err
    checkpoint.save(folder.checkpoints, 3, {}, 2)
    folder.tell_if_behind()
    said = " ".join(capsys.readouterr().err.split())
    assert "its results are of round 2, and it went on to round 3 or later" in said


def test_stray_files_are_left_alone(tmp_path):
    folder = RunFolder.new(tmp_path / "run")
    strays = ["round-foo", "round-1", "round-0000001.txt", "notes"]
    folder.checkpoints.mkdir(parents=True)
    for name in strays:
        (folder.checkpoints / name).write_text("mine")
    (folder.checkpoints / "round-000009").write_text("mine")
    begin(Experiment(small()), folder, False)
    run_into(folder, small("checkpoint.every=1", "checkpoint.keep=1"), resuming=True)
    assert {p.name for p in folder.checkpoints.iterdir()} == {
        *strays, "round-000003", "round-000009",
    }  # fmt: skip


def test_fewer_rounds_than_were_done_are_refused(folder):
    text = (folder.path / "config.yaml").read_text()
    (folder.path / "config.yaml").write_text(text.replace("rounds: 3", "rounds: 1"))
    with pytest.raises(UserError, match="2 rounds have been done"):
        run_into(folder, resuming=True)
    assert folder.ending()["status"] == "stopped"


def test_a_last_round_that_is_one_only_on_resume_is_judged_too(tmp_path):
    """``rounds`` lowered to those that were done, of which the last was none to evaluate."""
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small("evaluation.every=5"), stop_at=2)
    assert "test_accuracy" not in folder.result()["metrics"]
    text = (folder.path / "config.yaml").read_text()
    (folder.path / "config.yaml").write_text(text.replace("rounds: 3", "rounds: 2"))
    run_into(folder, resuming=True)
    whole = finish(small("evaluation.every=5", "rounds=2"))
    ended, last = folder.result(), whole.records[-1]
    assert (ended["status"], ended["state_sha256"]) == ("finished", whole.state_sha256())
    assert ended["metrics"] == pytest.approx({k: last[k] for k in ended["metrics"]})
    assert {"test_accuracy", "client_accuracy_mean"} <= set(ended["metrics"])
    assert len(folder.clients()) == whole.data.clients


def strict(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_result_json_is_json_whatever_the_numbers(tmp_path):
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small("local.lr=1e38", "non_finite=keep"))
    document = strict((folder.path / "result.json").read_text())
    assert document["metrics"]["test_loss"] is None
    assert folder.result()["metrics"]["test_loss"] != folder.result()["metrics"]["test_loss"]


# Two runs, one folder


def test_a_run_that_finished_there_meanwhile_is_not_overwritten(tmp_path):
    late = RunFolder.new(tmp_path / "run")  # there is nothing yet
    run_into(RunFolder.new(tmp_path / "run"), small("rounds=1"))
    with pytest.raises(UserError, match="exists and is not empty"), held(late, resuming=False):
        raise AssertionError
    assert late.ending()["status"] == "finished"


def test_the_folder_is_taken_before_any_work(tmp_path):
    first, second = RunFolder.new(tmp_path / "run"), RunFolder.new(tmp_path / "run")
    refused = pytest.raises(UserError, match=f"in use: process {os.getpid()}")
    with held(first, resuming=False), refused:
        second.claim()
    assert not first.path.exists()  # nothing was written, so nothing is left
    with held(second, resuming=False):
        pass


def test_a_lock_that_was_removed_keeps_nobody_out(tmp_path):
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.make()
    first.claim()
    (first.path / ".lock").unlink()
    second.claim()
    assert second.claimed
    with pytest.raises(UserError, match="in use"):
        RunFolder(tmp_path / "run").claim()


def test_default_names_of_one_second_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    folders = [RunFolder.dated("quick") for _ in range(3)]
    names = [folder.path.name for folder in folders]
    base = "quick-20260101-000000"
    assert names == [base, f"{base}-2", f"{base}-3"]
    for folder in reversed(folders):  # of runs that could not begin
        folder.forget_empty()
    assert not list(tmp_path.iterdir())


# Disks


LIMITS = [0, 1_000, 4_000, 33_000, 60_000]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_full_disk_is_a_sentence_and_resume_works_once_there_is_room(tmp_path, limit, left):
    """No file can be longer than so many bytes: each of those that a run writes is the first to
    fail at some limit.
    """
    config = small("checkpoint.every=1")
    folder = RunFolder.new(tmp_path / "run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot (write|be written)") as told:
            run_into(folder, config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "too large" in str(told.value)
    assert not [p for p in tmp_path.rglob("*") if "partial" in p.name]
    if folder.holds("result.json"):
        assert folder.ending()["status"] == "failed"
    if folder.begun:
        experiment, _ = run_into(RunFolder.existing(tmp_path / "run"), resuming=True)
    else:
        experiment, _ = run_into(RunFolder.new(tmp_path / "run"), config)
    assert folder.ending()["status"] == "finished"
    assert experiment.finished


def test_tensorboard_files_that_were_tidied_away_cost_nothing(tmp_path):
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small(), on_round=lambda _: shutil.rmtree(folder.path / "tensorboard"))
    assert folder.ending()["status"] == "finished"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="cannot be created"),
        held(RunFolder(tmp_path / "file" / "run"), resuming=False),
    ):
        raise AssertionError


def test_the_written_config_can_be_read(left):
    assert load(left / "config.yaml").rounds == 3


@pytest.mark.parametrize("damage", ["", "rounds: 3\n"])
def test_a_config_that_is_not_whole_is_no_other_run(folder, damage):
    """Its defaults would make it the quick start."""
    (folder.path / "config.yaml").write_text(damage)
    with pytest.raises(
        UserError,
        match=r"config\.yaml is damaged, or of another version of fedorch: it has lost .*algorithm",
    ):
        run_into(folder, resuming=True)
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        RunFolder.viewed(str(folder.path))


@pytest.mark.parametrize("place", ["x" * 300, "a\0b", "loop"])
def test_paths_that_cannot_be(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="there can be no such path") as told:
        RunFolder.at(place)
    assert str(told.value).isprintable()


def test_a_folder_that_is_another_runs_by_now_is_left_alone(tmp_path):
    """Removed in mid-run, and begun anew by somebody else: the first writes nothing into it."""
    first, second = RunFolder.new(tmp_path / "run"), RunFolder(tmp_path / "run")

    def taken(record):
        if record["round"] == 2:
            shutil.rmtree(first.path)
            second.make()
            second.claim()
            second.write_text("config.yaml", "another's")

    config = small("checkpoint.every=1", "rounds=5")
    with pytest.raises(UserError, match="removed or replaced while this run"):
        run_into(first, config, on_round=taken)
    assert {p.name for p in first.path.iterdir()} == {".lock", "config.yaml"}
    assert (first.path / "config.yaml").read_text() == "another's"


def test_a_checkpoint_of_another_version_is_a_sentence(folder):
    """With a manifest that holds: nothing is damaged, and yet it is not what this version keeps."""
    newest = checkpoint.found(folder.checkpoints)[-1]
    document = json.loads((newest / checkpoint.REST).read_text())
    whole = document["state"]["$map"]
    for name in ("algorithm", "alarm", "ledger", "records"):
        document["state"]["$map"] = [pair for pair in whole if pair[0] != name]
        (newest / checkpoint.REST).write_text(json.dumps(document))
        manifest.seal(newest, (checkpoint.TENSORS, checkpoint.REST))
        with pytest.raises(UserError, match="another version"):
            run_into(folder, resuming=True)


def test_a_table_of_words_is_no_table(folder):
    folder.write_table("rounds.parquet", folder.rounds().assign(test_loss="low"))
    folder.seal()
    with pytest.raises(UserError, match="test_loss does not hold numbers"):
        folder.rounds()


def test_whoever_may_read_the_folder_may_read_the_model(tmp_path):
    """safetensors makes files for their owner alone."""
    (tmp_path / "other").touch()
    RunFolder(tmp_path).write_model({"w": torch.zeros(2)})
    assert (tmp_path / MODEL).stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("begun", [[], ["rounds=2"]])
def test_a_run_that_would_have_ended_before_does_not_go_on(begun, tmp_path):
    """Its config said a goal with which it had not ended, and comparisons counted all its rounds as
    what that took.
    """
    folder = RunFolder(tmp_path)
    run_into(folder, small("rounds=3", *begun))
    folder.open(small("rounds=4", "stop={round: 1}"))
    with pytest.raises(UserError, match=r"by this stop the run would have ended with round 1; \d"):
        run_into(folder, resuming=True)
    folder.open(small("rounds=4", f"stop={{round: {2 if begun else 3}}}"))
    experiment, _ = run_into(folder, resuming=True)
    assert experiment.t == (2 if begun else 3)


@pytest.mark.parametrize("left", ["results", "a damaged checkpoint"])
def test_no_round_is_taken_back(left, tmp_path):
    """Rounds after the last whole checkpoint are rounds, too."""
    folder = RunFolder(tmp_path)
    run_into(folder, small("rounds=4", "checkpoint.every=3"))
    if left == "a damaged checkpoint":
        (folder.path / "result.json").unlink()
        shutil.rmtree(folder.checkpoints / "round-000004")
        (newest,) = checkpoint.found(folder.checkpoints)
        older = newest.with_name("round-000002")
        newest.rename(older)
        shutil.copytree(older, newest)
    before = {p: p.read_bytes() for p in tmp_path.glob("*.*")}
    fewer = 3 if left == "results" else 2
    folder.open(small(f"rounds={fewer}", "checkpoint.every=3"))
    with pytest.raises(UserError, match="rounds have been done, and none is taken back"):
        run_into(folder, resuming=True)
    after = {p: p.read_bytes() for p in before}
    assert [p.name for p in before if before[p] != after[p]] == ["config.yaml"]


def test_tensorboard_forgets_what_a_run_did_before_its_first_checkpoint(tmp_path):
    for rounds in (3, 4):
        board = Board(Tracked("run", {}, tmp_path, 0))
        for t in range(1, rounds + 1):
            board.add({"round": float(t), "test_accuracy": float(rounds)})
    seen = EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert [e.step for e in seen.Scalars("test/accuracy")] == [1, 2, 3, 4]
    assert {e.value for e in seen.Scalars("test/accuracy")} == {4.0}


def test_a_config_in_other_words_is_no_other(tmp_path):
    """Who edits a run's config before it goes on may write it as in any config: the results said
    that it was changed while the run went.
    """
    folder = RunFolder(tmp_path / "a")
    run_into(folder, small("evaluation.metrics=[f1_macro]"))
    path, config = folder.path / "config.yaml", folder.config()
    whole = path.read_text()
    assert not folder.keep_config(config)
    path.write_text(whole.replace("- name: f1_macro", "- f1_macro"))
    assert path.read_text() != whole
    assert not folder.keep_config(config)
    assert path.read_text() == whole
    path.write_text(whole.replace("f1_macro", "balanced_accuracy"))
    assert folder.keep_config(config)
    assert path.read_text() == whole
