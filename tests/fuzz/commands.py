"""Command lines: every command with every argument, each out of what such an argument should not be."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer
from typer.models import OptionInfo

from orchestrator.errors import UserError
from sweeps import cli
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.oddities import document
from tests.fuzz.spoken import spoken

NUMBERS = ("0", "1", "2", "-1", "3.5", "nan", "inf", "-inf", "1e400", "1e-320", "1_0", "٣", "0x10",
           "2147483648", "9" * 30, "9" * 5_000, "", " ", "a", "1,2", ",", "1e5,nan", "-0")  # fmt: skip
PLACES = ("", ".", "..", "/", "nothing", "/nonexistent/x", "folder", "empty.yaml", "good.yaml", "odd.yaml",
          "bytes", "latin1.yaml", "loop", "dangling", "fifo", "closed", "/dev/null", "/dev/zero", "/dev/full",
          "/proc/self/mem", "/proc/1/x", "good.yaml/x", "x" * 300, "a/" * 3_000, "\udcff\udcfe", "[/red]",
          "[bold]x[/bold]", "a\nb", "\x1b[31m", "new", "new/deep/er", "a b", "-", "~", "%s", "file:///nonexistent",
          "file:", "s3:", "s3://", "s3://KEY:SECRET@bucket/x?endpoint_override=127.0.0.1:9", "http://x", "x://y", ":",
          "C:\\x", "run", "run/config.yaml", "run/result.json", "new.png", "new.yaml", "closed/x.png",
          "folder.png", "nothing/x.png", "x.nosuchformat", "sweep.yaml", "huge.yaml")  # fmt: skip
WORDS = ("", "fedavg", "algorithms", "data", "local", "[/red]", "\x00", "\x1b[31m", "x" * 5_000, "a\nb",
         "drdm/table3", "drdm/", "/", "status", "--", "-", "run", "test_accuracy", "test_", "/x", "seconds",
         "<= 0.1", "<= nan", "nan", "0.5", "shared", "\udcff", "é", "{name: td3}", "{", "{name: x}", "ddpg",
         "smoke", "full", "<script>", "*", "round")  # fmt: skip
SETTINGS = ("x", "=", "a=b", "rounds=2", "rounds=nan", "rounds=0", "local={lr: 0.1, lr: 0.2}", "cohort=true",
            "name=[/red]", "local.lr=.nan", "seed=" + "9" * 5_000, "a" * 5_000 + "=1", "data=&a [*a]",
            "model.hidden=[1]", "model=x[/]", "algorithm={name: fedavg, name: x}", "\x00=1", "\udcff=1",
            "resources.threads=1000000", "rounds=1 # x", "data.partition.alpha=.inf", "data.clients=1000000000",
            "local.block=1000000000000", "data.dataset={name: synthetic, alpha: 1e308}", "a.b.c.d=1")  # fmt: skip
ADDRESSES = (
    "127.0.0.1:9",
    "http://127.0.0.1:9",
    "auto",
    "local",
    "",
    "x",
    "[/red]",
    "ray://127.0.0.1:9",
    ":",
    "1",
)
CLOSED = {("agent", "pretrain"): ("--rounds", "1"), ("run",): ("--in-process",)}
"""What keeps a command short where it is accepted, and here."""


class Commands(Family):
    """A command and some of its arguments and options."""

    name = "commands"
    deadline = 30.0
    quick = 10

    def draw(self, rng: Random) -> Pieces:
        path, parameters = rng.choice(_commands())
        words = [word for p in parameters for word in _given(rng, p)]
        if rng.random() < 0.05:
            words.insert(0, rng.choice(("--nosuch", "-x", "--help", "--=", "-" * 300)))
        return [
            *[("word", w) for w in path],
            *[("word", w) for w in words],
            *self._kept_short(path),
        ]

    def _kept_short(self, path: tuple[str, ...]) -> Pieces:
        return [("word", w) for w in CLOSED.get(path, ())]

    def play(self, pieces: Pieces, folder: Path) -> None:
        words = [w for _, w in pieces]
        if words[:1] == ["run"] and "--in-process" not in words:
            words.append("--in-process")  # a run on Ray is no case for seconds
        if words[:1] == ["run"]:
            words += [
                w
                for s in ("data.limit=60", "model=linear", "rounds=1", "data.clients=3")
                for w in ("--set", s)
            ] * ("--resume" not in words)
        furnish(folder)
        told = spoken(folder, *words)
        if told.code == 2:
            raise UserError(told.sentence)
        if any(secret in told.text + told.complaint for secret in ("KEY:SECRET", "KEY", "SECRET")):
            raise Wrong(f"a credential is printed by {words[:1]}: {told.text[:300]}")


@dataclass(frozen=True)
class Parameter:
    """An argument (``flag`` is empty) or option of a command."""

    name: str
    flag: str
    kind: Any
    many: bool


@cache
def _commands() -> list[tuple[tuple[str, ...], list[Parameter]]]:
    """All commands of the app: the words that name them, and their parameters."""

    def walk(path: tuple[str, ...], app: typer.Typer) -> Any:
        for group in app.registered_groups:
            # a group without a name of its own is a file of ours, and no word of a user's
            named = (group.name,) if isinstance(group.name, str) else ()
            yield from walk((*path, *named), group.typer_instance)
        for info in app.registered_commands:
            name = info.name or info.callback.__name__
            yield (*path, name), _parameters(info.callback)

    return list(walk((), cli.cli.app))


def _parameters(callback: Callable[..., None]) -> list[Parameter]:
    return [
        _parameter(name, *typing.get_args(hint)[:2])
        for name, hint in typing.get_type_hints(callback, include_extras=True).items()
        # nobody ends what is served
        if name not in ("return", "live")
    ]


def _parameter(name: str, kind: Any, about: Any) -> Parameter:
    """``kind`` without what says that it may be left out, and that there may be several."""
    kinds = [k for k in typing.get_args(kind) if k is not type(None)] or [kind]
    many = typing.get_origin(kinds[0]) is list or kind == list[str]
    given = [d for d in about.param_decls or () if d.startswith("--")]
    flag = (*given, "--" + name.replace("_", "-"))[0]
    return Parameter(
        name, flag if isinstance(about, OptionInfo) else "", str if many else kinds[0], many
    )


def _given(rng: Random, parameter: Parameter) -> list[str]:
    """The words for one parameter: often none for an option."""
    if rng.random() < (0.65 if parameter.flag else 0.1):
        return []
    if parameter.kind is bool:
        return [parameter.flag]
    values = [_value(rng, parameter) for _ in range(rng.choice((1, 1, 2)) if parameter.many else 1)]
    return [w for v in values for w in ((parameter.flag, v) if parameter.flag else (v,))]


def _value(rng: Random, parameter: Parameter) -> str:
    name, kind = parameter.name, parameter.kind
    if name == "settings":
        return rng.choice(SETTINGS)
    if name == "address":
        return rng.choice(ADDRESSES)
    if kind in (int, float) or (name in ("snr", "bandwidth", "target") and rng.random() < 0.7):
        return rng.choice(NUMBERS)
    if kind is Path or name in ("out", "resume", "runs", "folder"):
        return rng.choice(PLACES)
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return rng.choice((*[str(k.value) for k in kind], "x", ""))
    return rng.choice((*WORDS, rng.choice(PLACES)))


def furnish(folder: Path) -> None:
    """Make what the words name."""
    (folder / "folder").mkdir()
    (folder / "folder.png").mkdir()
    (folder / "run").mkdir()
    (folder / "run" / "config.yaml").write_text(
        "rounds: 1\nmodel: linear\ndata: {limit: 60, clients: 3}\ncohort: 2\n"
    )
    (folder / "run" / "result.json").write_text(
        '{"status": "finished", "name": "x", "metrics": {}}'
    )
    (folder / "closed").mkdir(mode=0)
    (folder / "empty.yaml").write_text("")
    (folder / "good.yaml").write_text(
        "rounds: 1\nmodel: linear\ndata: {limit: 60, clients: 3}\ncohort: 2\n"
    )
    (folder / "sweep.yaml").write_text("base: good.yaml\naxes: {local.lr: [0.1, 0.2]}\n")
    (folder / "huge.yaml").write_bytes(b"# " + b"x" * 3_000_000 + b"\nrounds: 1\n")
    odd = "\n".join(document(Random(len(folder.name)), ["rounds", "name"]))
    (folder / "odd.yaml").write_bytes(odd.encode("utf-8", "surrogatepass"))
    (folder / "bytes").write_bytes(bytes(range(256)))
    (folder / "latin1.yaml").write_bytes("name: é".encode("latin1"))
    os.symlink("loop", folder / "loop")
    os.symlink("/nonexistent", folder / "dangling")
    os.mkfifo(folder / "fifo")
