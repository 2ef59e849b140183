"""Data of a user's own: tables, arrays, folders of images, whatever two libraries can load; and who
has which rows of any data.
"""

from orchestrator.data.own import arrays, images, libraries, partition, tables

__all__ = ["arrays", "images", "libraries", "partition", "tables"]
