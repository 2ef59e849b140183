"""Errors that a user can act on: one sentence each, exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user gave is wrong: a config, data, a checkpoint, a folder, a cluster."""


class Diverged(UserError):
    """A client's update holds NaN or infinity and the policy is to fail."""
