"""Errors that a user can act on: one sentence each, exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user gave is wrong: a config, data, a checkpoint, a folder, a cluster."""


class Diverged(UserError):
    """An update, a loss or what the server made of them is NaN or infinite, and the run's policy is
    to fail, or there is nothing to go on with.
    """
