"""Dispatch without Ray and without a clock: workers that are late, die and come back as told."""

import random
from collections import Counter

import pytest

from orchestrator.clients.dispatch import ATTEMPTS, Dispatch, Errand, Lost
from orchestrator.errors import UserError

BOOT = 5.0


class Crew:
    """Workers on a clock of their own. ``fate(number, life, errand)`` says how many seconds a call
    takes, and whether its worker dies instead of answering.
    """

    def __init__(self, size, fate):
        self.fate, self.clock = fate, 0.0
        self.lives, self.up = [0] * size, set(range(size))
        self.booting, self.under_way, self.begun = {}, {}, []
        self.replaced = []
        self.executing = Counter()

    def working(self):
        return sorted(self.up)

    def life(self, number):
        return self.lives[number]

    def now(self):
        return self.clock

    def call(self, number, errand):
        assert number in self.up, "work goes to nobody who is not there"
        seconds, dies = self.fate(number, self.lives[number], errand)
        self.executing[number] += 1
        busy = [end for end, n, *_ in self.under_way.values() if n == number]
        ref = (number, self.lives[number], errand, len(self.begun))
        self.begun.append(ref)
        self.under_way[ref] = (max([self.clock, *busy]) + seconds, number, dies)
        return ref

    def wait(self, calls, patience):
        events = [(self.under_way[c][0], 0, c) for c in calls]
        events += [(at, 1, ("boot", number)) for number, at in self.booting.items()]
        if not events:
            raise UserError("nobody is left")
        at, _, event = min(events, key=lambda e: e[:2])
        if patience is not None and at > self.clock + patience:
            self.clock += patience
            return None
        self.clock = max(self.clock, at)
        if event[0] == "boot":
            del self.booting[event[1]]
            self.up.add(event[1])
        return event

    def take(self, ref):
        _, number, dies = self.under_way.pop(ref)
        self.executing[number] -= 1
        if dies or ref[1] != self.lives[number]:
            raise Lost
        return ("done", ref[2])

    def replace(self, number, why):
        self.replaced.append((number, why))
        self.lives[number] += 1
        self.up.discard(number)
        self.booting[number] = self.clock + BOOT
        for ref, (_, n, _) in self.under_way.items():  # what it was doing is lost at once
            if n == number and ref[1] < self.lives[number]:
                self.under_way[ref] = (self.clock, n, True)


def errands(crew, costs, **more):
    return [
        Errand(lambda n, i=i: crew.call(n, i), f"errand {i}", c, **more)
        for i, c in enumerate(costs)
    ]


def run(crew, costs, limit=None, **more):
    return Dispatch(crew, errands(crew, costs, **more), limit, boot_timeout=60.0).run()


def test_the_longest_goes_first_and_nobody_is_idle():
    crew = Crew(2, lambda number, life, errand: (float([1, 9, 5, 5][errand]), False))
    assert run(crew, [1, 9, 5, 5]) == [("done", i) for i in range(4)]
    assert [ref[2] for ref in crew.begun[:2]] == [1, 2]
    assert crew.clock == 10.0  # 9 and then 1, beside 5 and then 5


def test_two_calls_are_outstanding_only_while_much_is_waiting():
    crew = Crew(2, lambda *_: (1.0, False))
    most = []
    original = crew.call
    crew.call = lambda n, e: (original(n, e), most.append(crew.executing[n]))[0]
    run(crew, [1] * 9)
    assert max(most) == 2
    timed = Crew(2, lambda *_: (1.0, False))
    seen = []
    call = timed.call
    timed.call = lambda n, e: (call(n, e), seen.append(timed.executing[n]))[0]
    run(timed, [1] * 9, limit=10.0)
    assert max(seen) == 1  # a call that waits behind another would count as late


def test_a_lost_errand_is_done_by_another_life():
    crew = Crew(2, lambda number, life, errand: (1.0, errand == 0 and life == 0))
    again = []
    dispatch = Dispatch(crew, errands(crew, [3, 2, 1]), None, 60.0, lambda: again.append(1))
    assert dispatch.run() == [("done", i) for i in range(3)]
    assert again
    assert crew.replaced[0][1] == "died while errand 0"


def test_an_errand_that_loses_every_worker_ends_the_run():
    crew = Crew(2, lambda number, life, errand: (1.0, errand == 1))
    with pytest.raises(UserError, match=f"died while errand 1, {ATTEMPTS} times"):
        run(crew, [1, 1])


def test_an_overdue_worker_is_ended_and_its_work_redone_or_dropped():
    fate = lambda number, life, errand: (100.0 if (errand, life) == (0, 0) else 1.0, False)  # noqa: E731
    crew = Crew(2, fate)
    assert run(crew, [5, 1], limit=10.0) == [("done", 0), ("done", 1)]
    assert "did not answer within 10 s" in crew.replaced[0][1]
    crew = Crew(2, fate)
    assert run(crew, [5, 1], limit=10.0, droppable=True) == [None, ("done", 1)]
    assert "left out" in crew.replaced[0][1]


def test_work_with_a_home_waits_for_it():
    crew = Crew(3, lambda *_: (1.0, False))
    run(crew, [1] * 6, home=lambda: 1)
    assert {ref[0] for ref in crew.begun} == {1}


def test_nobody_comes_back():
    crew = Crew(1, lambda *_: (1.0, True))
    crew.replace = lambda number, why: (crew.up.discard(number), crew.booting.update({number: 1e9}))
    with pytest.raises(UserError, match="no client actor came back within 60 s"):
        run(crew, [1])


def random_schedule(rng):
    """Workers, errands and a limit, with lateness and deaths drawn from ``rng``."""
    size, count = rng.randint(1, 4), rng.randint(1, 12)
    deadly, slow = rng.choice([0.0, 0.1, 0.4]), rng.choice([0.0, 0.2])
    limit, drop, homes = rng.choice([None, 10.0]), rng.random() < 0.5, rng.random() < 0.3

    def fate(number, life, errand):
        return rng.choice([0.0, 1.0, 3.0]) + 50.0 * (rng.random() < slow), rng.random() < deadly

    crew = Crew(size, fate)
    tasks = errands(crew, [rng.randint(1, 9) for _ in range(count)], droppable=drop)
    for i, task in enumerate(tasks):
        task.home = lambda home=i % size: home if homes and home in crew.up else None
    return crew, tasks, limit


def require_right_end(rng):
    """A random schedule ends, and a result is never another errand's."""
    crew, tasks, limit = random_schedule(rng)
    found, refusal = [], None
    try:
        found = Dispatch(crew, tasks, limit, boot_timeout=60.0).run()
    except UserError as error:
        refusal = str(error)
    gave_up = max(task.attempts for task in tasks) == ATTEMPTS
    assert gave_up == (refusal is not None and f"{ATTEMPTS} times" in refusal)
    for i, (task, result) in enumerate(zip(tasks, found, strict=refusal is None)):
        assert result == ("done", i) or (result is None and task.droppable and limit)


@pytest.mark.parametrize("block", range(10))
def test_any_schedule_ends_with_every_result_or_the_right_refusal(block):
    """Each of random schedules ends, and a result is never another errand's."""
    for seed in range(block * 100, block * 100 + 100):
        require_right_end(random.Random(seed))
