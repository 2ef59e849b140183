"""What papers share: samplers, aggregators, optimisers, round ends, attacks, selection, graphs."""

from algorithms.parts import robust

__all__ = ["robust"]
