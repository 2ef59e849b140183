"""Damaged run folders: whatever is read back is what was written, or refused by name."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from orchestrator.errors import UserError
from tests.fuzz.compositions import drawn, run, strict
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.oddities import damaged
from tests.fuzz.spoken import spoken

HOW = (
    "removed",
    "emptied",
    "truncated",
    "flipped",
    "flipped",
    "flipped",
    "longer",
    "noise",
    "foreign",
)
SWAPS = ("another run's", "a folder", "a link to nowhere", "a link to itself", "unreadable")
READERS = (
    ("run", "--in-process", "--resume", "RUN"),
    ("run", "--in-process", "--resume", "RUN"),
    ("compare", "RUN", "--plot", "c.png"),
    ("compare", "RUN", "OTHER"),
    ("compare", "RUN", "--target", "0.2"),
    ("energy", "RUN", "--target", "0.01"),
    ("wallclock", "RUN", "--step-ms", "1"),
    ("landscape", "RUN", "--points", "3", "--rows", "50"),
    ("stop", "RUN"),
    ("run", "--in-process", "--out", "RUN"),
    ("sweep", "status", "RUN"),
    ("table", "s.yaml", "--out", "RUN"),
)
"""Commands that read a run's folder, or look into it."""
FREE = ("config.yaml", ".lock")
"""Files that a user may edit, or that nobody reads: what is in them need not be what was written."""


class Folders(Family):
    """One or two damages of a run's folder, and one command that reads it."""

    name = "folders"
    deadline = 40.0
    quick = 12

    def draw(self, rng: Random) -> Pieces:
        kind = rng.choice(("stopped", "stopped", "finished"))
        reader = rng.choice(READERS)
        damages = [
            (
                "damage",
                rng.random(),
                rng.choice(HOW if rng.random() < 0.8 else SWAPS),
                rng.random(),
                rng.randrange(2**30),
            )
            for _ in range(rng.choice((1, 1, 1, 2)))
        ]
        return [("run", kind), ("reader", reader), *damages]

    def play(self, pieces: Pieces, folder: Path) -> None:
        given = {p[0]: p[1] for p in pieces if p[0] != "damage"}
        words = given.get("reader", READERS[0])
        kind = given.get("run", "stopped")
        place = folder / "run"
        shutil.copytree(originals() / kind, place, symlinks=True)
        touched = [damage(place, *p[1:]) for p in pieces if p[0] == "damage"]
        with drawn(False):
            told = spoken(folder, *_words(words, folder))
        if told.code == 2:
            raise UserError(told.sentence)
        if set(touched) <= set(FREE):
            return
        self._compare(words, kind, place, told.text, touched)

    def _compare(
        self, words: tuple[str, ...], kind: str, place: Path, text: str, touched: list[str]
    ) -> None:
        """Exit 0 is the undisturbed answer."""
        if words[:3] == READERS[0][:3]:
            found, right = (
                strict(p / "result.json")["state_sha256"] for p in (place, originals() / "finished")
            )
            if found != right:
                raise Wrong(f"resumed from a damaged {_plain(touched)} to another state")
        elif numbers(text) != answer(words, kind):
            raise Wrong(
                f"{words[0]} of a damaged {_plain(touched)} says something else: {text[:600]}"
            )


def damage(place: Path, which: float, how: str, at: float, seed: int) -> str:
    """Damage one file of the folder; its name in the folder."""
    files = sorted(p for p in place.rglob("*") if p.is_file() and p.name != ".lock")
    if not files:
        return ".lock"
    path = files[int(which * len(files))]
    name = str(path.relative_to(place))
    if how in HOW[1:]:
        path.write_bytes(damaged(Random(seed), path.read_bytes(), how, at))
    elif how == "another run's":
        other = originals() / "other" / name
        shutil.copyfile(other, path) if other.exists() else path.unlink()
    elif how == "unreadable":
        path.chmod(0)
    else:
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how.startswith("a link"):
            os.symlink(path if how.endswith("itself") else "/nonexistent", path)
    return name


@cache
def originals() -> Path:
    """A run that was stopped after two of three rounds, the same one finished, and another."""
    try:
        with drawn(False):
            return _originals()
    except UserError as error:
        raise AssertionError("the battery's own runs are refused") from error


def _originals() -> Path:
    home = Path(tempfile.mkdtemp(prefix="fuzz-originals-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    from orchestrator.config import load

    small = ["data.limit=200", "data.clients=4", "model=linear", "rounds=3", "cohort=2",
             "local.steps=2", "checkpoint.every=1"]  # fmt: skip
    config = load(None, [*small, "algorithm=scaffold", "local.execution=sequential"])
    run(config, home / "finished")
    run(
        load(None, [*small, "name=other", "seed=4", "model={name: mlp, hidden: [5]}"]),
        home / "other",
    )
    stopped = home / "stopped"
    shutil.copytree(home / "finished", stopped)
    shutil.rmtree(stopped / "checkpoints" / "round-000003", ignore_errors=True)
    run(config.model_copy(update={"rounds": 2}), home / "two")
    for path in (home / "two").iterdir():
        if path.name not in ("config.yaml", ".lock"):
            shutil.rmtree(stopped / path.name, ignore_errors=True)
            (stopped / path.name).unlink(missing_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, stopped / path.name)
    _say_stopped(stopped / "result.json")
    return home


def _say_stopped(path: Path) -> None:
    """Two of two rounds are finished, two of three are not."""
    result: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "status": "stopped"}, indent=2))


@cache
def answer(words: tuple[str, ...], kind: str) -> list[str]:
    """What a command says of the undamaged folder."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        shutil.copytree(originals() / kind, folder / "run", symlinks=True)
        told = spoken(folder, *_words(words, folder))
    assert told.code == 0, f"{words} of an undamaged folder: {told.text}"
    return numbers(told.text)


def _words(words: tuple[str, ...], folder: Path) -> list[str]:
    place = {
        "RUN": str(folder / "run"),
        "OTHER": str(originals() / "other"),
        "s.yaml": _sweep(folder),
    }
    return [place.get(word, word) for word in words]


def _sweep(folder: Path) -> str:
    path = folder / "s.yaml"
    path.write_text("name: s\naxes: {local.lr: [0.1]}\n")
    return str(path)


def numbers(text: str) -> list[str]:
    """What is said, without where."""
    return re.findall(r"[\d.]+", re.sub(r"/\S+", "", text))


def _plain(touched: list[str]) -> str:
    return ", ".join(re.sub(r"\d+", "N", name) for name in touched)
