"""Odd values, words and texts."""

from __future__ import annotations

import datetime
import math
from random import Random
from typing import Any

HUGE = (
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**22,
    10**400,
)
FLOATS = (
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1.0,
    0.5,
    1e-5,
    5e-324,
    1e-45,
    1e30,
    1e38,
    1e39,
    1.7e308,
    -1e30,
    -1e-9,
)
TEXTS = (
    "",
    " ",
    "a",
    "null",
    "[/red]",
    "[bold]x",
    "<script>alert(1)</script>",
    "a\nb",
    "a\tb",
    "\x1b[31mred",
    "\x00",
    "\u202etxet",
    "é" * 3,
    "🙂",
    "\ud800",
    "1e5",
    "0x10",
    "<= 0.1",
    "<= nan",
    "inf",
    ".",
    "..",
    "../x",
    "/",
    "~",
    "(",
    "[",
    "*",
    "(a+)+$",
    "%s%n",
    "{0}",
    "x" * 300,
    "x" * 5_000,
    "2020-13-45",
    "s3://KEY:SECRET@bucket/x",
)


def anything(rng: Random, depth: int = 2) -> Any:
    """A value of any type that YAML has, most of them out of place wherever they come."""
    kind = rng.randrange(9 if depth else 7)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((0, 1, -1, 2, 7, 100, rng.randrange(-5, 1000)))
    if kind == 2:
        return rng.choice(HUGE)
    if kind in (3, 4):
        return rng.choice(FLOATS)
    if kind == 5:
        return rng.choice(TEXTS)
    if kind == 6:
        return rng.choice(
            (datetime.date(2020, 1, 2), datetime.datetime(1, 1, 1), b"\xff\x00", [], {}, ())
        )
    if kind == 7:
        return [anything(rng, depth - 1) for _ in range(rng.choice((1, 2, 3, 50)))]
    return {
        rng.choice(("name", "a", 1, None, 0.5, "x" * 300, "a.b")): anything(rng, depth - 1)
        for _ in range(rng.choice((1, 2)))
    }


def document(rng: Random, keys: list[str]) -> list[str]:
    """Lines of YAML, some of them odd; ``keys`` are dotted or plain keys that mean something."""
    return [odd_line(rng, rng.choice(keys).split(".")[0]) for _ in range(rng.choice((1, 1, 2, 4)))]


def odd_line(rng: Random, key: str) -> str:
    """A line, or some, in one of the ways in which YAML is strange."""
    n = rng.choice((3, 50, 900, 1_100, 5_000, 40_000))
    return rng.choice(
        (
            f"{key}: {'[' * n}{']' * n}",
            f"{key}: {'{a: ' * n}1{'}' * n}",
            f"{key}: {'[' * n}",
            key + ": " + "- " * n + "x",
            "? " * n + "x",
            _bomb(min(n, 60), key),
            f"{key}: &x [*x]",
            f"{key}: &x {{a: *x}}",
            f"{key}: *unknown",
            f"{key}: {'9' * n}",
            f"{key}: -{'9' * n}",
            f"{key}: 0x{'f' * n}",
            f"{key}: 0b{'1' * n}",
            f"{key}: 1{'_0' * n}",
            f"{key}: 1:59:59",
            f"{key}: 190:20:30.15",
            f"{key}: {'1:' * n}1",
            f"{key}: .inf",
            f"{key}: -.INF",
            f"{key}: .nan",
            f"{key}: 1e{n}",
            f"{key}: 1.5e+{n}",
            f"{key}: 2020-13-45",
            f"{key}: 2001-12-14t21:59:43.10-05:00",
            f"{key}: 2001-12-14 21:59:43.10 +99:99",
            f"{key}: 0000-01-01",
            f"{key}: !!timestamp 2020",
            f"{key}: !!int x",
            f"{key}: !!int ''",
            f"{key}: !!float x",
            f"{key}: !!bool maybe",
            f"{key}: !!binary '*'",
            f"{key}: !!binary aGk=",
            f"{key}: !!set {{a, b}}",
            f"{key}: !!omap [a: 1, b: 2]",
            f"{key}: !!omap 3",
            f"{key}: !!pairs [a]",
            f"{key}: !!python/name:os.system",
            f"{key}: !!python/object/apply:os.getpid []",
            f"{key}: !unknown x",
            f"{key}: !!null x",
            f"{key}: !!map []",
            f"{key}: !!seq {{}}",
            f"{key}: !!str {{}}",
            f"{key}: !<{'x' * n}> y",
            f"{key}: 1\n{key}: 2",
            f"{key}: {{a: 1, a: 2}}",
            f"<<: {{{key}: 1}}",
            "<<: 3",
            f"<<: [{{{key}: 1}}, 2]",
            "? [a, b]\n: 1",
            "? {a: 1}\n: 1",
            f"? {{? {key} : 1}}\n: 1",
            "null: 1",
            "1: 2",
            "true: 1",
            "0.5: 1",
            ".nan: 1",
            "2020-01-01: 1",
            "!!binary aGk=: 1",
            f"{'k' * n}: 1",
            f"{key}: {'x' * n}",
            f'{key}: "\\uD800"',
            f'{key}: "\\x00\\x1b[31m"',
            f"\t{key}: 1",
            f"{key}:\t1",
            f"{key}: |\n  a\n b",
            f"{key}: >{n}\n a",
            f"{key}: 'a",
            f"{key}: 1\n---\n{key}: 2",
            "---\n...\n---\n",
            "%YAML 9.9\n---\na: 1",
            "%TAG ! tag:x,2000:\n---\n!a b",
            "\ufeff" + f"{key}: 1",
            "\x00",
            "\x85",
            "\u2028",
            f"{key}: \ud800",
            "# " + "c" * n,
            "\n" * n,
            f"{key}: @x",
            f"{key}: `x`",
            f"{key}: %x",
            f"{key}: a: b",
            f"{key}:\n- 1\n-2",
            "=: 1",
            f"{key}: =",
            "~: ~",
            "",
        )
    )


def _bomb(depth: int, key: str) -> str:
    """Ten times the last, again and again, in few characters."""
    lines = [f"a0: &a0 [{key}, {key}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join([*lines, f"{key}: *a{depth - 1}"])


def damaged(rng: Random, raw: bytes, how: str, at: float) -> bytes:
    """A file's bytes: emptied, cut, with a flipped bit or a foreign stretch at ``at`` in 0..1."""
    place = min(len(raw) - 1, int(at * len(raw)))
    if how == "emptied" or not raw:
        return b""
    if how == "truncated":
        return raw[:place]
    if how == "flipped":
        return raw[:place] + bytes([raw[place] ^ (1 << rng.randrange(8))]) + raw[place + 1 :]
    if how == "longer":
        return raw + bytes(rng.randrange(256) for _ in range(17))
    if how == "noise":
        return bytes(rng.randrange(256) for _ in range(min(len(raw), 4096)))
    return rng.choice((b"[]", b"{}", b"null", b"[" * 20_000, b"\xff\xfe\x00", b"1", b'{"a": NaN}'))
