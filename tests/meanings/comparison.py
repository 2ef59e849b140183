"""The product and the model on the same composition, round after round."""

import re
from unittest import mock

import numpy as np
import torch

from orchestrator.clients import adversary
from orchestrator.errors import Diverged
from orchestrator.rounds.experiment import Experiment
from tests.meanings import minimax
from tests.meanings import model as readable
from tests.meanings.model import NEARLY_INFINITE

BOUNDS = {"w": 2e-5, "statistics": 2e-5, "test_loss": 1e-4}
"""How far sums may be off that were added up in another order, relative to the largest entry."""
DERIVED = 5e-4
"""The same of small differences of large numbers: changes of a model, and what is made of them."""
LEAST = 1e-6
STIR = 3e-7
STIRS = 24
"""Tries: a single row of which two classes are nearly as likely takes some."""


TOLD = re.compile(
    "test_loss|evaluated_steps|round_steps|variance_estimate|variance|virtual_time|round_time|lock_step_time"
    r"|reward|state_spread|heldout_class_\d+"
)


class Disagreement(Exception):
    """What differs, in which round, and by how much."""


def compare(config, data=None) -> str:
    """ "agree", "diverge" (both do), or "undecided"; raises Disagreement, or UserError where the
    composition is refused.
    """
    product = Experiment(config, data=data)
    modelled = _model(product)
    forged: dict = {}
    with _spied(forged):
        for t in range(1, config.rounds + 1):
            record, reason = _stepped(product)
            try:
                goes_on = _modelled(modelled, t, reason)
            except Disagreement:
                # of such numbers, which overflows is a matter of what is multiplied first; what a
                # network makes of its weights is some thousand times as large
                large = [modelled.w * 1e3, *(v for _, v in forged.values())]
                if modelled.huge or any(bool((v.abs() > NEARLY_INFINITE).any()) for v in large):
                    return "undecided"
                raise
            if not goes_on:
                return "diverge"
            # of what is NaN, nobody can say whether it was forged
            meant = {
                k: v for k, (new, v) in forged.items() if k in modelled.forgeries or _is(new, v)
            }
            ours, theirs = _of_product(product, record, meant), _of_model(modelled)
            if "shares" in theirs:
                ours["shares"] = product.shares
            found = differences(ours, theirs)
            if found and _undecided(product, modelled, found, t):
                return "undecided"
            if found:
                kinds = sorted({" ".join(re.sub(r"\W+|\d+", " ", n).split()) for n in found})
                raise Disagreement(f"{', '.join(kinds)}: round {t}: {'; '.join(found.values())}")
    return "agree"


def _model(product, stir=0.0, n=0):
    """The model of a run, its first weights stirred by a part of their size."""
    w = product.net.initial.clone()
    noise = torch.randn(len(w), generator=torch.Generator().manual_seed(n))
    return readable.Federation(
        product.config.model_dump(mode="python"),
        product.data,
        w * (1 + stir * noise),
        product.net.initial_buffers.clone(),
    )


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
            raise Disagreement(f"goes on though {error}: round {t}") from error
        return False
    if reason is not None:
        raise Disagreement(f"ends though nothing is infinite: {reason}")
    return True


def _spied(forged):
    """Every vector that a malicious client meant to send is put into ``forged``, and whether it is
    another than it honestly would.
    """
    honestly = adversary.Adversary.forge

    def spy(self, when, cohort, uploads, *about):
        out = honestly(self, when, cohort, uploads, *about)
        for row in np.flatnonzero(np.isin(cohort, self.forgers)):
            for name, rows in out.items():
                touched = rows[row].numel() and not rows[row].equal(uploads[name][row])
                forged[(*when, int(cohort[row]), name)] = bool(touched), rows[row].clone()
        return out

    return mock.patch.object(adversary.Adversary, "forge", spy)


def _is(new, v) -> bool:
    return new and not v.isnan().any()


def _of_product(product, record, forged) -> dict:
    """All that is compared, by what a person calls it."""
    algorithm, federation = product.algorithm, product.federation
    # where nothing is sent (in all other sessions), no forgery is anybody's business
    sends = {"local": 0, "scaffpd": 2}.get(algorithm.options.name, 1)
    forged = {key: v for key, v in forged.items() if key[1] < sends}
    named = {
        "w": algorithm.w,
        "statistics": algorithm.buffers,
        "train_loss": federation.log.diagnostics["train_loss"],
        "update norm": _norms(product),
        **_named("replica", federation.mailroom.replicas),
        **_named("averaged", federation.store.optimizer),
        **_named("forged", forged),
    }
    if hasattr(algorithm, "control"):
        named["control"] = algorithm.control
    if hasattr(algorithm, "dual"):
        named["dual"] = algorithm.dual
    if hasattr(algorithm, "reference"):
        named["reference"] = algorithm.reference
    for k, memory in federation.store.states.items():
        named |= _named(f"client {k}", memory)
    for what in ("down", "up", "steps"):
        named[f"ledger {what}"] = getattr(federation.ledger, what)
    # how good it is, and what a round ends by
    named |= {n: value for n, value in record.items() if TOLD.fullmatch(n)}
    rows = product.client_rows[-1] if product._is_judged else {}
    if "personal_accuracy" in rows:
        named["personal accuracy"] = rows["personal_accuracy"]
    return named


def _norms(product) -> np.ndarray:
    """Of the updates of the round's cohort; 0 of who sends another one."""
    log = product.federation.log
    forged = np.isin(log.cohort, product.adversary.forgers)
    return np.where(forged, 0.0, log.diagnostics["update_norm"])


def _of_model(modelled) -> dict:
    named = {
        "w": modelled.w,
        "statistics": modelled.statistics,
        "train_loss": modelled.train_losses(),
        "update norm": [modelled.norms[k] for k in sorted(modelled.norms)],
        **_named("replica", modelled.replicas),
        **_named("averaged", modelled.averaged),
        **_named("forged", modelled.forgeries),
    }
    # nobody trains the server's model of the others
    looked, clocked = modelled.looked, modelled.config["evaluation"]["every_steps"] is not None
    if looked is not None and modelled.algorithm["name"] not in ("local", "lp_proj"):
        named["test_loss"] = modelled.test_loss(looked[1])
    if looked is not None and clocked:
        named["evaluated_steps"] = looked[0]
    if modelled.algorithm["name"] in ("scaffold", "fedpvr", "feddyn", "drdm", "scallion"):
        named["control"] = modelled.control
    if modelled.algorithm["name"] in minimax.NAMES:
        named["dual"] = modelled.dual
    if modelled.algorithm["name"] == "lp_proj":
        named["reference"] = modelled.reference
    for k, memory in modelled.memory.items():
        named |= _named(f"client {k}", memory)
    for what in ("down", "up", "steps"):
        named[f"ledger {what}"] = getattr(modelled, what)[: modelled.clients]
    if (shares := modelled.shared()) is not None:
        named["shares"] = shares
    named |= modelled.told
    at_end = looked is not None and looked[1] is None
    if at_end and (personal := modelled.personal()) is not None:
        named["personal accuracy"] = personal
    return named


def _named(what, values):
    return {f"{what} {name}": v for name, v in values.items()}


def differences(ours: dict, theirs: dict, part: float = 1.0) -> dict[str, str]:
    """What differs by more than a ``part`` of what may, and how."""
    found = {}
    for name in sorted({*ours, *theirs}):
        # where nothing was left out yet, that may be written down as zeros
        nothing = np.zeros(1) if " error/" in name else np.full((), np.nan)
        a, b = (
            torch.as_tensor(np.asarray(d.get(name, nothing), np.float64)) for d in (ours, theirs)
        )
        if " error/" in name:
            a, b = torch.broadcast_tensors(a, b)
        if said := _different(name, a, b, part):
            found[name] = f"{name}{said}"
    return found


def _different(name, a, b, part) -> str:
    if a.shape != b.shape:
        # what is not there at all has none
        return f" has shape {tuple(a.shape)}, not {tuple(b.shape)}"
    # which of NaN and infinity it is follows from the order of addition
    if (other := a.isfinite() != b.isfinite()).any():
        return f" holds other NaN and infinities ({int(other.sum())} of {a.numel()})"
    a, b = (torch.where(v.isfinite(), v, 0.0).flatten() for v in (a, b))
    if name.startswith("ledger"):
        return "" if bool((a == b).all()) else f" is {a.tolist()}, not {b.tolist()}"
    size, off = float(b.abs().max()) if b.numel() else 0.0, (a - b).abs()
    most = part * (BOUNDS.get(name, DERIVED) * size + LEAST)
    if not (off > most).any():
        return ""
    at, wrong = int(off.argmax()), int((off > most).sum())
    return f"[{at}] is {float(a[at]):.6g}, not {float(b[at]):.6g} ({wrong} of {off.numel()})"


def _undecided(product, modelled, found, t) -> bool:
    """Whether another order of addition explains it: a choice between two that are nearly equal, or
    a composition that makes large of small.
    """
    if modelled.open_ended:
        return True
    if any(name.startswith("ledger") for name in found):
        # but how long a round is may hang on a choice before it
        return bool(modelled.doubts) and modelled.config["round_end"]["name"] != "fixed"
    if modelled.huge:  # what overflows is not kept
        return True
    if any("shape" in said for said in found.values()):
        return False
    # of numbers that overflow, the order of addition decides which do; some have models of their own
    own = [v for memory in modelled.memory.values() for v in memory.values()]
    huge = not all((v.abs() < 1e15).all() for v in (modelled.w, modelled.reference, *own))
    # what two attackers send may cancel in one of the models alone
    sent = any(bool((v.abs() > 1e30).any()) for v in modelled.forgeries.values())
    huge |= sent and bool((product.algorithm.w.abs() >= 1e15).any())
    if modelled.doubts or huge or (modelled.tied and {*found} == {"personal accuracy"}):
        return True
    return any(set(found) <= _unsteady(product, modelled, t, n) for n in range(STIRS))


def _unsteady(product, modelled, t, n) -> set[str]:
    """What the model itself has otherwise in round t, if it starts a hair's breadth beside."""
    stirred = _model(product, STIR, n)
    for s in range(1, t + 1):
        stirred.round(s)
    return set(differences(_of_model(stirred), _of_model(modelled), 0.2))
