"""Runs federated experiments on Ray; knows nothing of any one algorithm."""

# who can read a message of ours is to find the plugins whose objects are in it
from orchestrator import plugins

__all__ = ["plugins"]
