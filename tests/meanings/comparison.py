"""The product and the model on the same composition, round after round."""

from unittest import mock

import numpy as np
import torch

from orchestrator.clients import adversary
from orchestrator.errors import Diverged, UserError
from orchestrator.rounds.experiment import Experiment
from tests.meanings import model as readable

EXACT, DERIVED = 2e-5, 5e-4
"""How far sums may be off that were added up in another order, relative to the largest entry; and
what is a small difference of large ones (changes of a model, and what is made of them)."""


class Disagreement(Exception):
    """What differs, in which round, and by how much."""


def compare(config, data=None) -> str:
    """ "agree", "diverge" (both do), or "undecided"; raises Disagreement, or UserError where the
    composition is refused.
    """
    product = Experiment(config, data=data)
    modelled = readable.Federation(
        product.config.model_dump(mode="python"),
        product.data,
        product.net.initial.clone(),
        product.net.initial_buffers.clone(),
    )
    forged: dict = {}
    with _spied(forged):
        for t in range(1, config.rounds + 1):
            record, reason = _stepped(product)
            if not _modelled(modelled, t, reason):
                return "diverge"
            if found := _differences(product, modelled, record, forged, t):
                # a choice between equals is nobody's mistake, but all that comes later differs
                if modelled.doubts:
                    return "undecided"
                raise Disagreement(f"round {t}: " + "; ".join(found))
    return "agree"


def _stepped(product):
    try:
        return product.step(), None
    except Diverged as error:
        return {}, str(error)


def _modelled(modelled, t, reason) -> bool:
    """Whether both go on; raises Disagreement if only one does."""
    try:
        modelled.round(t)
    except readable.Diverged as error:
        if reason is None:
            raise Disagreement(f"round {t}: goes on though {error}") from error
        return False
    if reason is not None:
        raise Disagreement(f"round {t}: ends though nothing is infinite: {reason}")
    return True


def _spied(forged):
    """Every vector that a malicious client meant to send is put into ``forged``."""
    honestly = adversary.Adversary.forge

    def spy(self, when, cohort, uploads, start, unit=None):
        out = honestly(self, when, cohort, uploads, start, unit)
        for row in np.flatnonzero(np.isin(cohort, self.forgers)):
            for name, rows in out.items():
                forged[(*when, int(cohort[row]), name)] = rows[row].clone()
        return out

    return mock.patch.object(adversary.Adversary, "forge", spy)


def _differences(product, modelled, record, forged, t):
    found = []

    def same(what, a, b, bound=DERIVED, least=1e-6):
        a, b = (torch.as_tensor(np.asarray(v, np.float64)) for v in (a, b))
        if a.shape != b.shape:
            found.append(f"{what} has shape {tuple(a.shape)}, not {tuple(b.shape)}")
            return
        size = float(b[b.isfinite()].abs().max()) if b.isfinite().any() else 0.0
        off = torch.where(a == b, 0.0, (a - b).abs())
        off = torch.where(a.isnan() & b.isnan(), 0.0, off).nan_to_num(nan=torch.inf)
        if off.numel() and float(off.max()) > bound * size + least:
            at = int(off.argmax())
            wrong = int((off > bound * size + least).sum())
            a, b = float(a.flatten()[at]), float(b.flatten()[at])
            found.append(f"{what}[{at}] is {a:.6g}, not {b:.6g} ({wrong} of {off.numel()})")

    same("w", product.algorithm.w, modelled.w, EXACT)
    same("statistics", product.algorithm.buffers, modelled.statistics, EXACT)
    if hasattr(product.algorithm, "control"):
        same("control", product.algorithm.control, modelled.control)
    ledger = product.federation.ledger
    for name in ("down", "up", "steps"):
        a, b = getattr(ledger, name), getattr(modelled, name)
        if (a != b).any():
            found.append(f"ledger.{name} is {a.tolist()}, not {b.tolist()}")
    stored = [
        ("replica", product.federation.mailroom.replicas, modelled.replicas),
        ("averaged", product.federation.store.optimizer, modelled.averaged),
        (
            "forged",
            {k: v for k, v in forged.items() if k in modelled.forgeries},
            modelled.forgeries,
        ),
    ]
    states = product.federation.store.states
    stored += [(f"client {k}", states.get(k, {}), m) for k, m in modelled.memory.items()]
    for where, a, b in stored:
        for name in sorted({*a, *b}, key=str):
            # whose compression has left out nothing yet may have that written down as zeros
            empty = torch.zeros_like(a.get(name, b.get(name)))
            if str(name).startswith("error/"):
                same(f"{where} {name}", a.get(name, empty), b.get(name, empty))
            elif (name in a) != (name in b):
                found.append(f"{where} has{'' if name in a else ' no'} {name}")
            else:
                same(f"{where} {name}", a[name], b[name])
    if "test_loss" in record:
        same("test_loss", record["test_loss"], modelled.test_loss(), 1e-4)
    personal = modelled.personal()
    if personal is not None:
        same("personal accuracy", product.client_rows[-1]["personal_accuracy"], personal, 0.0, 0.02)
    return found


__all__ = ["Disagreement", "UserError", "compare"]
