"""Data of a user's own: tables, arrays, folders of images, whatever two libraries can load; and who
has which rows of any data.
"""

from orchestrator.data.own import arrays, given, images, libraries, partition, tables

__all__ = ["arrays", "given", "images", "libraries", "partition", "tables"]
