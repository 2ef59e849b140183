"""What nobody has foreseen: kept for those who can mend it, and told in one sentence."""

from __future__ import annotations

import os
import time
import traceback

from orchestrator.credentials import discreet
from orchestrator.errors import UserError
from orchestrator.files import cache, write_text


def report(error: BaseException) -> str:
    """Keep the error's traceback in the user's cache; returns what to say of it."""
    kind = discreet(" ".join(f"{type(error).__name__}: {_words(error)}".split()))[:200]
    # it is to be sent to others
    text = discreet("".join(traceback.format_exception(error)))
    try:
        path = cache() / "faults" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except (OSError, UserError):
        return f"a fault of fedorch's own; please report it with what follows: {kind}\n{text}"
    return f"a fault of fedorch's own ({kind}); please report it with the traceback in {path}"


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a class of a user's own
        return "(it cannot say what)"
