"""The trials that a sweep's folder must hold, by the file that its driver keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.files import read_sealed
from orchestrator.results.manifest import NAME as SEALED

STATUS = "status.json"
"""How a sweep is doing; its ``trials`` are the folders that must hold results."""


def ended_trials(folder: Path) -> list[Path]:
    """The folders of trials that have left results in the sweep's ``folder``.

    Raises UserError unless all are there that its status speaks of: without them, tables would be
    of fewer trials, and say nothing of it.
    """
    # before the folders, to which more may come
    told = (folder / STATUS).is_file()
    known = read_sealed(folder / STATUS, dict[str, Any]).get("trials", ()) if told else ()
    # the manifest is what a trial that ends writes last
    found = sorted(path.parent for path in (folder / "trials").glob(f"*/{SEALED}"))
    lost = sorted({*known} - {path.name for path in found})
    if lost or (found and not told):
        what = f"the results of {len(lost)} trials ({lost[0]}, ...)" if lost else STATUS
        raise UserError(
            f"{folder}: it has lost {what}; put back what was in trials/, or run the sweep anew in "
            "another folder"
        )
    return found
