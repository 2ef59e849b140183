"""The document that a run leaves as result.json."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import BeforeValidator

# pydantic reads the standard library's only from Python 3.12 on
from typing_extensions import TypedDict

from orchestrator.files import read_json
from orchestrator.results.contents import RESULT
from orchestrator.results.manifest import verify

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""JSON has null for what is no number."""


class Ending(TypedDict):
    """How a run ended: all that there is of one that failed before its first round."""

    status: Literal["finished", "stopped", "failed"]
    rounds: NotRequired[int]
    """Rounds done."""
    error: NotRequired[str]
    """Why the run could not go on, where it failed."""
    unreported: NotRequired[bool]
    """Whether all that a sweep's trial failed in is that it does not report the sweep's metric."""
    diverged: NotRequired[bool]
    """Whether the model that the run ended with, or its loss, is NaN or infinite; or it failed by
    that."""


class Result(Ending):
    """How a run ended that could begin, and what proves it."""

    name: str
    metrics: dict[str, Number]
    """Of the last round, but for its bytes and seconds."""
    bytes_up: int
    bytes_down: int
    joules: Number
    """Of all clients, by the config's energy model."""
    seconds: Number
    """Of all rounds."""
    seed: int
    data_sha256: NotRequired[str]
    """Digest of the samples, and of who holds which rows."""
    samples_sha256: NotRequired[str]
    """Of data that are the same for every seed."""
    rows_sha256: NotRequired[dict[str, str]]
    """Digests of the rows that models are judged by: test, validation, heldout, and of each client
    its own (client, client_validation)."""
    initial_sha256: NotRequired[str]
    """Digest of the model's initial tensors, trained or not."""
    frozen_sha256: NotRequired[str]
    """Digest of what the network holds that nobody trains, where there is such."""
    code_sha256: NotRequired[str]
    """Digest of the code of parts that are in no package and no plugin."""
    imports_sha256: NotRequired[str]
    """Digest of the files that plugins import, as far as nobody has installed them."""
    files_sha256: NotRequired[str]
    """Digest of other files that the config names: partitions, policies, weights."""
    weights_sha256: str
    """Digest of the server's model and batch-norm statistics."""
    state_sha256: str
    """Digest of the whole server state and every client's."""
    parameters: NotRequired[int]
    """Numbers of the model that are trained, without batch-norm statistics."""
    actors: int
    actors_replaced: int
    versions: dict[str, str]
    plugins: NotRequired[dict[str, str]]
    """Modules of the user's own that the config names, and their SHA-256."""
    git_commit: str | None
    taken_from: NotRequired[str]
    """The folder of another sweep's trial, of the same work, whose results these are."""
    account: NotRequired[list[str]]
    """What the run's parts say that they did."""
    notes: NotRequired[list[str]]
    """What was told of numbers that were none, each once."""


def ending(folder: Path) -> Ending:
    """How the run there has ended; raises UserError if it has not, or result.json is damaged."""
    return read_json(verify(folder, RESULT), Ending)
