"""The malicious clients of a run, and what they send instead of their uploads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from algorithms.draws import torch_generator
from algorithms.local import Tensors
from algorithms.parts.attacks import Attack, Forging, LabelFlip
from orchestrator.training.messages import Role, role


@dataclass(frozen=True)
class Adversary:
    """Who is malicious in a run with ``clients`` clients, and how."""

    attack: Attack
    seed: int
    clients: int
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The malicious clients, ascending."""

    @classmethod
    def of(cls, attack: Attack, seed: int, clients: int) -> Adversary:
        """The run's adversary; raises ValueError if the attack names clients that do not exist."""
        return cls(attack, seed, clients, attack.malicious(seed, clients))

    @property
    def benign(self) -> np.ndarray:
        """Mask [N] of the honest clients."""
        return ~np.isin(np.arange(self.clients), self.ids)

    @property
    def mislabelled(self) -> np.ndarray:
        """Clients that train on flipped labels."""
        return self.ids if isinstance(self.attack, LabelFlip) else self.ids[:0]

    def forges(self, cohort: np.ndarray) -> bool:
        """Whether somebody in ``cohort`` will replace an upload."""
        return isinstance(self.attack, Forging) and bool(np.isin(cohort, self.ids).any())

    def forge(
        self, key: tuple[int, int], cohort: np.ndarray, uploads: Tensors, start: Tensor
    ) -> Tensors:
        """Uploads [m, ...] of ``cohort`` with the malicious rows replaced.

        ``key`` is (round, session in the round); ``start`` [d] or [m, d] are the models that the
        cohort started from.
        """
        assert isinstance(self.attack, Forging)
        bad = np.isin(cohort, self.ids)
        # the server's own row (FLTrust's reference) reaches no client, so colluders do not know it
        if not bad.any():  # they were too late
            return uploads
        honest = torch.from_numpy(~bad & (cohort < self.clients))
        forged = dict(uploads)
        for name, rows in uploads.items():
            what = role(name, rows)
            if what is Role.buffers and not self.attack.buffers:
                continue
            whole = what is Role.model and self.attack.target == "model"
            # it forges w_k, and w_k − w travels: w is added before and taken off after
            base = start.expand_as(rows)[bad] if whole else torch.zeros(())
            # made anew for each upload, so that none of the draws depends on which others there are
            draws = [torch_generator(self.seed, "attack", *key, int(k)) for k in cohort[bad]]
            known = rows[honest] if self.attack.colludes else rows[:0]
            forged[name] = rows.clone()
            forged[name][bad] = self.attack.forge(rows[bad] + base, known, draws) - base
        return forged
