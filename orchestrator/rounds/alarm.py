"""What a run says of numbers that are none: each thing once, with its round and its cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.finite import all_finite, has_nan, leaves
from orchestrator.clients.books import NonFinite
from orchestrator.errors import Diverged
from orchestrator.rounds.metrics import Record

SHOWN = 4
"""Metrics that are named where many could be."""
CALLED = {
    "w": "model",
    "buffers": "batch-norm statistics",
    "dual": "dual variable λ",
    "past": "mean of its models",
}
"""What a person calls a part of the server's state; the others have names that say it."""


class Alarm:
    """Hears of what a run computes, in the order of a round, and remembers what it has said."""

    def __init__(self, policy: NonFinite, first: Mapping[str, Any] | None = None) -> None:
        """``first``: the server's parts before any round. What is infinite (the best so far, say)
        or NaN in them then may be so later.
        """
        self.policy = policy
        bad = {one: value for one, value in leaves(first or {}) if not all_finite(value)}
        self.usual = {one: has_nan(value) for one, value in bad.items()}
        self.remarks: list[str] = []
        """What is to be said of the config before any round: of one that goes further, anew."""
        self.said: list[str] = []
        """What was said since."""
        self.told: list[str] = []
        """What they are about: "update", parts of the server's state, metrics."""
        self.cause = ""
        """What made the server, or this round's aggregate, NaN or infinite; "" if nothing has."""
        self._heard: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Sentences for the user."""
        return [*self.remarks, *self.said]

    def news(self) -> list[str]:
        """The notes since this was last asked."""
        new = [note for note in self.notes if note not in self._heard]
        self._heard = self.notes
        return new

    def aggregated(self, t: int, who: str, state: Mapping[str, Any]) -> None:
        """Hear that the updates of ``who`` held NaN or infinity ("" for nobody's), and look at what
        the server, its parts by name, is after its step.

        Raises Diverged if a part holds NaN or infinity and the policy is to fail.
        """
        self._updates(t, who)
        bad = [name for name, value in state.items() if not all_finite(value)]
        bad = [name for name in bad if not self._is_usual({name: state[name]})]
        kept = f"the update of {who} in round {t}" if who and self.policy == "keep" else ""
        # what was NaN before this round has its cause already
        cause = (self.cause or kept or f"the server's step in round {t}") if bad else kept
        what = f"the server's {_listed([CALLED.get(name, name) for name in bad])}"
        if bad and self.policy == "fail":
            raise Diverged(
                f"round {t}: {what} became NaN or infinite when the server stepped, though all "
                "updates were finite; lower server_optimizer.lr or the options of algorithm that "
                "scale its step, or local.lr"
            )
        if self._new([f"server/{name}" for name in bad]):
            self.said.append(
                f"round {t}: {what} became NaN or infinite by {cause}; the run goes on "
                f"(non_finite: {self.policy})"
            )
        self.cause = cause

    def _is_usual(self, part: Mapping[str, Any]) -> bool:
        """Whether nothing of it is NaN, or infinite, that was not so at the start; but for plain
        numbers, of which infinity is where a search for the best begins.
        """
        bad = [(one, value) for one, value in leaves(part) if not all_finite(value)]
        return all(
            self.usual[one] or not has_nan(value)
            if one in self.usual
            else type(value) is float and not has_nan(value)
            for one, value in bad
        )

    def _updates(self, t: int, who: str) -> None:
        becomes = "counts all the same" if self.policy == "keep" else "is left out"
        if who and self._new(["update"]):
            self.said.append(
                f"round {t}: the update of {who} holds NaN or infinity and {becomes} (non_finite: "
                f"{self.policy}); others that follow are not told"
            )

    def metrics(self, t: int, record: Record) -> None:
        """Look at what the round reports."""
        new = self._new([name for name, value in record.items() if not math.isfinite(value)])
        by = self.cause or (
            "numbers too large for their type, or by rows that do not define it; the server's "
            "are finite"
        )
        if new:
            self.said.append(f"round {t}: {_listed(new)} became NaN or infinite by {by}")

    def note(self, sentence: str) -> None:
        """Hear of what others have to say."""
        self.said.append(sentence)

    def unsaved(self, t: int, names: Sequence[str]) -> None:
        """Hear of what round ``t`` has changed, and no checkpoint holds."""
        if new := self._new([f"unsaved/{name}" for name in names]):
            what = _listed([name.removeprefix("unsaved/") for name in new])
            self.said.append(
                f"round {t} changes {what}, which no checkpoint holds: where a later round "
                "depends on it, a run that is resumed has other bits (an algorithm names what it "
                "keeps in server_state; clients have work.state, aggregators rows.memory)"
            )

    def unreported(self, t: int, names: Sequence[str]) -> None:
        """Hear of metrics that are to end the run, and that no round has had so far."""
        if new := self._new([f"stop/{name}" for name in names]):
            listed = _listed([repr(name.removeprefix("stop/")) for name in new])
            self.said.append(f"stop: up to round {t} no round has reported {listed}")

    def _new(self, names: Sequence[str]) -> list[str]:
        """Those of ``names`` that have not been told yet, which they are from now on."""
        new = [name for name in names if name not in self.told]
        self.told += new
        return new

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {
            "notes": list(self.said),
            "remarks": list(self.remarks),
            "told": list(self.told),
            "cause": self.cause,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state`; what was said before is no news."""
        before = state.get("remarks", [])
        # checkpoints of before have remarks among the notes
        self.said = [note for note in state["notes"] if note not in self.remarks]
        self._heard = [*self.said, *(before or state["notes"])]
        self.told, self.cause = list(state["told"]), state["cause"]


def _listed(names: Sequence[str]) -> str:
    """The first of some names, for people."""
    rest = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    *most, last = [*names[:SHOWN], *rest] or [""]
    return f"{', '.join(most)} and {last}" if most else last
