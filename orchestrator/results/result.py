"""The document that a run leaves as result.json."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class Result(TypedDict):
    """How a run ended, and what proves it. One that failed before its first round has only name,
    status and error.
    """

    name: str
    status: Literal["finished", "stopped", "failed"]
    rounds: int
    """Rounds done."""
    metrics: dict[str, float]
    """Of the last round, but for its bytes and seconds."""
    bytes_up: int
    bytes_down: int
    joules: float
    """Of all clients, by the config's energy model."""
    seconds: float
    """Of all rounds."""
    seed: int
    weights_sha256: str
    """Digest of the server's model and batch-norm statistics."""
    state_sha256: str
    """Digest of the whole server state and every client's."""
    actors: int
    actors_replaced: int
    versions: dict[str, str]
    git_commit: str | None
    diverged: NotRequired[bool]
    """Whether the model that the run ended with, or its loss, is NaN or infinite."""
    notes: NotRequired[list[str]]
    """What was told of numbers that were none, each once."""
    error: NotRequired[str]
    """Why the run could not go on, where it failed."""
