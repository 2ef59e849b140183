"""Training at the server alone, on its held-out rows: what FedAA's server could do without clients.

The same local work per round as a client, from the server's own model; nothing is transmitted but
the model that the clients are judged with.
"""

from __future__ import annotations

from algorithms.algorithm import (
    Algorithm,
    AlgorithmOptions,
    fixed_work,
    nothing_sent,
    steps_by_itself,
)
from algorithms.contract import Clients, Cohort
from algorithms.local import LocalRule
from algorithms.setting import Composition


class AtTheServer(LocalRule):
    """Plain local training whose result stays where it is."""

    transmitted = False


class ServerOnly(Algorithm):
    """No clients; judged by the server's model."""

    class Options(AlgorithmOptions):
        """The server trains alone on its held-out rows."""

        name: str = "server_only"
        defaults = {"data.heldout.per_class": 100}

        @property
        def uses_heldout(self) -> bool:
            return True

        def refuses(self, parts: Composition) -> str | None:
            return (
                nothing_sent(self.name, parts)
                or fixed_work(self.name, parts)
                or steps_by_itself(self.name, parts)
            )

    def start(self) -> None:
        if not self.setting.parts.local.planned(self.setting.heldout):
            raise ValueError(
                "server_only trains on batches of rows held out at the server; set "
                "data.heldout.per_class"
            )

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        known = {"w": self.w, "buffers": self.buffers}
        updates, report = self.train(
            t, clients, Cohort.of([self.setting.server]), AtTheServer(), {}, known
        )
        self.w = self.w + updates.rows("delta")[0]
        if "buffers" in updates.vectors:
            self.buffers = updates.rows("buffers")[0]
        return report
