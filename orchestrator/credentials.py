"""Credentials: what looks like one is taken in no address, and is never said again."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

QUERY = re.compile(
    r"(?i)([?&;#](?:[^=&;#]*(?:secret|token|passw|pwd|signature|credential|(?:access|api|account)[-_.]?key)"
    r"[^=&;#]*|sig|key|auth|sas|pass)=)[^&;#]*"
)
"""A part of an address's query with a name such as ``secret_key`` or ``X-Amz-Signature``."""
VARIABLE = re.compile(
    r"(?:^|_)(?:SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?|APIKEY|API_KEY|ACCESS_KEY)(?:_|$)"
)
"""Names of environment variables whose values are nobody's business."""
PORT = re.compile(r"(?:[^/@:]+|\[[^\]]*\]):\d+/")
"""Begins an address with a port: a colon that is no password's."""
MARK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/{1,3}")
"""Begins an address, or what a path has made of one: ``s3:/bucket``."""
BARE = re.compile(r"(?<![^\s'\"<>`])[^\s:@/'\"<>`]+:(?!/|\d+/)[^\s@]+@(?=[\w\[])")
"""A user and a password before a host that nothing tells from a word: ``me:secret@host:6379``."""
GAPS = re.compile(r"([\s'\"<>`]+)")
HIDDEN = "***"
LEAST = 8
"""Characters of a variable's value that may be a secret; a shorter one is a word like ``false``."""


def discreet(text: str) -> str:
    """``text`` without the credentials in its addresses, and without those of the environment."""
    for secret in _of_environment():
        text = text.replace(secret, HIDDEN)
    if ":/" in text:
        text = "".join(_masked(piece) for piece in GAPS.split(text))
    return QUERY.sub(rf"\1{HIDDEN}", BARE.sub(f"{HIDDEN}@", text))


def has_credentials(address: str) -> bool:
    """Whether an address holds a password, or a query that looks like a secret."""
    return any(_plain(form) != form for form in (address, unquote(address)))


def _masked(piece: str) -> str:
    masked = _plain(piece)
    # written as %3A and the like: nothing of it can be trusted
    if masked == piece and has_credentials(piece):
        return f"{piece.partition(':/')[0]}://{HIDDEN}"
    return masked


def _plain(address: str) -> str:
    mark = MARK.search(address)
    if mark is None:
        return address
    before, rest = address[: mark.end()], address[mark.end() :]
    # up to the last @, for a secret key may hold slashes
    user, at, host = rest.rpartition("@")
    if at and ":" in user and not PORT.match(user):
        rest = f"{HIDDEN}@{host}"
    return before + QUERY.sub(rf"\1{HIDDEN}", rest)


def _of_environment() -> list[str]:
    """Values of secret variables, longest first; one that is the path of a file is none."""
    found = {
        value
        for name, value in os.environ.items()
        if len(value) >= LEAST and VARIABLE.search(name.upper()) and not os.path.exists(value)
    }
    return sorted(found, key=len, reverse=True)
