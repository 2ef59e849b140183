"""The malicious clients of a run, and what they send instead of their uploads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.contract import Broken
from algorithms.draws import torch_generator
from algorithms.finite import finite_rows
from algorithms.flat import outside
from algorithms.local import Tensors
from algorithms.parts.attacks import Attack, Forging, LabelFlip
from orchestrator.training.messages import Role, role

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Adversary:
    """Who is malicious in a run with ``clients`` clients, and how."""

    attack: Attack
    seed: int
    clients: int
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The malicious clients, ascending."""
    statistics_leave: bool = True
    """Whether clients send their batch-norm statistics (``buffers: aggregate``)."""

    @classmethod
    def of(
        cls, attack: Attack, seed: int, clients: int, statistics_leave: bool = True
    ) -> Adversary:
        """The run's adversary; raises ValueError if the attack names clients that do not exist."""
        ids = np.asarray(attack.malicious(seed, clients))
        wrong = ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu")
        if wrong or ((ids < 0) | (ids >= clients)).any() or len(np.unique(ids)) < len(ids):
            raise ValueError(
                f"attack {attack.name}: its malicious clients are {str(ids)[:100]}, and not "
                f"different numbers of clients, from 0 to {clients - 1}"
            )
        return cls(attack, seed, clients, np.sort(ids.astype(np.int64)), statistics_leave)

    @property
    def benign(self) -> np.ndarray:
        """Mask [N] of the honest clients."""
        return ~np.isin(np.arange(self.clients), self.ids)

    @property
    def mislabelled(self) -> np.ndarray:
        """Clients that train on flipped labels."""
        return self.ids if isinstance(self.attack, LabelFlip) else self.ids[:0]

    @property
    def forgers(self) -> np.ndarray:
        """Clients that will replace their uploads."""
        return self.ids if isinstance(self.attack, Forging) else self.ids[:0]

    def forges(self, cohort: np.ndarray) -> bool:
        """Whether somebody in ``cohort`` will replace an upload."""
        return bool(np.isin(cohort, self.forgers).any())

    def lies(self, cohort: np.ndarray) -> bool:
        """Whether somebody in ``cohort`` forges its answers to questions, too."""
        return isinstance(self.attack, Forging) and self.attack.probes and self.forges(cohort)

    def answers(self, key: tuple[int, int], cohort: np.ndarray, rows: Tensor) -> Tensor:
        """Answers [m, k] of ``cohort`` to a question, with the malicious ones replaced if the
        attack forges these; ``key`` is (round, question in the round).
        """
        if not self.lies(cohort):
            return rows
        return self._replaced("answer", key, cohort, rows, finite_rows(rows).numpy())

    def forge(
        self,
        when: tuple[int, int],
        cohort: np.ndarray,
        uploads: Tensors,
        start: Tensor,
        unit: Tensor | None = None,
        private: tuple[slice, ...] = (),
        sound: np.ndarray | None = None,
    ) -> Tensors:
        """Uploads [m, ...] of ``cohort`` with the malicious rows replaced: changes of the model but
        for its ``private`` entries, controls, and batch-norm statistics where the attack has them
        and they are sent; moments of optimisers and ξ stay.

        ``when`` is (round, session in the round); ``start`` [d] or [m, d] are the models that the
        cohort started from; changes of the model are sent divided by ``unit`` [m] (None: 1). Whose
        message is not ``sound`` (mask [m]; None: all are) no colluder goes by.
        """
        if not self.forges(cohort):  # they may have been too late
            return uploads
        assert isinstance(self.attack, Forging)
        sent = self.attack.buffers and self.statistics_leave
        sound = np.ones(len(cohort), bool) if sound is None else sound
        touched = {Role.model, Role.control} | ({Role.buffers} if sent else set())
        whole = self.attack.target == "model"
        forged = dict(uploads)
        for name, rows in uploads.items():
            what = role(name, rows[0])
            if what not in touched:
                continue
            if what is not Role.model:
                # every upload has draws of its own
                purpose = "attack" if what is Role.buffers else f"attack {name}"
                forged[name] = self._replaced(purpose, when, cohort, rows, sound)
                continue
            # it forges w_k, or w_k − w, and what travels is made of that
            scale = torch.ones(1) if unit is None else unit.where(unit != 0, 1).to(rows)[:, None]
            base = start.expand_as(rows) if whole else torch.zeros(1)
            meant = self._replaced("attack", when, cohort, rows * scale + base, sound)
            bad = torch.from_numpy(np.isin(cohort, self.ids))[:, None]
            leaves = outside(private, rows.shape[1])
            forged[name] = torch.where(bad & leaves, (meant - base) / scale, rows)
        return forged

    def _replaced(
        self,
        purpose: str,
        key: tuple[int, int],
        cohort: np.ndarray,
        rows: Tensor,
        sound: np.ndarray,
    ) -> Tensor:
        """``rows`` [m, k] of ``cohort`` with those of its malicious clients forged, who know which
        of the others' are ``sound`` (mask [m]).
        """
        assert isinstance(self.attack, Forging)
        bad = np.isin(cohort, self.ids)
        # the server's own row (FLTrust's reference) reaches no client, so colluders do not know it
        honest = torch.from_numpy(~bad & (cohort < self.clients) & sound)
        # made anew for each upload, so that none of the draws depends on which others there are
        draws = [torch_generator(self.seed, purpose, *key, int(k)) for k in cohort[bad]]
        known = rows[honest] if self.attack.colludes else rows[:0]
        forged = rows.clone()
        own = rows[torch.from_numpy(bad)]
        made = self.attack.forge(own, known, draws)
        if made.shape != own.shape:
            raise Broken(
                f"attack {self.attack.name}: of uploads of shape {tuple(own.shape)} it forges "
                f"{tuple(made.shape)}"
            )
        forged[torch.from_numpy(bad)] = made.to(forged.dtype)
        return forged
