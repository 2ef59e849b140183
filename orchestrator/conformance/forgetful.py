"""A plane that loses everything between calls, and every call once after it was done."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from orchestrator.clients.plane import Assignment, InProcess
from orchestrator.training.host import Answer


class Forgetful(InProcess):
    """Each call is made, lost with its answers and all models, and made again.

    What Ray does to a run whose actors die after every call, without Ray: blocks are made again
    from what was sent, which has gone through a pickle, so that nothing of theirs can be shared
    with the server; and the commands that they had executed are replayed.
    """

    lost: int = 0
    """Blocks so far that had done earlier commands of their session when they were lost."""

    def run(self, assignments: Sequence[Assignment]) -> list[Answer | None]:
        sent = pickle.dumps(list(assignments))
        self.lost += sum(one.key in self.host.blocks for one in assignments)
        super().run(pickle.loads(sent))
        self.host.blocks.clear()
        return super().run(pickle.loads(sent))
