"""Sweeps that were run to their end once, for the tests that read them."""

import pytest

from sweeps.reproduction import choose, final_sweep, tuning_sweep
from tests.sweeps.plans import ENTRY, sweep
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
    run_here(tuning_sweep(ENTRY, "reduced"), folder / "tuning")
    tuned = choose(ENTRY, "reduced", folder / "tuning")
    run_here(final_sweep(ENTRY, "reduced", tuned), folder)
    return folder
