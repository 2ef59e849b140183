"""Runs and sweeps as Ray jobs, which go on when the terminal is closed: submit, follow, stop."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cluster.connection import authenticate, connected
from orchestrator.cluster.reach import cluster_at, refused
from orchestrator.cluster.waiting import patience, within
from orchestrator.config import load
from orchestrator.config.reading import YAML, read_whole, with_plugins
from orchestrator.errors import UserError, refuse_credentials
from orchestrator.files import write_text
from orchestrator.plugins.plugin import Plugin, source
from orchestrator.plugins.sources import OURS
from orchestrator.terminal import told

RESULTS = "~/fedorch"
"""Where results go on the cluster unless told otherwise: a folder of the head node's user."""
DASHBOARD = "http://127.0.0.1:8265"
AGENT_WITHIN = 120.0
"""Seconds that a node is waited for which takes the job."""
NO_AGENT = (
    "no node of the cluster takes jobs: where another Ray runs on a node's machine (that of a run "
    "or sweep, too), it has the port 52365; start the node again with "
    "--dashboard-agent-listen-port=52400, or another free port"
)
ENDS_WITHIN = 60.0
"""Seconds that a job which was told to stop has to end its round; then it is killed."""
STARTS = "python -m sweeps.cli "
"""What a job's command begins with."""
HEARD = logging.getLogger("ray.dashboard.modules.job.sdk")
"""Who tells of a connection's end as of news."""


def submit(address: str | None, words: Sequence[str], name: str) -> str:
    """Start ``fedorch`` with ``words`` (run or sweep, and options) as a job; returns its id.

    The job has this installation's own code and the config files that ``words`` name. Raises
    UserError if there is no cluster at ``address``, the words cannot be a job, or ``name`` is
    taken.
    """
    words = _separate(words)
    _check(words)
    _read(words)
    with _client(address) as client, tempfile.TemporaryDirectory() as place:
        command = _carry(words, Path(place))
        if any(job.submission_id == name for job in within(patience(), client.list_jobs)):
            raise UserError(f"--id {name}: the cluster has a job of that id; choose another")
        if (goes_to := results(words, name)) is not None:
            command += f" --out {shlex.quote(goes_to)}"
        environment = {
            "working_dir": place,
            # the code that submits, whatever is installed there
            "py_modules": [str(_folder(package)) for package in OURS],
            # else a log that is followed comes in blocks
            "env_vars": {
                "PYTHONUNBUFFERED": "1",
                # Ray kills a job that is stopped after three seconds: its last rounds were lost
                "RAY_JOB_STOP_WAIT_TIME_S": f"{ENDS_WITHIN:.0f}",
            },
        }
        entrypoint = f"{STARTS}{command} --address auto"
        return _submitted(
            client, entrypoint=entrypoint, submission_id=name, runtime_env=environment
        )


def results(words: Sequence[str], name: str) -> str | None:
    """Where the job's results go on the head node; None where its ``words`` say so themselves."""
    words = _separate(words)
    told_so = "--out" in words or (words[0] == "run" and "--resume" in words)
    return None if told_so else f"{RESULTS}/{name}"


def _submitted(client: Any, **job: Any) -> str:
    """Its id. A node that has just come up, or has much to do, may have no agent for jobs yet."""
    deadline = time.monotonic() + AGENT_WITHIN
    waits = False
    while True:
        try:
            return str(client.submit_job(**job))
        except RuntimeError as error:
            if "No available agent" not in str(error):
                raise
            if time.monotonic() > deadline:
                raise UserError(NO_AGENT) from error
        if not waits:
            told("note", "no node of the cluster takes jobs yet; waiting for one")
        waits = True
        time.sleep(1)


def listed(address: str | None) -> list[dict[str, str]]:
    """The cluster's jobs, the newest first: id, status, started (local time), command."""
    with _client(address) as client:
        jobs = within(patience(), client.list_jobs)
    found = sorted(
        (job for job in jobs if job.submission_id), key=lambda job: -(job.start_time or 0)
    )
    return [
        {
            "id": job.submission_id,
            "status": str(job.status).lower(),
            "started": time.strftime("%F %T", time.localtime((job.start_time or 0) / 1000)),
            "command": job.entrypoint.removeprefix(STARTS),
        }
        for job in found
    ]


def logs(address: str | None, name: str, follow: bool) -> Iterator[str]:
    """What the job has printed; with ``follow``, until it ends.

    Raises UserError if there is no such job.
    """
    with _client(address) as client:
        _status(client, name)  # which says if there is none
        if not follow:
            yield within(patience(), lambda: client.get_job_logs(name))
            return
        HEARD.setLevel(logging.WARNING)
        tail = client.tail_job_logs(name)
        # an asynchronous generator, whose pieces are wanted one by one as they come
        with asyncio.Runner() as runner:
            while True:
                try:
                    yield runner.run(anext(tail))
                except StopAsyncIteration:
                    return


def stop(address: str | None, name: str) -> tuple[str, str]:
    """End the job and wait for it; returns its last status, and the command that goes on with it.
    Raises UserError if there is none.
    """
    with _client(address) as client:
        _status(client, name)
        job = within(patience(), lambda: client.get_job_info(name))
        how = _going_on(job.entrypoint, address)
        within(patience(), lambda: client.stop_job(name))
        deadline = time.monotonic() + ENDS_WITHIN + patience()
        while not _status(client, name).is_terminal() and time.monotonic() < deadline:
            time.sleep(0.5)
        return str(_status(client, name)), how


def _going_on(entrypoint: str, address: str | None) -> str:
    """The command that submits what continues a job, from the job's own, to the cluster that was
    named; "" of a job that is not ours.
    """
    if not entrypoint.startswith(STARTS):
        return ""
    words = _separate(shlex.split(entrypoint.removeprefix(STARTS).removesuffix(" --address auto")))
    if words[0] == "run":
        places = (value for word, value in pairwise(words) if word in ("--out", "--resume"))
        words = ["run", "--resume", next(places, "")]
    elif "--resume" not in words:
        words.append("--resume")
    where = [] if address is None else ["--address", address]
    return shlex.join(["fedorch", "submit", *where, *words])


def _status(client: Any, name: str) -> Any:
    """Ray's word for how the job is doing; raises UserError if there is none of that id."""
    try:
        return within(patience(), lambda: client.get_job_status(name))
    except RuntimeError as error:
        if "404" not in str(error):
            raise
        raise UserError(f"the cluster has no job {name!r}; `fedorch jobs` lists them") from error


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    """Ray's job client for a dashboard (None: the usual one); its errors become UserErrors.

    Raises UserError if none answers in time.
    """
    address = _dashboard(address)
    authenticate(address)
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    # on import the second one sets its own level: a line for each package that a job takes along
    for module in ("ray", "ray.dashboard.modules.dashboard_sdk"):
        logging.getLogger(module).setLevel(logging.WARNING)
    seconds, there = patience(), address
    try:
        # it asks for the dashboard's version, and has no deadline
        yield within(seconds, lambda: JobSubmissionClient(there))
    except TimeoutError as error:
        raise UserError(
            f"--address {address}: {error}; is the cluster's dashboard up, and can this machine "
            "reach it?"
        ) from error
    except AuthenticationError as error:
        raise UserError(f"--address {address}: {refused()}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"--address {address}: {_first(error)}") from error


def _dashboard(address: str | None) -> str:
    """The URL of the cluster's dashboard, which takes jobs. ``address`` is that, or what the other
    commands take (auto, HOST:PORT, ray://HOST:PORT), or None: RAY_API_SERVER_ADDRESS, RAY_ADDRESS,
    or this machine's. Raises UserError if no cluster answers there, or it has no dashboard.
    """
    address = address or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if not address or address.startswith(("http://", "https://")):
        return address or DASHBOARD
    if address.startswith("ray://"):
        with connected(address) as url:
            return _named(address, url)
    authenticate(address)
    host, port = cluster_at(address)
    from ray._private.ray_constants import KV_NAMESPACE_DASHBOARD
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    found = within(
        patience(),
        lambda: GcsClient(address=there).internal_kv_get(b"webui:url", KV_NAMESPACE_DASHBOARD),
    )
    return _named(address, (found or b"").decode())


def _named(address: str, dashboard: str) -> str:
    if not dashboard:
        raise UserError(
            f"--address {address}: the cluster there runs no dashboard, which takes jobs; start "
            "its head with --include-dashboard=true"
        )
    return dashboard if "://" in dashboard else f"http://{dashboard}"


def _first(error: Exception) -> str:
    """The first line of what an error says; of another machine's traceback the error's own."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "Traceback" not in lines[0]:
        return lines[0]
    # what follows the error's own line is the rest of a sentence, if anything
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (named or lines)[-1]


def _separate(words: Sequence[str]) -> list[str]:
    """``--option=value`` as two words."""
    split = [word.split("=", 1) if word.startswith("--") else [word] for word in words]
    return [piece for pieces in split for piece in pieces]


FLAGS = ("--resume", "--list", "--json", "--time")
"""Options of a sweep behind which no value comes; a run has none that makes sense in a job."""


def _check(words: Sequence[str]) -> None:
    if not words or words[0] not in ("run", "sweep"):
        raise UserError(
            "submit: say what to run, for example: fedorch submit run config.yaml --set rounds=100"
        )
    for word in words:
        # the command is shown on the dashboard, and kept in Ray's logs
        refuse_credentials(word, "submit")
    for word in ("--address", "--num-cpus", "--num-gpus", "--in-process", "--detach"):
        if word in words:
            raise UserError(
                f"submit: {word} makes no sense in a job, which runs on the cluster it is "
                "submitted to"
            )


def _read(words: Sequence[str]) -> None:
    """Raise UserError here, and not in the job's log, for a run whose config is refused."""
    if words[0] != "run" or "--resume" in words:
        return

    def given(option: str) -> list[str]:
        return [value for word, value in pairwise(words) if word == option]

    files = [word for number, word in enumerate(words) if _is_file(words, number)]
    load(Path(files[0]) if files else None, given("--set"), given("--plugin"))


def _is_file(words: Sequence[str], number: int) -> bool:
    """Whether a word names a file to read; an option's value names none: --set name=a.yaml."""
    before = words[max(0, number - 1)]
    valued = before.startswith("--") and before not in FLAGS
    return words[number].endswith(YAML) and not valued


def _carry(words: Sequence[str], place: Path) -> str:
    """The command line, with the files that it names written to ``place`` and named from there."""
    said = []
    for number, word in enumerate(words):
        if _is_file(words, number):
            path = Path(word)
            # the job starts in that folder; files of one name may come from several
            word = f"{number}-{path.name}" if (place / path.name).exists() else path.name
            raw = read_whole(path)
            for config in (raw, raw.get("base")):
                _carry_plugins(config, place)
            write_text(place / word, yaml.safe_dump(raw, sort_keys=False))
        said.append(shlex.quote(word))
    return " ".join(said)


def _carry_plugins(config: Any, place: Path) -> None:
    """Put the files of plugins beside a raw config, and name them from there."""
    if not isinstance(config, dict):
        return
    config |= with_plugins(config)
    named = []
    for plugin in map(Plugin.model_validate, config.get("plugins", ())):
        content = source(plugin)
        named.append(plugin.name if content is None else f"{plugin.name}.py")
        if content is not None:
            write_text(place / f"{plugin.name}.py", content.decode())
    if named:
        config["plugins"] = named


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
