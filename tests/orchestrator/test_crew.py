"""Who is in the crew, and who is tried again, without Ray: actors here are numbers of lives."""

import pytest
from ray.exceptions import RayError

from orchestrator.clients import crew as module
from orchestrator.clients.crew import ATTEMPTS, Crew
from orchestrator.errors import UserError


class FakeRay:
    """Starts succeed but for those (number, life) that ``fails`` says."""

    def __init__(self, fails):
        self.fails = fails

    def get(self, ref):
        if self.fails(*ref):
            raise RayError("no room on the disk")
        return f"process {ref}"

    def wait(self, refs, num_returns, timeout):
        return list(refs)[:1], []

    def kill(self, handle):
        pass


class Actor:
    def __init__(self, number, life):
        self.ready = self
        self.remote = lambda: (number, life)


@pytest.fixture
def started(monkeypatch):
    def start(size, fails):
        monkeypatch.setattr(module, "ray", FakeRay(fails))
        return Crew(size, Actor)

    return start


def test_every_number_has_tries_of_its_own(started):
    """Five actors, each of which fails its first start: a count for all of them would give up."""
    crew = started(5, lambda number, life: life == 0)
    crew.await_all(60.0)
    assert crew.working() == [0, 1, 2, 3, 4]
    assert crew.replaced == 5


def test_one_that_never_starts_is_left_out_though_the_others_still_start(started):
    crew = started(3, lambda number, life: number == 2)
    for life in range(ATTEMPTS):
        crew.finish_boot((2, life))
    assert "client actor 2 cannot be started: no room" in crew.happened[-1]
    for number in (0, 1):
        crew.finish_boot((number, 0))
    assert crew.working() == [0, 1]


def test_where_nobody_starts_the_run_ends(started):
    crew = started(2, lambda number, life: True)
    with pytest.raises(UserError, match="client actor 0 cannot be started"):
        crew.await_all(60.0)
    alone = started(1, lambda number, life: True)
    for life in range(ATTEMPTS - 1):
        alone.finish_boot((0, life))
    with pytest.raises(UserError, match="client actor 0 cannot be started"):
        alone.finish_boot((0, ATTEMPTS - 1))
