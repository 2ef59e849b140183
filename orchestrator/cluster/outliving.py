"""A Ray that dies while a run on it is being stopped."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.terminal import told

GONE = 3
"""Looks, a second apart, at which nobody answers where Ray's head is."""


@contextmanager
def outlived(how: str, code: int) -> Iterator[threading.Event]:
    """Once the event that is yielded is set, a Ray that dies ends this process with a sentence,
    which says ``how`` to go on, and the exit ``code``: who ends all processes of a group (timeout,
    scancel) ends Ray, too, whose own client would wait for it for a minute and abort.
    """
    import ray

    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    stopping, over = threading.Event(), threading.Event()

    def watch() -> None:
        stopping.wait()
        missed = 0
        while not over.wait(1.0) and missed < GONE:
            try:
                socket.create_connection((host.strip("[]"), int(port)), 2.0).close()
                missed = 0
            except OSError:
                missed += 1
        if not over.is_set():
            told("fedorch", f"stopped: Ray has ended with it; from the last checkpoint: {how}")
            os._exit(code)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield stopping
    finally:
        over.set()
        stopping.set()
