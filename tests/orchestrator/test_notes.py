"""What ``fedorch top`` reads of a cluster's board."""

import json
from dataclasses import asdict

from orchestrator.monitoring import exporter
from orchestrator.monitoring.exporter import Note, notes


def test_what_is_no_note_is_passed_over(monkeypatch):
    """Of another version, or somebody else's: it broke the page for all."""
    mine = Note("a", "", "1", "/x", 3, accuracy=[float("nan"), 0.5])
    board = {b"1": json.dumps(asdict(mine)).encode(), b"2": b"{", b"3": b"[1]", b"4": b"\xff",
             b"5": json.dumps({"experiment": "b"}).encode(), b"6": None}  # fmt: skip
    monkeypatch.setattr(exporter.internal_kv, "_internal_kv_list", lambda *a, **k: list(board))
    monkeypatch.setattr(exporter.internal_kv, "_internal_kv_get", lambda key, **k: board[key])
    (found,) = notes()
    assert found.accuracy[1] == 0.5
    assert (found.experiment, found.rounds) == ("a", 3)
