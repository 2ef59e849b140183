"""Local training and evaluation: the same code in an actor and in the driver's process."""

from orchestrator.training import own

__all__ = ["own"]
