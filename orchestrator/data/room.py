"""What fits into this machine's memory, asked before anything is read or made."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import UserError

CGROUP = Path("/sys/fs/cgroup/memory.max")
"""A container's own limit, where there is one."""


def memory() -> int:
    """Bytes of memory that this process can have at most."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(whole, int(CGROUP.read_text()))
    # no file, or the word "max"
    except (OSError, ValueError):
        return whole


def need(nbytes: float, what: object) -> None:
    """Raise UserError that names ``what`` if ``nbytes`` are more than there is memory.

    Without this an absurd size is a process that the kernel kills, or one that never ends.
    """
    if nbytes > memory():
        raise UserError(
            f"{what}: {nbytes / 2**30:.3g} GiB would be needed, and this machine has "
            f"{memory() / 2**30:.3g} GiB of memory"
        )
