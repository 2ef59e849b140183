"""Who can be reached: whether a cluster answers at an address, and who else can reach it."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.cluster.waiting import patience, unanswered, within
from orchestrator.errors import UserError

if TYPE_CHECKING:
    import grpc

CLIENT_PORT = 10001
"""Of Ray's client server, which ``ray://HOST`` names without it."""
ADDRESS = re.compile(
    r"(?P<client>ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?"
)
PLAIN = re.compile(r"[\w.:/-]{0,100}")
OF_JOBS = "; http:// is a dashboard's, which submit, logs and stop take"
NAMED = 3
"""Addresses that a note names; a cluster may have thousands."""


class Stranger(Exception):
    """Somebody answered, and not as a cluster that knows us."""


def reachable(address: str) -> tuple[str, bool]:
    """Make sure that somebody who speaks Ray's protocol answers at ``address``, within our
    patience: Ray itself tries for minutes, prints what it tries, and hears no signal meanwhile.

    Returns the address with its port, and whether it answers on this machine's loopback device
    only. Raises UserError with what was found instead.
    """
    host, port = _endpoint(address)
    _, alone = _answering(address, host, port)
    client = address.startswith("ray://")
    # without a port Ray asks others before it takes the usual one
    return address if not client or address.endswith(f":{port}") else f"{address}:{port}", alone


def cluster_at(address: str) -> tuple[str, int]:
    """Host and port of the cluster at ``address`` (auto, HOST:PORT), which answers; raises
    UserError as :func:`reachable`.
    """
    host, port = _endpoint(address)
    found, _ = _answering(address, host, port)
    return found, port


def _answering(address: str, host: str, port: int) -> tuple[str, bool]:
    seconds, client = patience(), address.startswith("ray://")
    try:
        found, alone = within(seconds, lambda: _listener(host, port))
        within(seconds, lambda: _require_ray(found, port, client, seconds))
    except Stranger as error:
        raise UserError(f"--address {address}: {error}") from error
    except TimeoutError as error:
        raise UserError(
            f"--address {address}: no Ray cluster at {host}:{port}: {error}; is it up, and can "
            "this machine reach it?"
        ) from error
    except OSError as error:
        raise UserError(
            f"--address {address}: nobody listens at {host}:{port} ({error.strerror or error}); "
            "start a cluster there, or name another address"
        ) from error
    return found, alone


@contextmanager
def loopback_only() -> Iterator[None]:
    """What Ray starts, or reaches, meanwhile is on the loopback device.

    Ray replaces 127.0.0.1 by the machine's address in the network, wherever it is given, unless
    it thinks that it is on a machine that can only be a cluster of its own, as it does on macOS.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def exposure(addresses: set[str], token: bool) -> str | None:
    """What is to be said of a cluster whose nodes have these addresses; None if only this machine
    reaches them.
    """
    open_to = sorted(one for one in addresses if not _loops(one))
    if not open_to:
        return None
    more = f" and {len(open_to) - NAMED} more" if len(open_to) > NAMED else ""
    where = f"this cluster listens on {', '.join(open_to[:NAMED])}{more}"
    if token:
        return f"{where}; it asks for a token, but its metrics can be read without one"
    return f"{where} without a token: whoever reaches it there can run code on it (SECURITY.md)"


def _endpoint(address: str) -> tuple[str, int]:
    """Host and port; raises UserError for an address that names none, or (``auto``) if this machine
    has no cluster.
    """
    known = address if address != "auto" else _found_here()
    found = ADDRESS.fullmatch(known)
    port = 0
    if found is not None:
        port = int(found["port"] or (CLIENT_PORT if found["client"] else 0))
    if found is None or not 0 < port < 65_536:
        where = "--address" if address != "auto" else "--address auto, which RAY_ADDRESS names"
        # what is more than a host and a port may be a password
        said = f" {known}" if PLAIN.fullmatch(known) else ""
        raise UserError(
            f"{where}{said}: an address is local, auto, HOST:PORT or ray://HOST:PORT, and no more"
            f"{OF_JOBS if known.startswith('http') else ''}"
        )
    return found["host"].strip("[]"), port


def _found_here() -> str:
    from ray._private.services import get_ray_address_from_environment

    try:
        return str(get_ray_address_from_environment("auto", None))
    except (ConnectionError, OSError) as error:
        raise UserError(
            "--address auto: no Ray cluster runs on this machine, and RAY_ADDRESS names none; "
            "start one (ray start --head), or name its address"
        ) from error


def _listener(host: str, port: int) -> tuple[str, bool]:
    """The address at which somebody listens, as Ray will look for it, and whether it is loopback's
    only; raises OSError if nobody does.
    """
    if not _loops(host):
        socket.create_connection((host, port)).close()
        return host, False
    # Ray takes the machine's own address for loopback's; a cluster that is on loopback only is
    # there for those who do not
    try:
        own = _own_address()
        socket.create_connection((own, port)).close()
        return own, False
    except OSError:
        socket.create_connection((host, port)).close()
        return host, True


def _own_address() -> str:
    """This machine's in the network, found as Ray finds it: nothing is sent. Raises OSError if it
    has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("8.8.8.8", 53))
        return str(probe.getsockname()[0])


def _require_ray(host: str, port: int, client: bool, seconds: float) -> None:
    """Raises TimeoutError if whoever listens there says nothing, and Stranger for an answer that no
    cluster gives, or that one gives to strangers.
    """
    import grpc
    from ray._private.grpc_utils import init_grpc_channel

    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = init_grpc_channel(there)
    try:
        grpc.channel_ready_future(channel).result(timeout=seconds)
        (_ping_client if client else _ping_gcs)(channel, seconds)
    except grpc.FutureTimeoutError as error:
        raise unanswered(seconds) from error
    except grpc.RpcError as error:
        code = error.code()
        if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise unanswered(seconds) from error
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise Stranger(refused()) from error
        # a proxy of the client server knows the ping only from those who are connected
        if not client or code == grpc.StatusCode.UNIMPLEMENTED:
            raise Stranger("what listens there is no Ray cluster") from error
    finally:
        channel.close()


def refused() -> str:
    """What a cluster says to who has no token, or another."""
    unset = os.environ.get("RAY_AUTH_MODE") != "token"
    what = "a token, and RAY_AUTH_MODE=token is not set here" if unset else "another token"
    return f"the cluster there asks for {what} (docs/cluster.md)"


def _ping_gcs(channel: grpc.Channel, seconds: float) -> None:
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    messages: Any = gcs_service_pb2  # whose classes are made as it is imported
    asked = messages.GetClusterIdRequest()
    gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel).GetClusterId(asked, timeout=seconds)


def _ping_client(channel: grpc.Channel, seconds: float) -> None:
    from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc

    messages: Any = ray_client_pb2
    asked = messages.ClusterInfoRequest(type=messages.ClusterInfoType.PING)
    ray_client_pb2_grpc.RayletDriverStub(channel).ClusterInfo(asked, timeout=seconds)


def _loops(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"
