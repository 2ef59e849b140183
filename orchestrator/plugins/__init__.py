"""Modules of a user's own, whose parts a config can name like built-in ones."""

# who can read a message of ours is to find the plugins whose objects are in it
from orchestrator.plugins import sources

__all__ = ["sources"]
