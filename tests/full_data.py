"""Full datasets, where they are at hand."""

import os
from pathlib import Path

import pytest


def data_folder() -> Path | None:
    named = os.environ.get("FEDORCH_DATA")
    return Path(named) if named and Path(named).is_dir() else None


needs_data = pytest.mark.skipif(
    data_folder() is None, reason="FEDORCH_DATA is not set: full datasets are not at hand"
)
