"""Where results may lie: a folder's path, or the URI of a storage."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.errors import UserError

ONE_SLASH = re.compile(r"(file|s3|gs|gcs|hdfs|viewfs|abfss?):/(?!/)")


def is_remote(place: str) -> bool:
    """Whether ``place`` is a URI and not a path; raises UserError for a URI that has lost a slash,
    which would be a folder of such a name.
    """
    if ONE_SLASH.match(place):
        raise UserError(
            f"{place}: a URI has two slashes behind its colon (Path() drops one of them)"
        )
    return "://" in place


def parted(place: str) -> tuple[str, str]:
    """What a path, or a URI (whose options stay at its end), is below, and its own name there."""
    if not is_remote(place):
        return str(Path(place).parent), Path(place).name
    base, mark, options = place.partition("?")
    above, _, name = base.rstrip("/").rpartition("/")
    return above + mark + options, name


def join(place: str, *names: str) -> str:
    """A path, or a URI (whose options stay at its end), below ``place``."""
    base, mark, options = place.partition("?") if is_remote(place) else (place, "", "")
    return "/".join([base.rstrip("/"), *names]) + mark + options
