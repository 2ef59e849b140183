"""A run is continued from its newest checkpoint: what is refused then, and what is noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.config.reading import read_whole
from orchestrator.errors import UserError
from orchestrator.plugins.raw import kept
from orchestrator.results import checkpoint
from orchestrator.results.contents import CONFIG, RESULT
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.asked import (
    asked_by,
    has_new_goal,
    is_over,
    lost_looks,
    require_same_metrics,
)
from orchestrator.rounds.experiment import Experiment


def resume(experiment: Experiment, folder: RunFolder) -> list[str]:
    """Continue from the newest readable checkpoint, or from the start if none was written; returns
    notes for the user.

    Raises UserError if the checkpoints are damaged or belong to another config, to other data or
    to a later round than its last, or there is none of a finished run.
    """
    _require_none_taken_back(experiment, folder)
    if not checkpoint.found(folder.checkpoints):
        if folder.finished:
            raise UserError(
                f"{folder.path}: the run is finished, and has kept no checkpoint to go on from "
                f"(checkpoint.every is {experiment.config.checkpoint.every}, or this is a copy of "
                "its model)"
            )
        return ["no checkpoint had been written yet; starting from the first round"]
    t, state, notes = checkpoint.load_latest(folder.checkpoints)
    if state["science"] != experiment.science() or "origin" not in state:
        raise UserError(
            f"{folder.path}: config.yaml was changed since the checkpoint, or that is of another "
            "version; only name, "
            "rounds, stop, evaluation, checkpoint, energy and resources (but for threads and "
            "clients_per_actor) may differ on --resume"
        )
    exchanged = bool(_exchanged(experiment, folder))
    experiment.require_origin(state["origin"], str(folder.path), exchanged)
    # of earlier versions the folder's config, which is the checkpoint's until the run goes on
    path = folder.path / CONFIG
    before = state.get("asked") or asked_by(kept(read_whole(path), path))
    require_same_metrics(experiment.asked, before, str(folder.path))
    try:
        experiment.restore(t, state)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(
            f"{folder.path}: the checkpoint of round {t} is of another version of fedorch, or not "
            f"one of this run ({' '.join(str(error).split())[:120]})"
        ) from error
    _require_not_beyond(experiment, folder, has_new_goal(experiment.asked, before))
    _note_of_looks(experiment, before["stop"])
    return notes


def _require_not_beyond(experiment: Experiment, folder: RunFolder, new: bool) -> None:
    """Raise UserError if ``stop`` is such that the run would have ended before (or, with a ``new``
    goal, may have, by a look that is not known any more): by its config, which says so from now on,
    it would have another model.
    """
    records, known = experiment.records, experiment.known_looks
    ended = [int(record["round"]) for record in records[:-1] if experiment.ends(record)]
    lost = lost_looks(records, known) if new else []
    if ended and ended[0] < min(lost, default=experiment.t):
        raise UserError(
            f"{folder.path}: by this stop the run would have ended with round {ended[0]}; "
            f"{experiment.t} rounds have been done, and none is taken back"
        )
    if lost:
        raise UserError(
            f"{folder.path}: whether the run would have ended by this stop cannot be said: of "
            f"several looks within round {lost[0]} only the last is known; a budget can be added "
            "(stop.round, stop.steps_total)"
        )


def _note_of_looks(experiment: Experiment, stop: Mapping[str, Any]) -> None:
    """Note that the last round was not looked at to its end, where a goal of then was met in it,
    and the run goes on.
    """
    last = experiment.records[-1] if experiment.records else None
    if last is not None and not experiment.finished and is_over(last, stop):
        experiment.alarm.note(
            f"round {experiment.t}: looked at up to step {last['evaluated_steps']:g} alone, which "
            "met the stop of then; a run without it has later looks"
        )


def _require_none_taken_back(experiment: Experiment, folder: RunFolder) -> None:
    """Raise UserError if there are results of more rounds than are to be done now, which may be
    after the last checkpoint; or a checkpoint of more, be it damaged.
    """
    _require_no_fewer(checkpoint.newest(folder.checkpoints), experiment, folder)
    try:
        ended = folder.ending() if folder.holds(RESULT) else None
    except UserError:  # damaged, and soon written anew
        return
    if ended is not None and ended["status"] != "failed":
        _require_no_fewer(ended.get("rounds", 0), experiment, folder)


def _require_no_fewer(done: int, experiment: Experiment, folder: RunFolder) -> None:
    if done > experiment.config.rounds:
        raise UserError(
            f"{folder.path}: {done} rounds have been done, and none is taken back; rounds is "
            f"{experiment.config.rounds}"
        )


def exchange(experiment: Experiment, folder: RunFolder) -> None:
    """Keep the plugins with which the run goes on, where these are others, and note it: the results
    say so, too.
    """
    others = _exchanged(experiment, folder)
    if not others:
        return
    if experiment.finished:
        raise UserError(
            f"{folder.path}: the run is finished, and nothing of it would be by another plugin "
            f"{next(iter(others))}; --resume it without --plugin"
        )
    for name, (before, now) in others.items():
        experiment.alarm.note(
            f"plugin {name} is another one from round {experiment.t + 1} on: it had the SHA-256 "
            f"{before[:12]}, and now has {now[:12]}"
        )
    # the note is in a checkpoint before anything says that the run goes on with others
    folder.save(experiment.t, experiment.state(), experiment.config.checkpoint.keep)


def _exchanged(experiment: Experiment, folder: RunFolder) -> dict[str, tuple[str, str]]:
    """Plugins that are others than those of the run there: name -> digests, before and now."""
    before = folder.plugins()
    now = {plugin.name: plugin.sha256 for plugin in experiment.config.plugins}
    return {
        name: (before.get(name, ""), sha256)
        for name, sha256 in now.items()
        if before.get(name) != sha256
    }
