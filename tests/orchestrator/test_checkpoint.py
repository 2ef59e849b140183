"""Checkpoints: whole or absent, checked, without pickle."""

import enum
import json
import os
import subprocess
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from orchestrator.errors import UserError
from orchestrator.noted import note
from orchestrator.results import checkpoint
from orchestrator.results.digests import digest
from orchestrator.results.state import require_storable
from orchestrator.rounds.experiment import Experiment
from tests.configs import small

STATE = {
    "algorithm": {
        "w": torch.arange(4.0),
        "optimizer": {"m": torch.ones(2, dtype=torch.float64)},
        "n": 3,
    },
    "clients": {7: {"control": torch.zeros(2)}},
    "ledger": {"up": np.array([1, 2**40])},
    "records": [{"round": 1, "loss": 0.1, "nothing": float("nan")}],
}


def test_round_trip(tmp_path):
    checkpoint.save(tmp_path, 5, STATE, 2)
    t, state, notes = checkpoint.load_latest(tmp_path)
    assert (t, notes) == (5, [])
    assert torch.equal(state["algorithm"]["w"], STATE["algorithm"]["w"])
    assert state["algorithm"]["optimizer"]["m"].dtype == torch.float64
    assert state["clients"][7]["control"].shape == (2,)
    assert state["ledger"]["up"].tolist() == [1, 2**40]
    assert state["records"][0]["loss"] == 0.1
    assert np.isnan(state["records"][0]["nothing"])


def test_only_the_newest_are_kept(tmp_path):
    for t in (1, 2, 3):
        checkpoint.save(tmp_path, t, STATE, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["round-000002", "round-000003"]


def test_later_ones_that_were_passed_over_make_room(tmp_path):
    for t in (10, 20):
        checkpoint.save(tmp_path, t, STATE, 2)
    (tmp_path / "round-000020" / checkpoint.TENSORS).write_bytes(b"")
    checkpoint.save(tmp_path, 15, STATE, 1)
    assert checkpoint.load_latest(tmp_path)[0] == 15


@pytest.mark.parametrize("damage", ["truncate", "flip", "json", "missing"])
def test_a_damaged_checkpoint_is_passed_over_and_reported(tmp_path, damage):
    for t in (1, 2):
        checkpoint.save(tmp_path, t, STATE, 2)
    tensors, rest = (tmp_path / "round-000002" / n for n in (checkpoint.TENSORS, checkpoint.REST))
    raw = tensors.read_bytes()
    if damage == "truncate":
        tensors.write_bytes(raw[:-3])
    elif damage == "flip":
        tensors.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "json":
        rest.write_text(rest.read_text()[:20])
    else:
        rest.unlink()
    t, _, notes = checkpoint.load_latest(tmp_path)
    assert t == 1
    assert "round-000002 is damaged" in notes[0]
    (tmp_path / "round-000001" / checkpoint.TENSORS).write_bytes(b"")
    with pytest.raises(UserError, match="is damaged"):
        checkpoint.load_latest(tmp_path)


def test_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        checkpoint.load_latest(tmp_path)


def test_a_failed_write_leaves_the_old_one(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, STATE, 2)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(UserError, match="No space"):
        checkpoint.save(tmp_path, 2, STATE, 2)
    assert checkpoint.load_latest(tmp_path)[0] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk(tmp_path):
    """On a real file system of 300 KB: the old checkpoint is there, and nothing of the new one."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)], check=True)
    try:
        checkpoint.save(tmp_path / "c", 1, STATE, 2)
        with pytest.raises(UserError, match="No space left"):
            checkpoint.save(tmp_path / "c", 2, {**STATE, "more": torch.zeros(100_000)}, 2)
        assert checkpoint.load_latest(tmp_path / "c")[0] == 1
        assert [p.name for p in (tmp_path / "c").iterdir()] == ["round-000001"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_nothing_is_pickled(tmp_path):
    folder = checkpoint.save(tmp_path, 1, STATE, 2)
    assert {p.suffix for p in folder.iterdir()} == {".json", ".safetensors", ".sha256"}
    json.loads((folder / checkpoint.REST).read_text())


def test_who_goes_on_with_another_torch_or_other_code_is_told():
    """Its bits may be others, and nothing said so."""
    first = Experiment(small("rounds=2"))
    first.step()
    kept = first.state()
    again = Experiment(small("rounds=2"))
    again.restore(1, kept)
    assert again.alarm.news() == []
    commit = "a" * 40
    others = {**kept, "made_by": {**kept["made_by"], "torch": "1.0", "fedorch's commit": commit}}
    again.restore(1, others)
    (note,) = again.alarm.news()
    assert note.startswith(
        "from round 2 on the run is computed by others than before (torch 1.0 → "
    )
    assert "fedorch's commit aaaaaaa → " in note
    over = Experiment(small("rounds=1"))
    over.restore(1, others)
    assert over.alarm.news() == []
    older = {name: value for name, value in kept.items() if name != "made_by"}
    again.restore(1, older)
    assert again.alarm.news() == []


def test_what_was_one_tensor_is_one_again(tmp_path):
    """They were two: what is written into one was no longer in the other."""
    w, a = torch.arange(4.0), np.ones(3)
    kept = {
        "w": w,
        "best": w.detach(),
        "copy": w.clone(),
        "part": w[:2],
        "a": a,
        "b": [a, a.copy()],
    }
    checkpoint.save(tmp_path, 1, kept | {"half": torch.ones(2).bfloat16()}, 2)
    _, state, _ = checkpoint.load_latest(tmp_path)
    state["w"][0], state["a"][0] = 7, 7
    assert [float(state[name][0]) for name in ("best", "copy", "part")] == [7, 0, 7]
    assert [float(one[0]) for one in state["b"]] == [7, 1]
    of_one_path = {1: np.float32(1), "1": np.float32(2), np.int64(3): 1, np.int64(5): 2}
    checkpoint.save(tmp_path, 2, {"n": of_one_path}, 2)
    assert checkpoint.load_latest(tmp_path)[1]["n"] == of_one_path
    assert digest(state["half"]) == digest(torch.ones(2).bfloat16()) != digest(torch.ones(2))


def test_what_a_state_is_made_of_stays(tmp_path):
    """An ordered dict came back as a plain one, a parameter as a tensor without gradients."""
    weight = torch.nn.Parameter(torch.ones(2))
    kept = {
        "network": OrderedDict(b=weight, a=weight.data),
        "again": [weight],
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.zeros(2, requires_grad=True),
        "plain": (weight * 2).detach(),
    }
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert [*state["network"]] == ["b", "a"]
    state["network"].move_to_end("b")
    mine = state["again"][0]
    assert mine is state["network"]["b"]
    assert mine.data_ptr() == state["network"]["a"].data_ptr()
    for name, one in {"again": mine, **state}.items():
        before = weight if name == "again" else kept[name]
        if isinstance(one, torch.Tensor):
            assert (type(one), one.requires_grad) == (type(before), before.requires_grad), name


class Kind(enum.IntEnum):
    FIRST = 1


class Counted(dict):
    def __getitem__(self, key):
        return self.get(key, 0)


class Marked(torch.Tensor):
    pass


@pytest.mark.parametrize("value", [Kind.FIRST, {Kind.FIRST: 1}, Counted(a=1), Marked([1.0])])
def test_what_would_come_back_as_something_else_is_refused(value):
    with pytest.raises(UserError, match=r"no checkpoint can hold x.*, an? (Kind|Counted|Marked): "):
        require_storable({"x": value})


def test_a_dict_in_two_places_is_one_again(tmp_path):
    history, best = {"all": [1.0]}, {"a": 1}
    kept = {
        "best": best,
        "recent": history["all"],
        "history": history,
        "others": [best, dict(best), []],
    }
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert state == kept
    state["recent"].append(2.0)
    state["best"]["a"] = 2
    assert state["history"]["all"] == [1.0, 2.0]
    assert state["others"] == [{"a": 2}, {"a": 1}, []]


def test_parts_of_one_memory_are_in_it_again(tmp_path):
    """Slices, transposed, repeated and overlapping views came back as tensors of their own."""
    flat, table = torch.arange(6.0), np.arange(12.0).reshape(3, 4)
    rows = torch.zeros(4, 5)
    kept = {
        "halves": [flat[:4], flat[2:]],
        "turned": torch.arange(6.0).view(2, 3).T,
        "image": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "repeated": torch.arange(3.0).expand(2, 3),
        "windows": torch.arange(4.0).unfold(0, 2, 1),
        "table": [table, table[:, 1], np.lib.stride_tricks.sliding_window_view(table[0], 2)],
        "fixed": np.broadcast_to(np.ones(2), (3, 2)),
        "apart": [rows[0], rows[2]],
        "gap": torch.zeros(10, 500)[:, -2:],
        "none": [torch.zeros(0), np.zeros((0, 3))],
        "one": [flat.double().sum(), np.ones(())],
    }
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert digest(state) == digest(kept)
    for name in ("turned", "image", "repeated"):
        assert state[name].stride() == kept[name].stride(), name
    state["halves"][0][3] = 9
    assert float(state["halves"][1][1]) == 9
    state["table"][1][2] = 7
    assert state["table"][0][2, 1] == 7
    state["table"][0][0, 1] = 5
    assert state["table"][2][0, 1] == state["table"][2][1, 0] == 5
    state["windows"][0, 1] = 8
    assert float(state["windows"][1, 0]) == 8
    state["apart"][0][:] = 1
    assert not state["apart"][1].any()
    stored = load_file(tmp_path / "round-000001" / checkpoint.TENSORS)
    assert max(t.numel() for name, t in stored.items() if "apart" in name) == 5
    assert stored["/gap"].numel() == 20  # and not the memory that it is spread over
    assert state["gap"].stride() == (500, 1)


def test_steps_of_one_s_own_stay(tmp_path):
    """Sums over other steps have other bits: of a column that came back contiguous."""
    table = np.arange(12.0).reshape(3, 4)
    kept = {
        "column": torch.randn(1000, 37)[:, 5],
        "backwards": table[::-1, ::2],
        "fortran": np.asfortranarray(table.astype(np.uint16)),
        "halves": [np.ones((4, 2), np.uint16).T, torch.ones(4, 2).bfloat16().T],
        "seen": {np.int64(3): 1, np.float32(0.1): np.uint8(7)},
    }
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert digest(state) == digest(kept)
    assert float(state["column"].sum()) == float(kept["column"].sum())
    assert state["backwards"].strides == kept["backwards"].strides
    assert state["fortran"].flags.f_contiguous
    assert [type(k) for k in state["seen"]] == [np.int64, np.float32]
    assert not load_file(tmp_path / "round-000001" / checkpoint.TENSORS).keys() & {"/seen/3"}


LONG = np.arange(8.0)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"a": LONG, "b": LONG[::-1]}, "a as it is: it lies in the memory of another array"),
        ({"a": torch.from_numpy(LONG), "b": LONG[::-1]}, "a as it is: it lies in the memory"),
        ({"a": LONG, "b": LONG.view(np.int64)}, "as it is: it lies in the memory of another part"),
        ((lambda one: (one.append(one), {"x": one})[1])([]), "x/0: it holds itself"),
    ],
)
def test_what_cannot_be_as_it_was_is_refused(kept, said):
    with pytest.raises(UserError, match=f"no checkpoint can hold .*{said}"):
        require_storable(kept)


def test_tuples_are_not_counted(tmp_path):
    """What was in two places came back as another thing, behind a tuple."""
    one, two = [7, 8], {"n": 1}
    kept = {(1, "a"): (1, 2), "b": one, "c": ((one,), two), "d": two}
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert state == kept
    assert state["c"][0][0] is state["b"]
    assert state["d"] is state["c"][1]
    deep = []
    for _ in range(40):
        deep = [deep, deep]
    checkpoint.save(tmp_path, 2, {"deep": deep}, 2)
    assert checkpoint.load_latest(tmp_path)[1]["deep"][0][0] is not None


def test_columns_of_one_table_are_not_given_all_of_it_each(tmp_path):
    """A thousand columns were two gigabytes once they were read."""
    table, wide = np.random.default_rng(0).normal(size=(20, 200)), np.ones((50, 40_000))
    kept = {"some": [table[:, i] for i in range(0, 200, 20)], "few": [wide[:, i] for i in (1, 9)]}
    checkpoint.save(tmp_path, 1, kept, 2)
    state = checkpoint.load_latest(tmp_path)[1]
    assert digest(state) == digest(kept)
    stored = load_file(tmp_path / "round-000001" / checkpoint.TENSORS)
    assert sum(one.numel() for one in stored.values()) < 20 * 200 + 101
    # in memory of its own it is not spread out
    assert state["few"][0].strides == (8,)
    assert state["some"][0].strides == table[:, 0].strides


def test_digests_are_of_numbers_in_whatever_memory():
    """Of a column there was none, and the run that kept it had no result."""
    table = torch.randn(5, 4)
    for one in (table[:, 1], table.T, torch.tensor(0.5).expand(3), table[::2, 1:3], table[:1, 2]):
        assert digest(one) == digest(one.contiguous())
        assert note(one) == note(one.contiguous())
    within = {"n": 1}
    within["me"] = within
    assert digest(within) != digest({"n": 1})
