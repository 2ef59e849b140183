"""TensorBoard, as what a run may be recorded for."""

from __future__ import annotations

from orchestrator.tracking.tracker import Log, Tracked, Tracker


class TensorBoard(Tracker):
    """Events in the run's folder, for TensorBoard to show."""

    name: str = "tensorboard"

    def begin(self, run: Tracked) -> Log:
        from orchestrator.tracking.board import Board

        return Board(run)
