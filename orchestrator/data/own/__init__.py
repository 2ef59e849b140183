"""Data of a user's own: tables, arrays, folders of images, LEAF's folders, whatever two libraries
can load; and who has which rows of any data.
"""

from orchestrator.data.own import arrays, given, images, leaf, libraries, partition, tables

__all__ = ["arrays", "given", "images", "leaf", "libraries", "partition", "tables"]
