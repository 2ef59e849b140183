"""Whether a sweep lives: a lock that is held, not a word in a file."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest

from orchestrator.errors import UserError
from orchestrator.files import write_sealed
from orchestrator.results.contents import LOCK
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.trials import STATUS
from sweeps.commands import show_status
from sweeps.status import Status, is_driven, stage_of

UNDER_WAY = Status(
    total=12, finished=2, stopped=0, failed=1, running={"a": 4, "b": 0}, metric="test_accuracy",
    best=0.5, best_trial="lr=0.1", seconds=60.0, seconds_left=180.0, written=1000.0,
)  # fmt: skip
DRIVER = "import fcntl, sys; lock = open(sys.argv[1]); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); input()"
"""Holds a file's lock, as a sweep's driver does its folder's."""


def left_by_a_driver(folder):
    UNDER_WAY.write(RunFolder(folder))


def shown(folder, capsys):
    show_status(folder)
    return capsys.readouterr().out


def test_a_killed_sweep_is_not_said_to_run(tmp_path, capsys):
    """Its status.json says still that two trials are running, and about three minutes left."""
    (tmp_path / LOCK).touch()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path / LOCK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        driver.stdout.readline()
        left_by_a_driver(tmp_path)
        assert is_driven(tmp_path) is True
        alive = shown(tmp_path, capsys)
        assert "2 running" in alive
        assert "3 min left" in alive
    finally:
        driver.kill()
        driver.wait()
    assert is_driven(tmp_path) is False
    dead = shown(tmp_path, capsys)
    assert "interrupted with 9 to go" in dead
    assert "--resume" in dead
    assert "running" not in dead.replace("running it", "")
    assert "left" not in dead
    assert "a: was in round 4" in dead


def test_looking_takes_nothing_from_the_driver(tmp_path):
    """Whoever looks holds the lock for no longer than that, and a driver keeps what it has."""
    left_by_a_driver(tmp_path)
    folder = RunFolder(tmp_path)
    folder.claim()
    assert is_driven(tmp_path) is True
    with pytest.raises(UserError, match="in use"):
        RunFolder(tmp_path).claim()
    folder.release()
    assert is_driven(tmp_path) is False
    folder.claim()
    folder.release()


def test_a_copy_of_storage_says_when_it_was_heard_of(tmp_path, capsys):
    """Storage has no lock."""
    left_by_a_driver(tmp_path)
    assert is_driven(tmp_path) is None
    assert "last heard of" in shown(tmp_path, capsys)
    assert UNDER_WAY.seen(None, 1090.0).endswith("last heard of 90 s ago")
    assert (
        replace(UNDER_WAY, written=time.time() + 5).seen(None, time.time()).endswith("of 0 s ago")
    )


def test_a_sweep_that_has_ended_is_not_interrupted():
    ended = replace(UNDER_WAY, finished=11, running={}, seconds_left=0.0)
    for driven in (True, False, None):
        assert ended.seen(driven, 2000.0) == "1 failed, best test_accuracy 0.5 (lr=0.1)"


def test_a_damaged_status_is_a_sentence(tmp_path):
    left_by_a_driver(tmp_path)
    whole = (tmp_path / STATUS).read_text()
    edited = whole.replace('"stopped": 0', '"stopped": -3')
    assert edited != whole
    for text in ("", "[]", "null", whole[:-9], edited, "{}", json.dumps(asdict(UNDER_WAY))):
        (tmp_path / STATUS).write_text(text)
        with pytest.raises(UserError, match=r"cannot read .*status\.json"):
            Status.read(tmp_path)
    (tmp_path / STATUS).write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"cannot read .*status\.json"):
        Status.read(tmp_path)


def test_one_of_before_is_read(tmp_path):
    """Without the time at which it was written."""
    said = {k: v for k, v in asdict(UNDER_WAY).items() if k != "written"}
    write_sealed(tmp_path / STATUS, said)
    assert Status.read(tmp_path).seen(None, 5.0) == str(UNDER_WAY)
    assert stage_of(tmp_path) == tmp_path
