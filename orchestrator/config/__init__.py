"""What a config says: its schema, how it is read, and how what it leaves open is settled."""

from orchestrator.config.reading import build, load
from orchestrator.config.schema import UNNAMED, Config

__all__ = ["UNNAMED", "Config", "build", "load"]
