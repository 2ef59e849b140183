"""Rounds as lines of a text file, which other programs can follow while the run goes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.files import said, write_text
from orchestrator.tracking.tracker import Log, Tracked, Tracker


class Csv(Tracker):
    """`metrics.csv` in the run's folder: a row a round, empty where a round has no such metric."""

    name: str = "csv"

    def begin(self, run: Tracked) -> Log:
        return Table(run)


class JsonLines(Tracker):
    """`metrics.jsonl` in the run's folder: an object a round; null for NaN and infinity."""

    name: str = "jsonl"

    def begin(self, run: Tracked) -> Log:
        return Lines(run)


class Table(Log):
    """Adds to the file; one with columns that were not there before is written anew."""

    def __init__(self, run: Tracked) -> None:
        self.path = run.folder / "metrics.csv"
        self.columns: list[str] = []
        with _undamaged(self.path):
            rows = [row for row in _rows(self.path) if int(row["round"]) <= run.done]
        self._rewrite(rows)

    def add(self, record: Mapping[str, float]) -> None:
        new = [name for name in record if name not in self.columns]
        row = {name: _written(name, value) for name, value in record.items()}
        # somebody may have tidied it away, in mid-run
        if new or not self.path.is_file():
            self._rewrite([*_rows(self.path), row])
            return
        with said(f"cannot write {self.path}"), self.path.open("a", newline="") as f:
            csv.DictWriter(f, self.columns, "", lineterminator="\n").writerow(row)

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        lines = [self.columns, *([row.get(name, "") for name in self.columns] for row in rows)]
        text = io.StringIO()
        # names that code of one's own gives its numbers may have commas
        csv.writer(text, lineterminator="\n").writerows(filter(None, lines))
        write_text(self.path, text.getvalue())


def _rows(path: Path) -> list[dict[str, str]]:
    """Those of the file; a last line that was not written whole is none."""
    if not path.is_file():
        return []
    with said(f"cannot read {path}"):
        return list(csv.DictReader(_whole(_lines(path))))


def _lines(path: Path) -> list[str]:
    """Those of a file, which end with a line feed, as nothing else does that is in a name."""
    with path.open(newline="") as f:
        *lines, last = f.read().split("\n")
    return [*(f"{line}\n" for line in lines), *filter(None, [last])]


def _written(name: str, value: float) -> str:
    """A number as others read it; the round is whole."""
    return str(int(value)) if name == "round" else repr(float(value))


class Lines(Log):
    """Adds to the file."""

    def __init__(self, run: Tracked) -> None:
        self.path = run.folder / "metrics.jsonl"
        kept = []
        if self.path.is_file():
            with _undamaged(self.path), said(f"cannot read {self.path}"):
                lines = _whole(_lines(self.path))
                kept = [line for line in lines if json.loads(line)["round"] <= run.done]
        write_text(self.path, "".join(kept))

    def add(self, record: Mapping[str, float]) -> None:
        row = {
            name: int(value) if name == "round" else value if math.isfinite(value) else None
            for name, value in record.items()
        }
        with said(f"cannot write {self.path}"), self.path.open("a") as f:
            f.write(json.dumps(row, allow_nan=False) + "\n")


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{path} is not as it was left; remove it, and it is begun anew from the next round on"
        ) from error


def _whole(lines: Iterable[str]) -> list[str]:
    """Lines that end: the last of a run that was killed may not."""
    return [line for line in lines if line.endswith("\n")]
