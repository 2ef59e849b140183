"""``fedorch report RUN --live``: the page of a run under way, for a browser on this machine."""

from __future__ import annotations

import html
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.errors import UserError
from orchestrator.pages.report import page_so_far, report_of
from orchestrator.results import checkpoint, locks
from orchestrator.results.contents import LOCK, RESULT
from orchestrator.results.places import is_remote
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

HERE = "127.0.0.1"
"""Who can listen: this machine only."""
EVERY = 5
"""Seconds after which a browser asks again."""


class LivePage:
    """What there is to show now: of the newest checkpoint, or of a run that has ended."""

    def __init__(self, place: str) -> None:
        """Raises UserError if there is no run, and none that begins."""
        self.place = place
        self.round, self.text = -1, ""
        self._one_at_a_time = threading.Lock()
        # a run claims its folder first, and writes what it is when its data are loaded
        if not (Path(place) / LOCK).is_file():
            RunFolder.viewed(place)

    def now(self) -> str:
        """The page, which asks for the next one by itself until the run has ended."""
        try:
            # browsers ask from threads of their own: no page is made twice, and no library is
            # imported by one (at its first use) that another has a part of
            with self._one_at_a_time:
                return self._now()
        except UserError as error:
            return _again(f"<!DOCTYPE html><title>fedorch</title><p>{html.escape(str(error))}</p>")

    def _now(self) -> str:
        folder = RunFolder.existing(self.place)
        # one that goes on after a stop has the old results until it ends
        if folder.holds(RESULT) and not locks.is_held(folder.path / LOCK):
            return report_of(folder, folder.config())
        newest = checkpoint.newest(folder.checkpoints)
        if newest == 0:
            raise UserError(
                f"{self.place}: nothing to show yet; the page is renewed with every checkpoint "
                "(checkpoint.every)"
            )
        if newest != self.round:
            state = _newest_state(folder)
            tables = [pd.DataFrame(rows) for rows in state["client_rows"]]
            clients = pd.concat(tables) if tables else pd.DataFrame()
            text = page_so_far(folder.config(), pd.DataFrame(state["records"]), clients)
            self.round, self.text = newest, _again(text)
        return self.text


def _newest_state(folder: RunFolder) -> dict[str, Any]:
    """Of the run that goes on meanwhile, which may take away a checkpoint that is being read."""
    there = checkpoint.newest(folder.checkpoints)
    try:
        return checkpoint.load_latest(folder.checkpoints)[1]
    except UserError:
        if checkpoint.newest(folder.checkpoints) == there:
            raise
        return _newest_state(folder)


def _again(page: str) -> str:
    """The page with the wish to be asked for again."""
    return page.replace("<title>", f'<meta http-equiv="refresh" content="{EVERY}"><title>', 1)


def serve(place: str, port: int) -> None:
    """Answer browsers on this machine until Ctrl-C. Raises UserError for a place in storage, or a
    port that is taken.
    """
    if is_remote(place):
        raise UserError("report --live: a run is shown where it runs; name its folder there")
    with answering(LivePage(place), port) as server:
        where = f"http://{HERE}:{server.server_address[1]}"
        console.print(f"{where} shows {place}; Ctrl-C ends it", soft_wrap=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


def answering(page: LivePage, port: int) -> ThreadingHTTPServer:
    """A server of the page, whatever it is asked for; raises UserError if it cannot listen."""

    class Answer(BaseHTTPRequestHandler):
        """A request of a browser."""

        def do_GET(self) -> None:
            # a page elsewhere may call this machine by a name of its own
            host = re.sub(r":\d+$", "", self.headers.get("Host", HERE))
            if host not in (HERE, "localhost"):
                self.send_error(403)
                return
            content = page.now().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *about: object) -> None:
            """Nothing is printed of requests."""

    class Server(ThreadingHTTPServer):
        """Which minds no browser that goes away."""

        def handle_error(self, request: object, client_address: object) -> None:
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)  # type: ignore[arg-type]

    try:
        return Server((HERE, port), Answer)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}") from error
