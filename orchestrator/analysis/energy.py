"""The number of local steps that reaches a target at least energy, by channel (DRDM, Figure 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from pydantic import ValidationError
from rich.table import Table

from orchestrator.analysis.goals import ALIKE, local_steps_a_look
from orchestrator.analysis.left_out import failed_said, gone_said, left_out_said
from orchestrator.analysis.names import NO_MATTER, require_alike, require_same_data
from orchestrator.config import Config
from orchestrator.config.energy import Energy
from orchestrator.config.sentences import sentence
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.pictures import write_picture
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

WORST = "client_accuracy_worst"
"""What is to be reached."""


@dataclass(frozen=True)
class Channels:
    """What is to be reached, and over which channels."""

    target: float = 0.8
    """Accuracy of the worst honest client."""
    snrs: Sequence[float] = (0.0, 5.0, 10.0, 15.0, 20.0)
    """In dB."""
    bandwidths: Sequence[float] = (1e5, 2e5, 5e5, 1e6, 2e6)
    """In Hz."""


@dataclass(frozen=True)
class Reached:
    """One run."""

    folder: RunFolder
    steps: int
    """Local steps a round, τ."""
    seed: int
    clients: pd.DataFrame | None
    """The clients' rows when the worst honest one first reached the target; None: never."""

    @classmethod
    def of(cls, folder: RunFolder, target: float) -> Reached:
        """Read a run; raises UserError if it does not say its steps or its clients' accuracy."""
        config, clients = folder.config(), folder.clients()
        if config.local.steps is None:
            raise UserError(f"{folder.place}: each run needs a number of local.steps, not epochs")
        if "accuracy" not in clients:
            numbers = "has no accuracy of its clients, as its targets are numbers"
            missing = "did not evaluate its clients (evaluation.clients)"
            raise UserError(f"{folder.place}: the run {numbers if 'loss' in clients else missing}")
        # as in client_accuracy_worst
        honest = clients[~clients["malicious"].astype(bool)] if "malicious" in clients else clients
        worst = honest.groupby("round")["accuracy"].min()
        hits = worst.index[worst >= target]
        at = clients[clients["round"] == hits[0]] if len(hits) else None
        return cls(folder, config.local.steps, config.seed, at)

    @property
    def when(self) -> str:
        """The round in which it reached the target."""
        return "never" if self.clients is None else str(int(self.clients["round"].iloc[0]))

    @property
    def ended_early(self) -> bool:
        """Whether it ended before its last round, and before the target."""
        done, planned = self.folder.result()["rounds"], self.folder.config().rounds
        return self.clients is None and done < planned

    def looked_at(self, config: Config, rounds: pd.DataFrame) -> str:
        """Whether its clients have been judged "less" or "more" often, until the target, than by
        the config with which it ended, or neither (""): ``evaluation`` may be another on --resume.
        """
        if WORST not in rounds:
            return ""
        hit = math.inf if self.clients is None else float(self.clients["round"].iloc[0])
        found, clock = local_steps_a_look(config, rounds, WORST, hit), config.evaluation
        if clock.every_steps == "epoch" or found is None:
            return ""
        due = clock.every_steps or clock.every * self.steps
        # a look may wait for its round's end
        if found > ALIKE * math.ceil(due / self.steps) * self.steps:
            return "less"
        return "more" if found * ALIKE < due else ""

    def joules(self, snr: float, bandwidth: float) -> float:
        """Of all clients up to the target, over a channel; infinite for a run that misses it."""
        if self.clients is None:
            return float("inf")
        # steps and bytes do not depend on the channel, so no run has to be repeated for it
        channel = _channel(self.folder.config().energy, snr, bandwidth)
        steps, sent = self.clients["steps"].to_numpy(), self.clients["bytes_up"].to_numpy()
        return float(channel.joules(steps, sent).sum())


def _channel(model: Energy, snr: float, bandwidth: float) -> Energy:
    raw = {**model.model_dump(), "snr_db": snr, "bandwidth_hz": bandwidth}
    try:
        return Energy.model_validate(raw)
    except ValidationError as error:
        raise UserError(sentence(error, raw, Energy, "--snr, --bandwidth")) from error


def reached(folders: Sequence[RunFolder], target: float) -> list[Reached]:
    """The runs by τ and seed; raises UserError for two of one τ and seed, for runs that differ in
    anything else, and as ``Reached.of``.
    """
    require_alike(
        folders,
        lambda key: key != "local.steps" and key.split(".")[0] not in NO_MATTER,
        "runs for one map differ in local.steps and in seeds",
    )
    require_same_data(folders, [folder.result() for folder in folders])
    found = [Reached.of(folder, target) for folder in folders]
    for number, one in enumerate(found):
        if (one.steps, one.seed) in [(other.steps, other.seed) for other in found[:number]]:
            raise UserError(
                f"{one.folder.place}: another run has {one.steps} local.steps on seed {one.seed}, "
                "too; runs of one number of steps are its seeds"
            )
    return sorted(found, key=lambda one: (one.steps, one.seed))


def energies(found: Sequence[Reached], channels: Channels) -> pd.DataFrame:
    """A line for each τ and channel: mean joules over seeds and their standard deviation, seeds,
    and seeds that missed the target; a τ that one of its seeds missed has infinite joules, because
    the mean of the others would reward it for that.
    """
    each = pd.DataFrame(
        [
            (snr, bandwidth, one.steps, one.joules(snr, bandwidth))
            for snr in dict.fromkeys(channels.snrs)
            for bandwidth in dict.fromkeys(channels.bandwidths)
            for one in found
        ],
        columns=["snr_db", "bandwidth_hz", "steps", "joules"],
    )
    grouped = each.groupby(["snr_db", "bandwidth_hz", "steps"])["joules"]
    lost = grouped.apply(lambda joules: int((joules == float("inf")).sum()))
    table = pd.DataFrame({"joules": grouped.mean(), "seeds": grouped.count(), "missed": lost})
    table["standard_deviation"] = grouped.std().where(lost == 0)
    return table.reset_index()


def best_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The τ of least mean energy: SNR (index) by bandwidth (columns); empty if none reaches the
    target on all seeds.
    """
    possible = table[table["missed"] == 0]
    best = possible.loc[possible.groupby(["snr_db", "bandwidth_hz"])["joules"].idxmin()]
    return best.pivot(index="snr_db", columns="bandwidth_hz", values="steps")


def energy_map(
    folders: Sequence[RunFolder], channels: Channels
) -> tuple[Figure | None, pd.DataFrame]:
    """Figure 4 of some runs, and its data; no figure where no τ reaches the target on all seeds.

    Prints the best τ for every channel, and when each run reached the target. Raises as
    ``reached``.
    """
    found = reached(folders, channels.target)
    mapped = _on_seeds_of_all(found)
    table = energies(mapped, channels)
    best = best_steps(table)
    if not best.empty:
        console.print(_shown(best, channels.target))
        console.print(_edges(best, [one.steps for one in found]), soft_wrap=True, end="")
    for steps in sorted({one.steps for one in found}):
        rounds = ", ".join(one.when for one in found if one.steps == steps)
        console.print(f"τ = {steps}: reaches {100 * channels.target:g}% in round {rounds}")
    if (left_out := _left_out(table)) and not best.empty:
        console.print(left_out, soft_wrap=True)
    if early := sorted({one.steps for one in mapped if one.ended_early}):
        console.print(
            f"runs with τ = {', '.join(map(str, early))} ended before their last round (a goal, or "
            "stopped) without it, and might have reached it",
            soft_wrap=True,
        )
    if said := _other_seeds(found):
        how = "the seeds that all have" if _shared(found) else "other seeds, and so other data"
        console.print(f"the map's means are over {how}: {said}", soft_wrap=True)
    for said in _conditions_said(found):
        console.print(said, soft_wrap=True)
    return (None if best.empty else plots.steps_map(best, left_out)), table


def _left_out(table: pd.DataFrame) -> str:
    """Which τ are not in the map; or ""."""
    missed = sorted(set(table.loc[table["missed"] > 0, "steps"]))
    named = ", ".join(map(str, missed))
    return f"the map leaves out τ = {named}: not reached on every seed" if missed else ""


def _conditions_said(found: Sequence[Reached]) -> Iterator[str]:
    """Which runs have diverged, after the target, too; and which went on without clients."""
    if gone := gone_said({f"τ = {one.steps}, seed {one.seed}": one.folder for one in found}):
        yield gone
    if failed := failed_said(one.folder for one in found):
        yield failed
    groups: dict[str, list[tuple[Config, pd.DataFrame]]] = {}
    often: dict[str, list[str]] = {"less": [], "more": [], "": []}
    for one in found:
        run = one.folder.config(), one.folder.rounds()
        groups.setdefault(f"τ = {one.steps}", []).append(run)
        often[one.looked_at(*run)].append(f"τ = {one.steps}, seed {one.seed}")
    yield from left_out_said(groups)
    for which, follows in (
        ("less", "may have reached it before"),
        ("more", "are seen to reach it earlier"),
    ):
        if often[which]:
            yield (
                f"until the target looked at {which} often than their config says (it had another "
                f"evaluation then), and {follows}: {'; '.join(often[which])}"
            )


def _edges(best: pd.DataFrame, tried: Sequence[int]) -> str:
    """Which ends of the τ that were tried are the best of a channel; or ""."""
    ends = {"smallest": min(tried), "largest": max(tried)}
    known = {*best.to_numpy().ravel()}
    said = [f"τ = {steps}, the {which}" for which, steps in ends.items() if steps in known]
    if not said or len({*tried}) < 2:
        return ""
    return f"{' and '.join(said)} that was tried, is the best of a channel: others may be better\n"


def _shared(found: Sequence[Reached]) -> set[int]:
    """The seeds that every τ has."""
    seeds = [
        {one.seed for one in found if one.steps == steps} for steps in {r.steps for r in found}
    ]
    return set.intersection(*seeds)


def _on_seeds_of_all(found: Sequence[Reached]) -> list[Reached]:
    """The runs on the seeds that every τ has, or all where there is none: of fewer seeds the easy
    ones may be left.
    """
    shared = _shared(found)
    return [one for one in found if one.seed in shared or not shared]


def _other_seeds(found: Sequence[Reached]) -> str:
    """The seeds of each τ, where not all have the same; or ""."""
    seeds = {
        steps: sorted(one.seed for one in found if one.steps == steps)
        for steps in sorted({one.steps for one in found})
    }
    first, *others = seeds.values()
    if all(other == first for other in others):
        return ""
    return "; ".join(f"τ = {steps}: {', '.join(map(str, its))}" for steps, its in seeds.items())


def _shown(best: pd.DataFrame, target: float) -> Table:
    title = f"local steps to {100 * target:g}% at least energy, mean over seeds"
    shown = Table("SNR (dB)", *[f"{b:g} Hz" for b in best.columns], title=title)
    for snr, row in best.iterrows():
        shown.add_row(f"{snr:g}", *[f"{int(v)}" for v in row])
    return shown


def show_best_steps(folders: list[RunFolder], channels: Channels, plot: Path | None) -> None:
    """Print the best τ for every channel; optionally a map and its data.

    Raises UserError if no τ brings all its runs to the target, and as ``reached``.
    """
    figure, table = energy_map(folders, channels)
    if figure is None:
        raise UserError(
            "no number of local steps brings the worst client to an accuracy of "
            f"{channels.target} on all its seeds"
        )
    if plot is not None:
        write_picture(figure, plot, table)
