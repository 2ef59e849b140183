"""Where results may lie: a folder's path, or the URI of a storage."""

from __future__ import annotations


def is_remote(place: str) -> bool:
    """Whether ``place`` is a URI and not a path."""
    return "://" in place


def join(place: str, *names: str) -> str:
    """A path, or a URI (whose options stay at its end), below ``place``."""
    base, mark, options = place.partition("?") if is_remote(place) else (place, "", "")
    return "/".join([base.rstrip("/"), *names]) + mark + options
