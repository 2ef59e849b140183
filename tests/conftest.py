"""What holds for every test: one thread, one Ray session for those that need it, and which of them
run side by side."""

import functools
import gc
import os

import hypothesis
import pytest
import torch
import typer.main
import typer.testing

import sweeps.cli  # noqa: F401 - its commands, before all are put together
from tests.actors import Company
from tests.sets import COLLECTED, set_of

torch.set_num_threads(1)
# any will do for the storage of the tests; Ray's processes take them from here
os.environ.update(AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
# Ray has its workers give way to all else (niceness 15), which is the other tests here
os.environ.update(RAY_worker_niceness="0")
# typer puts all commands together at each call, which takes longer than most of what is called here
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command
# the same examples each time: tests/fuzz looks for new ones (or --hypothesis-profile default)
hypothesis.settings.register_profile("quick", derandomize=True)
hypothesis.settings.load_profile("quick")

TOGETHER = {"ray_session": "ray", "nodes": "nodes", "cabled": "nodes"}
"""Fixture -> the group of tests that use it: all on one of pytest's workers, one after another."""


@pytest.hookimpl(tryfirst=True)  # while those are there that will be left out
def pytest_collection_modifyitems(config, items):
    """One worker has the Ray session that runs need, another that of sweeps, or one cluster after
    the other. They begin with these, which are the longest; then come files whose tests share what took long to make, and all
    other tests go wherever there is nothing to do.
    """
    config.stash[COLLECTED] = {item.nodeid: set_of(item) for item in items}
    groups = {item: group_of(item) for item in items}
    order = ["ray", "sweeps", "nodes"]
    order = [*dict.fromkeys([*order, *filter(None, groups.values())]), None]
    items.sort(key=lambda item: order.index(groups[item]))
    if hasattr(config, "workerinput"):  # of pytest-xdist
        for item in items:
            if groups[item]:
                join(item, groups[item])


def pytest_collection_finish():
    """Thousands of tests, and what they have imported, stay: who looks for garbage passes by."""
    gc.freeze()


def group_of(item):
    """That of a fixture, or the file with others that use one of the file's; or None."""
    for name, group in TOGETHER.items():
        if name in item.fixturenames:
            return "sweeps" if group == "ray" and "sweeps" in item.path.parts else group
    made = (one for found in item._fixtureinfo.name2fixturedefs.values() for one in found)
    return item.path.stem if any(one.scope == "module" for one in made) else None


def join(item, group):
    """pytest-xdist reads groups from the ends of node ids; what it has for writing them there, its
    mark ``xdist_group``, does nothing under pytest 9.2, where ids are kept elsewhere.
    """
    item._id = type(item.id).parse(f"{item.nodeid}@{group}")
    assert item.nodeid.endswith(f"@{group}")


@pytest.fixture(scope="session")
def ray_session():
    """Eight logical CPUs and two logical GPUs on this machine, as a plain run has them; one in each
    worker that has such tests.
    """
    import ray

    from orchestrator.cluster.connection import connected

    with connected("local", num_cpus=8, num_gpus=2):
        yield ray


@pytest.fixture(scope="session")
def company(ray_session):
    """Client actors to be lent."""
    return Company()
