"""Data of a user's own: tables, arrays, folders of images, and whatever two libraries can load."""

from orchestrator.data.own import arrays, images, libraries, tables

__all__ = ["arrays", "images", "libraries", "tables"]
