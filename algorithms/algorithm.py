"""The server side of an algorithm.

The ``round`` method of an :class:`Algorithm` reads like the paper's Algorithm box. It reaches the
clients only through the :class:`~algorithms.contract.Clients` protocol, and ships a
:class:`~algorithms.local.LocalRule` to them. It owns no files, no clock and no global random
numbers; everything that it must remember between rounds is named in ``server_state``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from algorithms.contract import Broken, Clients, Cohort, Influence, Updates
from algorithms.flat import outside
from algorithms.local import LocalRule, Tensors, writes
from algorithms.part import Part
from algorithms.parts.aggregators import Combined, Mean, Rows
from algorithms.parts.iterates import Past
from algorithms.parts.ordered import coordinate_median
from algorithms.parts.round_ends import Fixed, RoundState
from algorithms.parts.samplers import Draw
from algorithms.parts.server_optimizers import ServerSgd
from algorithms.setting import Composition, Setting

if TYPE_CHECKING:
    from torch import Tensor


class AlgorithmOptions(Part):
    """Options of an algorithm, and what the algorithm asks of the parts around it."""

    algorithm: ClassVar[type[Algorithm]]
    """The server side that goes with these options."""
    defaults: ClassVar[dict[str, Any]] = {}
    """Config values that replace the general defaults where the config leaves them unset (dotted
    paths)."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """More such values for each value of the option ``presets_by``."""
    presets_by: ClassVar[str] = "preset"
    needs_whole_cohort: ClassVar[bool] = False
    """Whether the round makes no sense when a client's update is dropped (``non_finite: drop``)."""

    needs_classes: ClassVar[bool] = False
    """Whether it goes by how many samples are predicted right, which of numbers nobody can say."""
    compares_features: ClassVar[bool] = False
    """Whether its rules have a loss term on features (``references`` and ``contrast``)."""
    needs_rows: ClassVar[bool] = False
    """Whether the server looks at every client's update, whatever the aggregator."""
    sends_differences: ClassVar[bool] = False
    """Whether an upload is what the server lacks, so that error feedback would send twice what was
    left out."""
    keeps_models: ClassVar[bool] = False
    """Whether all models that are trained are the clients' own (rules with ``personal``)."""
    makes_common: ClassVar[bool] = True
    """Whether it makes one model for all, which is judged."""
    common: ClassVar[str] = ""
    """What that model is, where it need be no client's."""
    one_broadcast: ClassVar[bool] = True
    """Whether all clients of a round get the same vectors."""

    @property
    def uses_heldout(self) -> bool:
        """Whether what it makes depends on the labelled rows that the server holds out."""
        return False

    def refuses(self, parts: Composition) -> str | None:
        """Why this combination makes no sense, in one sentence; None if it does."""
        return None

    def start(self, setting: Setting, w: Tensor, buffers: Tensor) -> Algorithm:
        """The algorithm with these options, from the model ``w`` [d] with batch-norm statistics
        ``buffers`` [b]; raises ValueError if the model or the data lack what it needs.
        """
        return self.algorithm(self, setting, w, buffers)


class Algorithm:
    """Server side of a federated algorithm. A config finds a subclass by the name of its
    ``Options``, like every other part.
    """

    class Options(AlgorithmOptions):
        """Options of the algorithm."""

    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers")
    """Attributes that make up the state between rounds: tensors, arrays, numbers, or dicts of
    them."""

    options: AlgorithmOptions
    private: tuple[slice, ...] = ()
    """Which entries of the model never leave the clients (its rules' ``private``)."""

    def __init_subclass__(cls) -> None:
        # only options of its own: a subclass that inherits them must not take its parent's place
        if "Options" in vars(cls):
            cls.Options.algorithm = cls

    def __init__(
        self, options: AlgorithmOptions, setting: Setting, w: Tensor, buffers: Tensor
    ) -> None:
        """Start from the model ``w`` [d] with buffers [b] (batch-norm statistics; b may be 0)."""
        self.options = options
        self.setting = setting
        self.w = w
        self.buffers = buffers
        self.influence: Influence | None = None
        """Who counted how much last; None where an aggregate chose coordinates one by one."""
        self.memory: Tensors = {}
        """What aggregator and round end remember."""
        self.past: Past = {}
        """What ``output`` remembers of the models after rounds and their statistics."""
        self.notes: dict[str, float] = {}
        """What the aggregator has to say about the last aggregate, for the record."""
        aggregator = setting.parts.aggregator
        # rows that make no whole batch, where local.drop_last is set, are as good as none
        if aggregator.needs_reference and not setting.parts.local.planned(setting.heldout):
            raise ValueError(
                f"{aggregator.name} needs a batch of rows held out at the server; set "
                "data.heldout.per_class"
            )
        aggregator.check(setting.spec)
        self.start()

    def start(self) -> None:
        """Set the initial server state beyond ``w`` and ``buffers``."""

    def remarks(self) -> Iterator[str]:
        """What a user should know before the first round: an option that changes nothing with this
        network, say.
        """
        if self.options.common:
            yield (
                f"{self.options.name}: test_... and client_... judge {self.options.common}, which "
                "need be no client's; personal_... each client's own"
            )

    @abstractmethod
    def round(self, t: int, clients: Clients) -> dict[str, float]:
        """Run round ``t`` (from 1); returns scalars worth recording."""

    @property
    def averages(self) -> bool:
        """Whether ending a round makes the weighted mean of the local models, and nothing else: in
        mid-round that mean then is the model.
        """
        return False

    def count(self) -> None:
        """A round is over: its iterate joins the others."""
        output = self.setting.parts.output
        if output.is_a_mean:
            self.past = output.joined(self.past, self._iterate)

    @property
    def _iterate(self) -> Tensor:
        """The model and its statistics [d + b]."""
        return torch.cat([self.w, self.buffers])

    def model(self) -> Tensor:
        """The model [d] that is judged and saved."""
        return self._mean[: len(self.w)] if self.past else self.w

    def statistics(self) -> Tensor:
        """Its batch-norm statistics [b]."""
        return self._mean[len(self.w) :] if self.past else self.buffers

    @property
    def _mean(self) -> Tensor:
        return self.setting.parts.output.model(self.past, self._iterate)

    def take_buffers(self, updates: Updates) -> None:
        """The next batch-norm statistics, where the clients sent theirs, weighted as their updates.

        Where an aggregator chose coordinates one by one, they are the coordinate-wise median.
        """
        if "buffers" not in updates.vectors:
            return
        if updates.weights is not None:
            self.buffers = updates.mean("buffers")
            return
        rows = updates.rows("buffers")
        if self.influence is not None:
            self.buffers = self.mixed_buffers(self.influence, rows)
        elif (usable := rows.isfinite().all(1)).any():
            self.buffers = coordinate_median(rows[usable])

    def mixed_buffers(self, influence: Influence, rows: Tensor) -> Tensor:
        """The next statistics [b] from those that clients sent [m, b], by their ``influence``.

        Rows that are not finite (they get here under ``non_finite: keep``) do not count; with none
        that does, the old ones stay.
        """
        usable = influence.weights * rows.isfinite().all(1).numpy()
        if not usable.any():
            return self.buffers
        return Influence.of(influence.clients, np.arange(len(usable)), usable).combine(rows)

    def by_client(self) -> dict[str, np.ndarray]:
        """What the algorithm has to say of each client now: column -> [N]."""
        return {}

    def personal_models(self) -> Tensor | None:
        """Models [N, d] of the clients, if the server keeps one for each (clusters, gossip)."""
        return None

    def personal_rule(self) -> LocalRule | None:
        """The rule whose ``begin`` yields each client's personal model, if the algorithm keeps such
        models; of those that the server keeps, where they are trained by another than
        :class:`algorithms.local.GivenModel`, it says whose batch-norm statistics are theirs.
        """
        return None

    def train(
        self,
        t: int,
        clients: Clients,
        cohort: Cohort,
        rule: LocalRule,
        received: Tensors,
        known: Tensors | None = None,
        own: Tensors | None = None,
        weights: np.ndarray | Callable[[], np.ndarray] | None = None,
    ) -> tuple[Updates, dict[str, float]]:
        """A cohort's local training up to the config's round end; what it sends, and scalars worth
        recording.

        The other arguments are those of :meth:`Clients.train` and :meth:`Training.collect`;
        ``weights`` that rest on answers of the clients are asked for when these have the model.
        """
        end = self.setting.parts.round_end
        about = self.round_state(t, cohort, received.get("w", self.w))
        shown = writes(about.w)
        all_here = np.count_nonzero(cohort.ids != self.setting.server) == self.setting.clients
        # or else some may have missed the last broadcast, from which they would work it out, as
        # nobody can from a compressed one; asked first, because end.known changes the memory that
        # the answer rests on
        heard = (all_here and not self.setting.parts.compressed_down) or not end.follows(about)
        received, known, needed = dict(received), dict(known or {}), end.known(about)
        (known if heard else received).update(needed)
        with clients.train(cohort, rule, received, known, own) as training:
            chosen = weights() if callable(weights) else weights
            report = end.run(training, about)
            if writes(about.w) != shown:
                raise Broken(
                    f"round end {end.name}: it changes about.w in place, which is the model that "
                    "was sent; change a copy"
                )
            updates = training.collect(chosen)
        if needed and not heard:
            each = sum(v.numel() * v.element_size() for v in needed.values())
            remote = np.count_nonzero(cohort.ids != self.setting.server)
            report = {**report, "bytes_direction": float(each * remote)}
        return updates, report

    def round_state(self, t: int, cohort: Cohort, w: Tensor) -> RoundState:
        """What a round end may know."""
        parts = self.setting.parts
        # a server that trains beside the clients sets no pace and is no part of their variance
        remote = cohort.ids != self.setting.server
        most = int(self.setting.samples[cohort.ids[remote]].max(initial=0)) or self.setting.heldout
        beside = bool(remote.any() and not remote.all())
        taking_part = remote if beside else np.ones(len(cohort), bool)
        one = max(1, parts.local.steps_per_epoch(most))
        work = parts.local.steps or (parts.local.epochs or 1) * one
        # what is asked of the variance is about the mean that a synchronisation makes (Eq. 3.4)
        sizes, counts = self.setting.sizes(cohort.ids)[taking_part], cohort.counts[taking_part]
        found = self._weights(sizes, counts)
        weights = np.zeros(len(cohort))
        weights[taking_part] = counts / counts.sum() if found is None else found
        return RoundState(self.setting.seed, t, w, self.memory, one, work, weights, beside)

    def draw(self, t: int) -> Cohort:
        """The cohort S_t from the config's sampler, and the server itself where the aggregator asks
        for its update.
        """
        parts, samples = self.setting.parts, self.setting.samples.view()
        samples.flags.writeable = False  # the run goes on with them
        draw = Draw(self.setting.seed, t, samples)
        drawn = np.asarray(parts.sampler.sample(draw, parts.cohort))
        if wrong := parts.sampler.wrong(drawn, draw.clients, parts.cohort):
            raise Broken(f"sampler {parts.sampler.name}: it draws {wrong}"[:300])
        return Cohort.of(
            np.append(drawn, self.setting.server) if parts.aggregator.needs_reference else drawn
        )

    def weights(self, cohort: Cohort) -> np.ndarray | None:
        """The aggregator's weights for ``cohort`` [m], or None if it needs the rows. Raises Broken
        for what are no weights.
        """
        return self._weights(self.setting.sizes(cohort.ids), cohort.counts)

    def _weights(self, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
        aggregator = self.setting.parts.aggregator
        found = aggregator.weights(sizes, counts)
        if found is None:
            return None
        if found.shape != sizes.shape or not (found >= 0).all() or abs(found.sum() - 1) > 1e-6:
            raise Broken(
                f"aggregator {aggregator.name}: the weights of {len(sizes)} clients are "
                f"{np.array2string(found, threshold=6)}, and not as many of 0 or more, of sum 1"
            )
        return found

    def aggregate(self, updates: Updates, name: str) -> Tensor:
        """The aggregate [d] of the uploads ``name`` by the config's aggregator; notes who counted
        how much.
        """
        if updates.weights is not None:
            return self.mean(updates, name)
        # the server's own update is what the others are held against, not one of them
        servers = torch.from_numpy(updates.clients == self.setting.server)
        combined = self._combined(updates, name, servers)
        made, wanted = tuple(combined.vector.shape), tuple(updates.rows(name).shape[1:])
        if made != wanted:
            raise Broken(
                f"aggregator {self.setting.parts.aggregator.name}: of updates of shape {wanted} it "
                f"makes one of shape {made}"
            )
        self.influence, self.notes = None, combined.report
        # fltrust and clipping rescale updates: their weights say how far, their shares how much
        shares = combined.weights if combined.shares is None else combined.shares
        if shares is not None:
            self._require_shares(shares, int((~servers).sum()))
            full = torch.zeros(len(servers), dtype=torch.float64)
            full[~servers] = shares.double()
            self.influence = Influence(updates.clients, full.numpy())
        return self._with_private(combined.vector, updates.rows(name), ~servers)

    def mean(self, updates: Updates, name: str) -> Tensor:
        """The sum [d] of the uploads ``name`` by the weights that they were collected with; notes
        who counted how much. Raises TypeError for rows.
        """
        total = updates.mean(name)
        assert updates.weights is not None
        self.influence, self.notes = Influence(updates.clients, updates.weights.numpy()), {}
        return total

    def _require_shares(self, shares: Tensor, clients: int) -> None:
        """Raise Broken for what are no parts of the aggregate; a method may have used nobody."""
        if shares.shape != (clients,) or (shares < 0).any():
            raise Broken(
                f"aggregator {self.setting.parts.aggregator.name}: the shares of {clients} clients "
                f"are {str(shares.tolist())[:100]}, and not as many numbers of 0 or more"
            )

    def _combined(self, updates: Updates, name: str, servers: Tensor) -> Combined:
        """What the config's aggregator makes of the rows but those of ``servers`` (mask [m])."""
        rows = updates.rows(name)
        if self.private:
            # what never leaves the clients cannot tell them apart
            rows = rows.clone()
            rows[:, ~outside(self.private, rows.shape[1])] = 0.0
        return self.setting.parts.aggregator.combine(
            Rows(
                rows[~servers] if servers.any() else rows,
                updates.samples[~servers.numpy()],
                rows[servers][0] if servers.any() else None,
                self.memory,
                self.setting.spec,
            )
        )

    def _with_private(self, vector: Tensor, rows: Tensor, clients: Tensor) -> Tensor:
        """An aggregate with the mean of the private entries, which nobody transmits, for the
        server's own model.
        """
        if not self.private:
            return vector
        usable = clients & rows.isfinite().all(1)
        inner = ~outside(self.private, rows.shape[1])
        mean = rows[usable].mean(0) if usable.any() else torch.zeros_like(vector)
        return torch.where(inner, mean, vector)

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint must hold of the server side."""
        return {name: getattr(self, name) for name in self.server_state} | {
            "memory": self.memory,
            "past": self.past,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        for name in (*self.server_state, "memory", "past"):
            setattr(self, name, state[name])


def steps_by_itself(name: str, parts: Composition) -> str | None:
    """Refusal of parts by algorithms that average and step by themselves; None if they fit."""
    if not isinstance(parts.aggregator, Mean):
        return f"{name} averages in its own way; leave aggregator at mean"
    if parts.server_optimizer != ServerSgd():
        return f"{name} has its own server step; leave server_optimizer at plain sgd"
    if not parts.sampler.distinct:
        return (
            f"{name} needs distinct clients, and the sampler {parts.sampler.name!r} may repeat them"
        )
    return None


def fixed_work(name: str, parts: Composition) -> str | None:
    """Refusal of round ends that watch a common model by algorithms that have none, or None."""
    if not isinstance(parts.round_end, Fixed):
        return f"{name} has no one model that its clients drift from; leave round_end at fixed"
    return None


def nothing_sent(name: str, parts: Composition) -> str | None:
    """Refusal of what is for models that go to a server by algorithms without such, or None."""
    if parts.compressed:
        return f"{name} sends nothing through the server; leave compression at none"
    if parts.local.optimizer_state == "average":
        return f"{name} has no server that averages; set local.optimizer_state to reset or keep"
    return None


def everyone(name: str, parts: Composition) -> str | None:
    """Refusal of partial cohorts by algorithms that need all clients in every round, or None."""
    if parts.cohort != parts.clients:
        return (
            f"{name} needs all {parts.clients} clients in every round, not {parts.cohort}; set "
            "cohort to 1.0"
        )
    return None


def uniform(cohort: Cohort) -> np.ndarray:
    """Weights [m], 1/m for each draw (float64, sum 1)."""
    return cohort.counts / cohort.counts.sum()
