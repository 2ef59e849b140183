"""Where a run's numbers go beside its own folder: TensorBoard, files, services, one's own."""

from orchestrator.tracking.services import MLflow, WandB
from orchestrator.tracking.tables import Csv, JsonLines
from orchestrator.tracking.tensorboard import TensorBoard
from orchestrator.tracking.tracker import Log, Tracked, Tracker

__all__ = ["Csv", "JsonLines", "Log", "MLflow", "TensorBoard", "Tracked", "Tracker", "WandB"]
