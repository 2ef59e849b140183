"""TensorBoard events: one scalar per metric and round."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


class Board:
    """Writes a run's records; after a resume, later steps of the killed run are purged."""

    def __init__(self, folder: Path, done: int) -> None:
        self.writer = SummaryWriter(str(folder), purge_step=done + 1 if done else None)

    def add(self, record: dict[str, float]) -> None:
        """Add one round's record."""
        for name, value in record.items():
            if name != "round":
                # TensorBoard groups by what precedes a slash: test/accuracy, test/loss
                self.writer.add_scalar(name.replace("_", "/", 1), value, int(record["round"]))

    def close(self) -> None:
        self.writer.close()
