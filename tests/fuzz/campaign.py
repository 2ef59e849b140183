"""A campaign: cases of all families side by side for so many minutes, counted and resumed."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.fuzz.families import FAMILIES
from tests.fuzz.worker import work

GOAL = dict.fromkeys(FAMILIES, 5000) | {"schedules": 100_000}
"""Cases that a campaign is to reach."""


@dataclass
class Count:
    """What became of a family's cases."""

    begun: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    causes: dict[str, int] = field(default_factory=dict)


@dataclass
class Player:
    """A worker process, and the case that it is at."""

    process: BaseProcess
    pipe: Connection
    traces: Path
    case: tuple[str, int] | None = None
    since: float = 0.0


class Campaign:
    """Counts in ``folder/counts-SEED.json``, failures in ``folder/failures-SEED.txt``."""

    def __init__(self, folder: Path, seed: int, families: Iterable[str], workers: int) -> None:
        self.folder, self.seed, self.families = folder, seed, list(families)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"counts-{seed}.json"
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.counts = {name: Count(**known.get(name, {})) for name in FAMILIES}
        self.players = [self._player(n) for n in range(workers)]
        self.written = time.monotonic()

    def run(self, minutes: float, most: int | None = None) -> None:
        """Play until the time is up, or every family has had ``most`` cases."""
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            idle = [p for p in self.players if p.case is None]
            for player in idle:
                self._hand_out(player, most)
            busy = [p for p in self.players if p.case is not None]
            if not busy:
                break
            self._hear(busy)
            if time.monotonic() > self.written + 5:
                self.write()
        for player in self.players:
            # a case under way is not counted, and played again next time
            player.process.kill()
            player.process.join()
            if player.case is not None:
                self.counts[player.case[0]].begun = min(
                    self.counts[player.case[0]].begun, player.case[1]
                )
        self.write()

    def _player(self, number: int) -> Player:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        traces = self.folder / f"worker-{number}.trace"
        process = context.Process(target=work, args=(there, traces), daemon=True)
        process.start()
        there.close()
        return Player(process, here, traces)

    def _hand_out(self, player: Player, most: int | None) -> None:
        """The family that has had least of the time, among those that are short of their goal."""
        open_ = [n for n in self.families if most is None or self.counts[n].begun < most]
        if not open_:
            return
        short = [n for n in open_ if self.counts[n].begun < GOAL[n]] or open_
        name = min(short, key=lambda n: self.counts[n].seconds)
        count = self.counts[name]
        player.case, player.since = (name, count.begun), time.monotonic()
        count.begun += 1
        # so that the next one to be idle takes another
        count.seconds += 1e-6
        player.pipe.send((name, self.seed, player.case[1], set(count.causes)))

    def _hear(self, busy: list[Player]) -> None:
        for pipe in wait([p.pipe for p in busy], timeout=1.0):
            player = next(p for p in busy if p.pipe is pipe)
            try:
                answer = player.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._replace(player)
                continue
            if isinstance(answer, str):
                raise RuntimeError(f"the battery itself is broken at {player.case}:\n{answer}")
            self._count(player, *answer)

    def _replace(self, player: Player) -> None:
        """A worker has died: its case is a failure, and the campaign goes on."""
        player.process.join()
        name, _ = player.case or ("", 0)
        trace, printed = (
            p.read_text(errors="replace")
            for p in (player.traces, player.traces.with_suffix(".out"))
        )
        code = player.process.exitcode
        why = (
            "over its deadline, where no signal is heard" if trace else f"the process died ({code})"
        )
        self._count(player, "failed", f"{name}: {why}", (trace or printed)[-2000:], "")
        fresh = self._player(int(player.traces.stem.partition("-")[2]))
        player.process, player.pipe = fresh.process, fresh.pipe

    def _count(self, player: Player, outcome: str, cause: str, said: str, pieces: str) -> None:
        assert player.case is not None
        name, number = player.case
        count = self.counts[name]
        count.seconds += time.monotonic() - player.since
        setattr(count, outcome, getattr(count, outcome) + 1)
        player.case = None
        if outcome == "failed":
            count.causes[cause] = count.causes.get(cause, 0) + 1
            if count.causes[cause] <= 3:
                again = f"python -m tests.fuzz --seed {self.seed} --family {name} --case {number}"
                with (self.folder / f"failures-{self.seed}.txt").open(
                    "a", encoding="utf-8", errors="backslashreplace"
                ) as file:
                    file.write(f"## {cause}\n{again}\nsmallest: {pieces}\n{said}\n\n")

    def write(self) -> None:
        """Keep the counts."""
        self.written = time.monotonic()
        partial = self.file.with_suffix(".partial")
        counts: dict[str, Any] = {name: asdict(count) for name, count in self.counts.items()}
        partial.write_text(json.dumps(counts, indent=1))
        partial.replace(self.file)

    def table(self) -> str:
        """Cases, failures, seconds and seed of each family, and the causes."""
        lines = [
            f"| family (seed {self.seed}) | cases | accepted | refused | failed | seconds |",
            "|---|---|---|---|---|---|",
        ]
        for name, c in self.counts.items():
            done = c.accepted + c.refused + c.failed
            if not done:
                continue
            lines.append(
                f"| {name} | {done} | {c.accepted} | {c.refused} | {c.failed} | {c.seconds:.0f} |"
            )
        causes = [(n, cause) for c in self.counts.values() for cause, n in c.causes.items()]
        return "\n".join(
            [*lines, "", *[f"{n:6d}  {cause}" for n, cause in sorted(causes, reverse=True)]]
        )
