"""Errors that a user can act on: one sentence each, exit code 2."""

from __future__ import annotations

LONGEST = 1000
"""Most characters of a message."""


class UserError(Exception):
    """Something that the user gave is wrong: a config, data, a checkpoint, a folder, a cluster."""

    def __str__(self) -> str:
        """The sentence; its middle is left out where it repeats more than anyone would read."""
        text = super().__str__()
        left = LONGEST - 5
        return text if len(text) <= LONGEST else f"{text[: left - 300]} ... {text[-300:]}"


class Diverged(UserError):
    """An update, a loss or what the server made of them is NaN or infinite, and the run's policy is
    to fail, or there is nothing to go on with.
    """
