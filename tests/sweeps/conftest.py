"""Sweeps that were run to their end once, for the tests that read them."""

import pytest

from tests.sweeps.plans import REDUCED, sweep, tuned
from tests.sweeps.trials import run_here, run_sweep


@pytest.fixture(scope="session")
def finished(tmp_path_factory, ray_session):
    """Eight trials on Ray Tune."""
    folder = tmp_path_factory.mktemp("sweeps") / "one"
    run_sweep(
        sweep(axes={"local.lr": [0.02, 0.1], "algorithm": ["fedavg", "scaffold"]}, seeds=[0, 1]),
        folder,
    )
    return folder


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory, ray_session):
    """Both stages of ENTRY at the reduced budget, in this process."""
    folder = tmp_path_factory.mktemp("sweeps") / "entry"
    run_here(REDUCED.tuning_sweep(REDUCED.candidates()), folder / "tuning")
    run_here(REDUCED.final_sweep(tuned(REDUCED, folder / "tuning")), folder)
    return folder
