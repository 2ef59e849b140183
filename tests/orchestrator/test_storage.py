"""Results at a URI: the same folder there, a run that continues on another machine, and
mistakes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.storage import Mirror
from orchestrator.rounds.drive import held
from tests.configs import small
from tests.running import finish, run_into


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Be on a machine with nothing in its cache."""

    def move(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    move("first")
    return move


def run(config, place, resuming=False, rounds=None):
    folder = RunFolder.existing(place) if resuming else RunFolder.new(place)
    run_into(folder, None if resuming else config, resuming, rounds)
    return folder.result()


def names(folder):
    return {
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and "tfevents" not in p.name
    }


def test_the_same_folder_there(tmp_path, machine):
    config = small("checkpoint.every=1", "checkpoint.keep=1")
    run(config, tmp_path / "here")
    run(config, (tmp_path / "there").as_uri())
    assert names(tmp_path / "there") == names(tmp_path / "here")
    here, there = (
        json.loads((tmp_path / n / "result.json").read_text()) for n in ("here", "there")
    )
    assert here["state_sha256"] == there["state_sha256"]
    assert [p.name for p in (tmp_path / "there" / "checkpoints").iterdir()] == ["round-000003"]


def test_a_failure_is_told_there(tmp_path, machine):
    with pytest.raises(UserError):
        run(small("local.lr=1e36", "model=mlp"), (tmp_path / "there").as_uri())
    told = json.loads((tmp_path / "there" / "result.json").read_text())
    assert told["status"] == "failed"
    assert told["error"]


def test_continued_on_another_machine(tmp_path, machine):
    config, place = (
        small("rounds=5", "checkpoint.every=1", "algorithm=scaffold"),
        (tmp_path / "there").as_uri(),
    )
    assert run(config, place, rounds=2)["status"] == "stopped"
    machine("second")
    again = run(config, place, resuming=True)
    assert again["status"] == "finished"
    assert again["state_sha256"] == finish(config).state_sha256()


def test_what_a_machine_knows_of_a_place_that_is_gone_stays(tmp_path, machine):
    place = (tmp_path / "there").as_uri()
    run(small("rounds=5", "checkpoint.every=1"), place, rounds=2)
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(UserError, match=r"there is nothing at .* any more, and ") as told:
        run(small(), place, resuming=True)
    known = Path(re.search(r"any more, and (\S+) has", str(told.value))[1])
    # as it says
    shutil.copytree(known, tmp_path / "there", ignore=shutil.ignore_patterns(".*"))
    assert run(small(), place, resuming=True)["rounds"] == 5


def test_what_is_there_stays(tmp_path, machine):
    run(small(), (tmp_path / "there").as_uri())
    with pytest.raises(UserError, match="it exists and is not empty"):
        RunFolder.new((tmp_path / "there").as_uri())
    with pytest.raises(UserError, match="not the folder of a run"):
        RunFolder.existing((tmp_path / "nothing").as_uri())
    with pytest.raises(UserError, match="nowhere"):
        Mirror("nowhere://bucket/x")


def test_only_what_changed_is_sent(tmp_path, machine):
    mirror = Mirror((tmp_path / "there").as_uri())
    mirror.local.mkdir(parents=True)
    for name in ("a", "b"):
        (mirror.local / name).write_text(name)
    (mirror.local / ".lock").write_text("mine")
    mirror.push()
    assert names(tmp_path / "there") == {"a", "b"}
    (tmp_path / "there" / "a").write_text("touched there")
    (mirror.local / "b").write_text("changed")
    mirror.push()
    assert (tmp_path / "there" / "a").read_text() == "touched there"
    assert (tmp_path / "there" / "b").read_text() == "changed"
    (mirror.local / "a").unlink()
    mirror.push()
    assert names(tmp_path / "there") == {"a", "b"}
    mirror.prune()
    assert names(tmp_path / "there") == {"b"}
    assert Path(mirror.local / ".lock").exists()


def test_hidden_files_there_are_nobody_s(tmp_path, machine):
    place = (tmp_path / "there").as_uri()
    run(small("checkpoint.every=1", "checkpoint.keep=1"), place, rounds=2)
    mine = [
        tmp_path / "there" / ".keep",
        tmp_path / "there" / "checkpoints" / "round-000002" / ".x",
    ]
    for path in mine:
        path.write_text("mine")
    run(None, place, resuming=True)
    assert [path.read_text() for path in mine] == ["mine"] * 2
    left = sorted(p.name for p in (tmp_path / "there" / "checkpoints" / "round-000002").iterdir())
    assert left == [".x"]


def test_storage_in_memory_is_none(tmp_path, machine):
    for door in (Mirror, RunFolder.new):
        with pytest.raises(UserError, match="in the memory of one process"):
            door("mock://bucket/run")


def test_a_path_and_a_uri_of_one_folder_are_one_folder(tmp_path, machine):
    path, uri = RunFolder.at(tmp_path / "there"), RunFolder.at((tmp_path / "there").as_uri())
    for first, second in ((path, uri), (uri, path)):
        first.claim()
        with pytest.raises(UserError, match="in use"):
            second.claim()
        first.release()
    with held(path, resuming=False):
        path.write_text("config.yaml", "mine")
    # the URI was looked at when there was nothing
    with pytest.raises(UserError, match="exists and is not empty"), held(uri, resuming=False):
        raise AssertionError
    assert (tmp_path / "there" / "config.yaml").read_text() == "mine"


def test_who_looks_at_a_uri_has_a_copy_of_its_own(tmp_path, machine):
    """Else one of them replaces what the other is reading."""
    place = (tmp_path / "there").as_uri()
    run(small("rounds=1"), place)
    first = RunFolder.viewed(place)
    (first.path / "mine").touch()
    second = RunFolder.viewed(place)
    assert (first.path / "mine").exists()
    assert not (second.path / "mine").exists()
    assert len(second.rounds()) == 1
