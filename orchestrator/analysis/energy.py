"""The number of local steps that reaches a target at least energy, by channel (DRDM, Figure 4)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pydantic import ValidationError
from rich.table import Table

from orchestrator.config.energy import Energy
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console


def show_best_steps(
    folders: list[RunFolder],
    target: float,
    snrs: list[float],
    bandwidths: list[float],
    plot: Path | None,
) -> None:
    """Print the best τ for every SNR (dB) x bandwidth (Hz); optionally a map and its data.

    Raises UserError if no run reaches the target or the runs do not say their local steps.
    """
    plots.check(plot)
    reached = _reached(folders, target)
    table = _energies(folders, reached, snrs, bandwidths)
    # Figure 4: of each channel the τ that costs least
    best = table.loc[table.groupby(["snr_db", "bandwidth_hz"])["joules"].idxmin()]
    grid = best.pivot(index="snr_db", columns="bandwidth_hz", values="steps")
    shown = Table(
        "SNR (dB)",
        *[f"{b:g} Hz" for b in grid.columns],
        title=f"local steps to {target:.0%} at least energy",
    )
    for snr, row in grid.iterrows():
        shown.add_row(f"{snr:g}", *[f"{int(v)}" for v in row])
    console.print(shown)
    for steps, at in sorted(reached.items()):
        when = (
            f"reaches it in round {int(at['round'].iloc[0])}"
            if at is not None
            else "does not reach it"
        )
        console.print(f"τ = {steps}: {when}")
    if plot is not None:
        console.print(plots.save(plots.steps_map(grid), plot, table))


def _reached(folders: list[RunFolder], target: float) -> dict[int, pd.DataFrame | None]:
    """τ of each run -> its clients' rows when the worst client first reaches the target."""
    found: dict[int, pd.DataFrame | None] = {}
    for folder in folders:
        steps = folder.config().local.steps
        if steps is None or steps in found:
            raise UserError(
                f"{folder.path}: each run needs its own number of local.steps, and this one has "
                f"{steps}"
            )
        clients = folder.clients()
        if "accuracy" not in clients:
            raise UserError(
                f"{folder.path}: the run did not evaluate its clients (evaluation.clients)"
            )
        worst = clients.groupby("round")["accuracy"].min()
        hits = worst.index[worst >= target]
        found[steps] = clients[clients["round"] == hits[0]] if len(hits) else None
    if all(at is None for at in found.values()):
        raise UserError(f"no run brings its worst client to an accuracy of {target}")
    return found


def _over(model: Energy, snr: float, bandwidth: float) -> Energy:
    """The model over another channel; raises UserError for one that cannot be."""
    # steps and bytes do not depend on the channel, so no run has to be repeated for it
    channel = {"snr_db": snr, "bandwidth_hz": bandwidth}
    try:
        return Energy.model_validate(model.model_dump() | channel)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--snr" if first["loc"][0] == "snr_db" else "--bandwidth"
        problem = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{option}: {problem}, not {first['input']:g}") from error


def _energies(
    folders: list[RunFolder],
    reached: dict[int, pd.DataFrame | None],
    snrs: list[float],
    bandwidths: list[float],
) -> pd.DataFrame:
    """Joules of all clients up to the target, for every τ and channel."""
    model = folders[0].config().energy
    rows = []
    for snr in snrs:
        for bandwidth in bandwidths:
            channel = _over(model, snr, bandwidth)
            for steps, at in reached.items():
                if at is not None:
                    joules = channel.joules(at["steps"].to_numpy(), at["bytes_up"].to_numpy()).sum()
                    rows.append(
                        {
                            "snr_db": snr,
                            "bandwidth_hz": bandwidth,
                            "steps": steps,
                            "joules": float(joules),
                        }
                    )
    return pd.DataFrame(rows)
