"""The way of the uploads from the blocks to the algorithm: a fixed order of named steps.

    arrived → forged (by malicious clients) → judged (are they finite?) → booked → rows or sums

Each step takes what arrived and returns it changed, and is the only place that does its work: a
step that is new (clipping, noise, masking) is one more function here, put where it belongs in
:meth:`orchestrator.clients.session.Session.collect`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.contract import Updates
from algorithms.finite import all_finite, finite_rows
from algorithms.local import LocalRule, Tensors
from algorithms.parts.aggregators import weighted_sum
from orchestrator.clients.books import Books, Store, Terms
from orchestrator.errors import Diverged
from orchestrator.training.memory import errors_of
from orchestrator.training.messages import ERROR, Collected, Role, role
from orchestrator.training.uplink import Uplink

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Arrived:
    """What the blocks of a session have sent, in client order."""

    ids: np.ndarray
    """Clients [m]."""
    blocks: tuple[int, ...]
    """Clients of each block."""
    vectors: dict[str, list[Tensor]]
    """name -> what each block sent: its rows [C, ...], or its part of the weighted sum [...]."""
    scalars: Tensors
    """name -> [m]."""
    diagnostics: dict[str, np.ndarray]
    """train_loss, update_norm, steps -> [m]."""
    finite: np.ndarray
    """Whether all that a client sent, and now remembers, is finite [m]."""
    counts: np.ndarray
    """Whether a client's update counts [m]."""
    states: dict[int, Tensors]
    """What each client remembers now."""
    upload_bytes: int
    """Bytes that one client transmitted."""

    @classmethod
    def of(cls, ids: np.ndarray, blocks: Sequence[Collected]) -> Arrived:
        """The answers of ``blocks``, whose clients are ``ids``."""
        first = blocks[0]
        diagnostics = {
            n: torch.cat([b.diagnostics[n] for b in blocks]).numpy() for n in first.diagnostics
        }
        return cls(
            ids=ids,
            blocks=tuple(len(b.diagnostics["finite"]) for b in blocks),
            vectors={n: [b.vectors[n] for b in blocks] for n in first.vectors},
            scalars={n: torch.cat([b.scalars[n] for b in blocks]) for n in first.scalars},
            finite=diagnostics.pop("finite"),
            diagnostics=diagnostics,
            counts=np.ones(len(ids), bool),
            states={k: state for b in blocks for k, state in b.states.items()},
            upload_bytes=first.upload_bytes,
        )

    def rows(self) -> Tensors:
        """All blocks' rows as one [m, ...] for each name."""
        return {n: torch.cat(pieces) for n, pieces in self.vectors.items()}


def forged(
    here: Arrived, terms: Terms, rule: LocalRule, when: tuple[int, int], start: Tensor
) -> Arrived:
    """The malicious clients' rows, which have come as they were before compression, replaced by
    what they send instead, and compressed like the others'.

    ``when`` is (round, session within it); ``start`` [d] or [m, d] are the models that the cohort
    started from.
    """
    forgers = np.isin(here.ids, terms.adversary.forgers)
    told = [role(n, pieces[0]) for n, pieces in here.vectors.items()]
    # of a model that stays only its statistics come here, and they are for nobody
    if not forgers.any() or not (rule.transmitted or set(told) - {Role.buffers}):
        return here
    unit = here.scalars[rule.unit] if rule.unit else None
    rows = terms.adversary.forge(
        when, here.ids, here.rows(), start, unit, rule.private, here.finite
    )
    if rule.transmitted:
        rows, here = _compressed(here, rows, forgers, terms, rule, when)
    # judged anew, by its message alone: a forged row may hold anything, whatever the client has
    # computed, of which it then remembers nothing that is no number
    if terms.non_finite != "keep":
        bad = {int(k) for k in here.ids[forgers] if not all_finite(here.states.get(int(k), {}))}
        here = replace(here, states={k: s for k, s in here.states.items() if k not in bad})
    sent = torch.stack([finite_rows(v) for v in (*rows.values(), *here.scalars.values())]).all(0)
    vectors = {n: list(v.split(list(here.blocks))) for n, v in rows.items()}
    return replace(here, vectors=vectors, finite=np.where(forgers, sent.numpy(), here.finite))


def _compressed(
    here: Arrived,
    rows: Tensors,
    forgers: np.ndarray,
    terms: Terms,
    rule: LocalRule,
    when: tuple[int, int],
) -> tuple[Tensors, Arrived]:
    """The rows of ``forgers`` (mask [m]) after their own end of the uplink, and what they remember
    of it.
    """
    ids, bad = here.ids[forgers], torch.from_numpy(forgers)
    errors = errors_of([here.states.get(int(k), {}) for k in ids], torch.device("cpu"))
    uplink = Uplink(terms.uplink, terms.seed, when, ids, rule, errors)
    messages = uplink.send({n: v[bad] for n, v in rows.items()})
    states = dict(here.states)
    for row, k in enumerate(ids.tolist()):
        left_out = {ERROR + n: v[row].clone() for n, v in uplink.errors.items()}
        states[k] = states.get(k, {}) | left_out
    sent = {n: v.index_put((bad,), messages[n]) for n, v in rows.items()}
    return sent, replace(here, states=states)


def judged(here: Arrived, rule: LocalRule, terms: Terms, books: Books) -> Arrived:
    """Updates that are not finite left out, where the policy says so; noted in the round's log.

    Raises Diverged where the policy is to fail, or where nobody's update is finite, or the server's
    own, which the others are held against, is not.
    """
    bad = here.ids[~here.finite]
    if not len(bad):
        return here
    books.log.not_finite += bad.tolist()
    if terms.non_finite == "keep":
        return here
    clients = here.finite[here.ids != terms.server]
    if terms.non_finite == "fail" or terms.server in bad or not clients.any():
        # dropping helps where somebody else is left
        spare = terms.server not in bad and clients.any()
        ways = ", set local.clip, or set non_finite to drop" if spare else ", or set local.clip"
        raise Diverged(
            f"round {books.t}: the update of {terms.named(bad)} holds NaN or infinity; lower "
            f"local.lr or the options of algorithm that scale its steps{ways}"
        )
    books.log.dropped += bad.tolist()
    books.log.uncounted += bad[~_sent_before(bad, rule, books)].tolist()
    return replace(here, counts=here.finite)


def _sent_before(ids: np.ndarray, rule: LocalRule, books: Books) -> np.ndarray:
    """Which of ``ids`` [m] train a model of their own, and have sent an update before."""
    return np.isin(ids, books.log.cohort) & (not rule.transmitted)


def booked(here: Arrived, rule: LocalRule, terms: Terms, books: Books, store: Store) -> Arrived:
    """Uploads and work in the account and the log, and the clients' new memories in the store (a
    client whose update is left out keeps its old one).
    """
    # a client that is left out has worked and sent, too
    books.ledger.received(here.ids, here.upload_bytes)
    books.ledger.worked(here.ids, here.diagnostics["steps"])
    left_out = set(here.ids[~here.counts].tolist())
    store.states |= {k: s for k, s in here.states.items() if s and k not in left_out}
    # the server's own training is no client's, so no record speaks of it; nor of what has come of
    # a model of one's own that is left out, beside an update that counts
    remote = here.ids != terms.server
    books.log.server_steps += float(here.diagnostics["steps"][~remote].sum())
    told = remote & (here.counts | ~_sent_before(here.ids, rule, books))
    diagnostics = {n: v[told] for n, v in here.diagnostics.items()}
    books.log.add(here.ids[told], diagnostics, rule.transmitted)
    return here


def rows(here: Arrived, terms: Terms) -> tuple[Updates, Tensors]:
    """Every counted client's row, and the mean of the optimiser's moments."""
    counted = torch.from_numpy(here.counts)
    ids = here.ids[here.counts]
    sent = {n: v[counted] for n, v in here.rows().items()}
    moments = {n: v.mean(0) for n, v in sent.items() if role(n, v) is Role.optimizer}
    vectors = {n: v for n, v in sent.items() if n not in moments}
    return Updates(ids, terms.samples[ids], None, vectors, _counted(here.scalars, counted)), moments


def summed(here: Arrived, weights: np.ndarray) -> Arrived:
    """Blocks' rows replaced by their parts of the sum with ``weights`` [m]; for rows that had to
    come whole because somebody forged among them.
    """
    # weighted_sum skips rows of weight 0, so a NaN in one of them stays out
    counted = np.split(weights * here.counts, np.cumsum(here.blocks)[:-1])
    vectors = {
        n: [weighted_sum(*pair) for pair in zip(pieces, counted, strict=True)]
        for n, pieces in here.vectors.items()
    }
    return replace(here, vectors=vectors)


def sums(
    here: Arrived, terms: Terms, weights: np.ndarray, there: np.ndarray
) -> tuple[Updates, Tensors]:
    """The blocks' parts of the weighted sums added up, and the weighted mean of the moments.

    ``weights`` [M] are those of the whole cohort, of which ``there`` [M] are still there. Those of
    the clients that count are scaled to the same total, whoever is left out.
    """
    ids, used = here.ids[here.counts], torch.from_numpy(weights[there][here.counts])
    all_count = there.all() and here.counts.all()
    scale = 1.0 if all_count else float(weights.sum() / used.sum())
    # moments are a mean, and weights need not sum to 1
    total = float((used * scale).sum())
    vectors = {n: in_order(pieces) for n, pieces in here.vectors.items()}
    if not all_count:
        vectors = {n: v * scale for n, v in vectors.items()}
    moments = {n: v / total for n, v in vectors.items() if role(n, v) is Role.optimizer}
    vectors = {n: v for n, v in vectors.items() if n not in moments}
    scalars = _counted(here.scalars, torch.from_numpy(here.counts))
    return Updates(ids, terms.samples[ids], used * scale, vectors, scalars), moments


def scaling(weights: np.ndarray, there: np.ndarray) -> float:
    """By what a sum over the clients that are ``there`` (mask [m]) is multiplied, to have the total
    of all ``weights`` [m]; NaN where theirs are 0.
    """
    if there.all():
        return 1.0
    left = weights[there].sum()
    return float(weights.sum() / left) if left else math.nan


def in_order(parts: Sequence[Tensor]) -> Tensor:
    """Their sum, added in the order of the blocks, whenever each came: floating-point sums depend
    on it.
    """
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total


def _counted(scalars: Tensors, counted: Tensor) -> Tensors:
    return {n: v[counted] for n, v in scalars.items()}
