"""YAML from outside: whatever it is, it is read soon and wholly, or refused in one sentence."""

import os
import time

import pytest

from orchestrator.cli.pretraining import pretrain_agent
from orchestrator.config import build, load
from orchestrator.config.parsing import SIZE, parse, parse_file
from orchestrator.errors import LONGEST, UserError
from sweeps.plan import read_sweep

LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 30)
)
MERGES = "b0: &b0 {x: 1}\n" + "".join(
    f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 30)
)
CHAIN = "c0: &c0 [x]\n" + "".join(f"c{i}: &c{i} [*c{i - 1}]\n" for i in range(1, 100))
ODD = {
    "[" * 4000: "more than 50 levels",
    "- " * 4000: "more than 50 levels",
    "{a: " * 4000: "more than 50 levels",
    LAUGHS: "values",
    MERGES: "values",
    CHAIN: "more than 50 levels",
    "&a [*a]": "an anchor holds itself",
    "&a {x: *a}": "an anchor holds itself",
    "x: " + "9" * 5000: "64 digits",
    "x: 0x" + "f" * 5000: "64 digits",
    "x: " + "1:" * 100_000 + "1": "64 digits",
    "x: 9223372036854775808": "64 bits",
    "x: 010": "'010' is a number in base 8 or 60 to YAML",
    "x: 1:30": "'1:30' is a number in base 8 or 60",
    "!!int ''": "is no integer",
    "!!bool x": "is no bool",
    "!!float x": "is no number",
    "!!timestamp x": "constructor",
    "!!binary x": "constructor",
    "!!set {a}": "constructor",
    '"\\UFFFFFFFF"': "not YAML",
    "\ud800": "not YAML",
    "? [a]\n: 1": "is a key",
    "{lr: 0.1, lr: 0.2}": "the key 'lr' is there twice",
    "a" * (SIZE + 1): "more than 1,000,000",
}


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:16]))
def test_odd_texts(text):
    """Tracebacks (of recursion, ``int`` and dates), the memory of an anchor bomb, and a silent last
    of two equal keys in --set."""
    begun = time.monotonic()
    with pytest.raises(UserError) as caught:
        parse(text, "--set 'x'")
    assert ODD[text] in str(caught.value)
    assert len(str(caught.value)) <= LONGEST
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 5


def test_what_is_no_date_is_a_text():
    """``name: 2020-13-45`` was a traceback, and ``2020-12-25`` a date, which nothing takes."""
    assert parse("[2020-13-45, 2020-12-25, =, 1.5, 0x10, ~, on]", "x") == [
        "2020-13-45", "2020-12-25", "=", 1.5, 16, None, True,
    ]  # fmt: skip


def test_files_that_cannot_be_read(tmp_path):
    """A directory, a device without an end, a pipe that nobody writes to, bytes that are no UTF-8,
    a loop of links.
    """
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"name: \xff")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (".", "/dev/zero", "pipe", "bytes", "loop", "x" * 300):
        with pytest.raises(UserError, match="cannot read"):
            parse_file(tmp_path / path)


def test_every_way_in_is_this_one(tmp_path):
    """Configs, --set, sweeps and agents: none of them had the limits."""
    deep = "[" * 4000
    (tmp_path / "c.yaml").write_text(deep)
    for read in (
        lambda: load(tmp_path / "c.yaml"),
        lambda: load(None, [f"stop={deep}"]),
        lambda: read_sweep(tmp_path / "c.yaml"),
        lambda: pretrain_agent(deep, {}, 1, 0, tmp_path / "new"),
    ):
        with pytest.raises(UserError, match="more than 50 levels"):
            read()


def test_keys_of_many_levels():
    """They were a traceback of recursion, one way or the other."""
    with pytest.raises(UserError, match="more than 50 levels"):
        load(None, ["a." * 3000 + "b=1"])
    deep = {}
    for _ in range(3000):
        deep = {"a": deep}
    with pytest.raises(UserError, match="within one another"):
        build(deep)


@pytest.mark.parametrize(
    "raw",
    [{"x" * 90_000: 1}, {"algorithm": "x" * 90_000}, {"seed": 10**5000}, {"name": "é" * 9999}],
)
def test_sentences_are_short(raw):
    """One had 89,716 characters, and one could not be written at all."""
    with pytest.raises(UserError) as caught:
        build(raw)
    assert len(str(caught.value)) <= 500
    assert len(str(UserError("x" * 10**6))) == LONGEST
