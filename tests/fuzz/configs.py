"""Configs: from the schema itself, and as text in all of YAML's strange ways."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import yaml

from orchestrator.config import Config, build, load
from orchestrator.config.paths import put
from orchestrator.config.reading import placed
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.oddities import anything, document, odd_line
from tests.fuzz.schema import settings


class Configs(Family):
    """Mappings: every field of every section and part at, inside and beyond its bounds."""

    name = "configs"
    deadline = 5.0
    quick = 60

    def draw(self, rng: Random) -> Pieces:
        density, odd = rng.choice((0.02, 0.05, 0.2)), rng.choice((0.0, 0.1, 0.4))
        pieces = list(settings(rng, Config, density, odd))
        if rng.random() < 0.15:
            pieces.append(
                (rng.choice(("x", "data.x", "local", "", "model.", ".", "a.b.c")), anything(rng))
            )
        return pieces

    def play(self, pieces: Pieces, folder: Path) -> None:
        raw: dict[str, Any] = {}
        for path, value in pieces:
            put(raw, path, value)
        # as every door does, be it a file's, the command's or Python's
        same_when_read_again(build(placed(raw, folder)), folder)


class Texts(Family):
    """Files and --set words that are hardly YAML."""

    name = "texts"
    deadline = 5.0
    quick = 30

    def draw(self, rng: Random) -> Pieces:
        keys = [*Config.model_fields, "local.lr", "data.clients", "name"]
        if rng.random() < 0.25:
            words = [odd_line(rng, "k").partition(":")[2] for _ in range(rng.choice((1, 2)))]
            path = rng.choice((*keys, "a..b", "", ".", "name.x", "local.lr.x", "a" * 5_000))
            return [("set", f"{path}={word}") for word in words]
        lines = [("line", line) for line in document(rng, keys)]
        return [*lines, *([("raw", rng.randbytes(20))] if rng.random() < 0.1 else [])]

    def play(self, pieces: Pieces, folder: Path) -> None:
        path = folder / "c.yaml"
        with path.open("wb") as file:
            for kind, what in pieces:
                if kind != "set":
                    file.write(what if kind == "raw" else what.encode("utf-8", "surrogatepass"))
                    file.write(b"\n")
        words = [what for kind, what in pieces if kind == "set"]
        same_when_read_again(load(path, words), folder)


def same_when_read_again(config: Config, folder: Path) -> None:
    """What is accepted survives config.yaml, to the bit."""
    text = config.dump()
    place = folder / "again.yaml"
    place.write_text(text, encoding="utf-8")
    again = load(place)
    if again != config or again.dump() != text:
        raise Wrong(f"read again it is another config: {_differences(config, again)}")
    if os.linesep.join(yaml.safe_load(text)) != os.linesep.join(Config.model_fields):
        raise Wrong("config.yaml does not hold every key: " + text[:200])


def _differences(a: Config, b: Config) -> str:
    left, right = a.model_dump(), b.model_dump()
    return "; ".join(f"{k}: {left[k]!r} {right[k]!r}"[:200] for k in left if left[k] != right[k])
