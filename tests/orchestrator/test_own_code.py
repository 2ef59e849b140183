"""Parts that a session brings itself: a run is begun and ended with the same code."""

import gc
import os
import signal
import subprocess
import sys
from enum import Enum
from functools import lru_cache, partial

import pytest
import ray

import fedorch
from orchestrator.config import build
from orchestrator.errors import UserError
from orchestrator.results.own_code import code_sha256

BASE = {
    "data": {"dataset": "fashion_mnist_10k", "limit": 200, "clients": 4}, "model": "linear",
    "rounds": 4, "checkpoint": {"every": 1}, "algorithm": "told",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """In this process, also where other tests have begun Ray. Parts of other tests that wait for
    the collector would go in the middle of one of these.
    """
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    gc.collect()


class Kind(Enum):
    FIRST = 1
    SECOND = 2


CHOSEN = (Kind.FIRST, frozenset("abc"))
SEEN = []


def remember(seen):
    seen.append(len(seen))


def helper():
    remember(SEEN)
    return len(CHOSEN[1]) * CHOSEN[0].value


def cell(number, stop=None, more=0):
    """What a notebook's cell makes anew each time that it is run."""

    def counted():
        return number + more

    class Told(fedorch.FedAvg):
        class Options(fedorch.FedAvg.Options):
            name: str = "told"

        def round(self, t, clients):
            if t == stop:
                os.kill(os.getpid(), signal.SIGINT)
            return super().round(t, clients) | {"n": counted() + helper()}

    return Told


def test_the_digest_is_of_what_the_code_does(monkeypatch):
    held = cell(1.0)
    first = code_sha256(build(BASE))
    assert first
    held = cell(1.0)
    assert code_sha256(build(BASE)) == first
    held = cell(2.0)
    assert code_sha256(build(BASE)) != first
    held = cell(1.0, more=3)
    assert code_sha256(build(BASE)) != first
    held = cell(1.0)
    helper()  # what it notes is no part of it
    assert code_sha256(build(BASE)) == first
    for other in ((Kind.SECOND, frozenset("abc")), (Kind.FIRST, frozenset("abd"))):
        monkeypatch.setitem(globals(), "CHOSEN", other)
        assert code_sha256(build(BASE)) != first
    monkeypatch.setitem(globals(), "helper", lambda: 2.0)
    assert code_sha256(build(BASE)) != first
    assert held
    assert code_sha256(build(BASE | {"algorithm": "fedavg"})) == ""


@pytest.mark.parametrize(
    "made",
    [
        lambda damp: lambda x: sum(damp(s) for s in [x]),
        lambda damp: lambda x: max([damp(s) for s in [x]]),
        lambda damp: lambda x: (lambda y: damp(y))(x),
        lambda damp: partial(damp, 1),
        lambda damp: lambda x, *, by=damp(1.0): x * by,  # noqa: B008
        lambda damp: lru_cache(lambda x: damp(x)),
        lambda damp: partial(pow, damp(1.0)),
    ],
)
def test_what_is_called_from_within_is_part_of_it(made):
    """By comprehensions, inner functions, keywords and what others have made of a function."""

    def told(factor):
        def damp(x):
            return x * factor

        inner = made(damp)

        class Told(fedorch.FedAvg):
            class Options(fedorch.FedAvg.Options):
                name: str = "told"

            def round(self, t, clients):
                return super().round(t, clients) | {"n": inner(1.0)}

        return code_sha256(build(BASE)), Told

    first, same, other = told(1.0), told(1.0), told(0.5)
    assert first[0] == same[0] != other[0]


def test_names_of_the_module_are_looked_up_from_within(monkeypatch):
    class Told(fedorch.FedAvg):
        class Options(fedorch.FedAvg.Options):
            name: str = "told"

        def round(self, t, clients):
            return super().round(t, clients) | {"n": sum(helper() for _ in range(2))}

    first = code_sha256(build(BASE))
    monkeypatch.setitem(globals(), "helper", lambda: 2.0)
    assert code_sha256(build(BASE)) != first
    assert Told


def test_it_is_the_same_in_a_process_that_was_sent_the_parts(tmp_path):
    """An actor that makes the experiment of what has been pickled, by value."""
    held = cell(1.0)
    (tmp_path / "config").write_bytes(ray.cloudpickle.dumps(build(BASE)))
    code = (
        "import pickle, sys; from orchestrator.results.own_code import code_sha256; "
        "print(code_sha256(pickle.load(open(sys.argv[1], 'rb'))))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "config")]
    there = subprocess.run(words, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == code_sha256(build(BASE))
    assert held


def test_what_the_code_notes_is_no_part_of_it(tmp_path):
    """A notebook's list that a round is added to, and a counter."""
    seen, many = [], 0

    class Told(fedorch.FedAvg):
        class Options(fedorch.FedAvg.Options):
            name: str = "told"

        def round(self, t, clients):
            nonlocal many
            many += 1
            seen.append(t)
            return super().round(t, clients)

    before = code_sha256(build(BASE))
    fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0])
    assert (len(seen), many) == (4, 4)
    assert code_sha256(build(BASE)) == before
    assert len(fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0, 1])) == 2
    assert Told


def test_a_run_does_not_go_on_with_a_class_that_was_defined_anew(tmp_path):
    held = cell(1.0, stop=2)
    with pytest.raises(KeyboardInterrupt):
        fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0])
    held = cell(2.0, stop=2)
    with pytest.raises(UserError, match="the code of parts that are in no plugin is not that"):
        fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0])
    held = cell(1.0, stop=9)
    with pytest.raises(UserError, match="in no plugin"):  # what it holds is a part of it
        fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0])
    assert held


def test_a_finished_run_is_no_seed_of_a_class_that_was_defined_anew(tmp_path):
    held = cell(1.0)
    fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0])
    held = cell(1.0)
    assert len(fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0, 1])) == 2
    held = cell(2.0)
    with pytest.raises(UserError, match="by other code of parts of the same names"):
        fedorch.run(BASE, out=str(tmp_path / "s"), seeds=[0, 1, 2])
    assert held
