"""MLflow and Weights & Biases: each by its own client, with its own offline modes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import JsonValue, field_validator

from algorithms.part import option
from orchestrator.credentials import has_credentials
from orchestrator.errors import UserError
from orchestrator.tracking.tracker import Log, Tracked, Tracker

VALUE = 500
"""Characters of an option's value that every version of MLflow takes."""
BATCH = 100
"""Options that it takes at once."""


class MLflow(Tracker):
    """An MLflow run: options, metrics by round, and the run's files. Needs `mlflow`."""

    name: str = "mlflow"
    remote: ClassVar[bool] = True
    experiment: str = option("fedorch", "MLflow's experiment, in which the run is", min_length=1)
    uri: str = option(
        "",
        "of the tracking server; unset: MLFLOW_TRACKING_URI, else mlflow.db beside the run's "
        "folder",
    )

    @field_validator("uri")
    @classmethod
    def _no_password(cls, uri: str) -> str:
        if has_credentials(uri):
            raise ValueError("holds credentials, which a config keeps; set MLFLOW_TRACKING_URI")
        return uri

    def begin(self, run: Tracked) -> Log:
        """Go on with the MLflow run of before, or make one."""
        client = _imported("mlflow", "mlflow").MlflowClient
        beside = f"sqlite:///{run.folder.parent / 'mlflow.db'}"
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        # the library's own place for files is the folder that the command was called in
        files = None if uri else (run.folder.parent / "mlflow-files").as_uri()
        return Ml(client(tracking_uri=uri or beside), self.experiment, files, run)


class Ml(Log):
    """An MLflow run. Rounds that are done again after a resume are there twice, with one value."""

    def __init__(self, client: Any, experiment: str, files: str | None, run: Tracked) -> None:
        self.client = client
        if run.known and run.done:
            self.known = run.known
            client.update_run(self.known, status="RUNNING")
            return
        there = client.get_experiment_by_name(experiment)
        place = (
            there.experiment_id
            if there
            else client.create_experiment(experiment, artifact_location=files)
        )
        self.known = client.create_run(place, run_name=run.name).info.run_id
        entities = _imported("mlflow.entities", "mlflow")
        options = [entities.Param(key, str(value)[:VALUE]) for key, value in _flat(run.config)]
        for start in range(0, len(options), BATCH):
            client.log_batch(self.known, params=options[start : start + BATCH])

    def add(self, record: Mapping[str, float]) -> None:
        for name, value in record.items():
            if name != "round":
                self.client.log_metric(self.known, name, float(value), step=int(record["round"]))

    def end(self, ending: Mapping[str, object], files: Sequence[Path]) -> None:
        for path in files:
            self.client.log_artifact(self.known, str(path))
        status = {"finished": "FINISHED", "stopped": "KILLED"}.get(str(ending["status"]), "FAILED")
        self.client.set_terminated(self.known, status)


class WandB(Tracker):
    """A run of Weights & Biases: options, metrics by round, and the run's files. Needs `wandb`."""

    name: str = "wandb"
    remote: ClassVar[bool] = True
    project: str = option("fedorch", "of Weights & Biases, in which the run is", min_length=1)
    mode: Literal["online", "offline"] | None = option(
        None, "offline: files in the run's folder, for `wandb sync`; unset: WANDB_MODE, else online"
    )

    def begin(self, run: Tracked) -> Log:
        """Go on with the run of before, or make one."""
        wandb = _imported("wandb", "wandb")
        made = wandb.init(
            project=self.project,
            name=run.name,
            id=run.known if run.known and run.done else None,
            resume="allow",
            reinit="create_new",
            dir=run.folder,
            mode=self.mode,
            config=dict(run.config),
            # its links would be in a folder that is mirrored, and its output in our table
            settings=wandb.Settings(silent=True, symlink=False, console="off"),
        )
        return Wb(wandb, made, run)


class Wb(Log):
    """A run of Weights & Biases, which takes no round twice."""

    def __init__(self, wandb: Any, made: Any, run: Tracked) -> None:
        self.wandb, self.made, self.name = wandb, made, run.name
        self.known = made.id

    def add(self, record: Mapping[str, float]) -> None:
        self.made.log({k: v for k, v in record.items() if k != "round"}, step=int(record["round"]))

    def end(self, ending: Mapping[str, object], files: Sequence[Path]) -> None:
        artifact = self.wandb.Artifact(f"{self.name}-{self.known}", type="run")
        for path in files:
            artifact.add_file(str(path))
        self.made.log_artifact(artifact)
        self.made.finish(exit_code=int(ending["status"] == "failed"))


def _imported(module: str, package: str) -> Any:
    """A library that need not be installed; raises UserError if it is not."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"needs the package {package}: pip install {package}") from error


def _flat(config: Mapping[str, JsonValue], above: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Options by dotted key."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
