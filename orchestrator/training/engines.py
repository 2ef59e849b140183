"""Mini-batch gradients of one client, or of many at once: the same mathematics, run in two ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from algorithms.local_config import Precision
from algorithms.parts.losses import Loss
from orchestrator.models.net import Net
from orchestrator.plugins.own import Own
from orchestrator.training.precision import multiplying

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.training.tracing import Function

T = TypeVar("T")


@dataclass(frozen=True)
class Contrast:
    """Loss terms beside the loss itself (see :meth:`algorithms.local.LocalRule.contrast`)."""

    models: list[Tensor]
    """Reference models [C, d]."""
    buffers: Tensor
    """Batch-norm statistics [C, b] of the local models, which the reference models use too."""
    term: Callable[[Tensor, list[Tensor]], Tensor]


class Engine(ABC):
    """Computes gradients of the mean loss on a mini-batch."""

    def __init__(self, net: Net, loss: Loss, precision: Precision = "float32") -> None:
        self.net, self.loss, self.precision = net, loss, precision

    def multiplying(self, x: Tensor) -> AbstractContextManager[object]:
        """Where the network is called on inputs ``x``."""
        return multiplying(self.precision, x.device.type)

    def _leaves(self, tensors: Sequence[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Leaves of their own for autograd, which share the memory of the models' ``tensors``: by
        name, and in order.
        """
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        return dict(zip(self.net.spec.names, leaves, strict=True)), leaves

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        """What :meth:`attach` takes for models [C, d], buffers [C, b]; made once for all steps."""
        return []

    def attach(self, views: list[Tensor]) -> None:
        """Announce the models and buffers that the next steps change in place, in training mode."""
        # an evaluation has left it in its mode; train() walks over all modules, so not every time
        if not self.net.module.training:
            self.net.module.train()

    @abstractmethod
    def count(self, sizes: Tensor, y: Tensor) -> Hashable:
        """Get ready for batches of targets y [C, B, ...], whose first ``sizes`` [C] rows count;
        what of them decides which operations :meth:`gradients` does.
        """

    @abstractmethod
    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        """Losses [C] and, in ``out`` [C, d], gradients at ``w`` [C, d] for inputs x [C, B, ...],
        targets y [C, B] (numbers: [C, B, o]).

        Only the first ``sizes[c]`` rows of client c's batch count; ``sizes`` [C] lies on the CPU.
        """


class Records:
    """Recorded computations (:mod:`orchestrator.training.tracing`) by what they were recorded of,
    those that were used last.
    """

    def __init__(self, after: int = 0) -> None:
        """``after``: uses of one kind before it is worth its recording."""
        self.after = after
        self.kept: dict[Hashable, int | OnTrial | Function | None] = {}
        self.candidate: Hashable = None
        """The kind on trial that was asked for last."""

    def find(
        self,
        its: Hashable,
        function: Function,
        inputs: tuple[Tensor, ...],
        delivered: int,
        trusted: bool = False,
    ) -> Function | None:
        """What ``function`` was recorded as, which ``its`` tells from others; None where it cannot
        be, or not yet. A record that is ``trusted`` is used at once, and its products may be
        turned; of others some uses show whether they give the very bits of the computation itself
        (:meth:`judge`). Arguments as of :func:`orchestrator.training.tracing.trace`.
        """
        # on a GPU autograd works in a thread of its own, which no recorder sees
        if inputs[0].is_cuda:
            return None
        key = (its, *((t.shape, t.stride(), t.dtype) for t in inputs))
        found = self.kept.get(key, 0)
        if isinstance(found, int):
            few = found < self.after
            found = found + 1 if few else _recorded(function, inputs, delivered, trusted)
        keep(self.kept, key, found, RECORDS)
        self.candidate = key if isinstance(found, OnTrial) else None
        return None if isinstance(found, int | OnTrial) else found

    def judge(self, inputs: tuple[Tensor, ...], *outputs: Tensor) -> None:
        """Compare a record on trial, if that was found last, with what came of the computation
        itself: it is used after some in which all bits were the same, and never after another one.
        """
        key, self.candidate = self.candidate, None
        trial = self.kept.get(key) if key is not None else None
        if isinstance(trial, OnTrial):
            self.kept[key] = trial.after(inputs, outputs)


@dataclass(frozen=True)
class OnTrial:
    """A record that is not trusted yet: code of others may do what a function of its tensors does
    not (hooks on parameters, references to them, a memory of its own, numbers read past torch).
    """

    function: Function
    left: int = 3
    """Uses to come that must be equal."""
    tries: int = 20
    """How long it waits for gradients that have been 0 so far; those of tensors that nothing uses
    always are."""
    seen: frozenset[int] = frozenset()
    """Of the delivered tensors, those that have not been 0 in some use: where all is 0 (a margin
    that is met, say), whatever makes a difference to it makes none."""

    def after(
        self, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> OnTrial | Function | None:
        """What it is after one more; of the ``outputs`` all but the last are delivered."""
        from orchestrator.training.tracing import same

        delivered = [torch.empty_like(tensor) for tensor in outputs[:-1]]
        try:
            made = self.function(*inputs, *delivered)
        except Exception:  # what it was made of does not stand for what comes
            return None
        if not same((*delivered, *made), outputs):
            return None
        seen = self.seen | {i for i, tensor in enumerate(delivered) if tensor.any()}
        if self.left <= 1 and len(seen) == len(delivered):
            return self.function
        if self.tries <= 1:
            return self.function if seen else None
        return OnTrial(self.function, self.left - 1, self.tries - 1, seen)


def _recorded(
    function: Function, inputs: tuple[Tensor, ...], delivered: int, trusted: bool
) -> OnTrial | Function | None:
    # it extends a class of torch's: above, it would load torch for commands that train nothing
    from orchestrator.training.tracing import trace

    made = trace(function, inputs, delivered, exactly=not trusted)
    return made if made is None or trusted else OnTrial(made)


RECORDS = 64
"""Kinds of computations that an engine keeps: there is one for each number of clients that still
train, and for each width of their batches."""
WORTH_IT = 50
"""Steps of one shape after which a client's step is recorded: that takes as long as a few dozen of
them, and saves a tenth of each."""


class Sequential(Engine):
    """One client (C = 1): the module's own tensors are views of the client's vector.

    Gradients are those of the whole mini-batch, computed in pieces of ``piece`` rows (None: at
    once) and added. What is done often is recorded, and gives the same bits.
    """

    def __init__(
        self, net: Net, loss: Loss, precision: Precision = "float32", piece: int | None = None
    ) -> None:
        super().__init__(net, loss, precision)
        self.piece = piece
        # statistics are written to, draws are other ones each time, and what hangs on a parameter
        # is not called of what stands in its place
        hooked = any(tensor._backward_hooks for tensor in net.module.parameters())
        self.lasting = not (net.buffer_spec.size or net.stochastic or hooked)
        self.records = Records(after=WORTH_IT)
        self.functional = net.functional()
        self.tensors: list[Tensor] = []

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        return self.net.views(w[0], buffers[0])

    def attach(self, views: list[Tensor]) -> None:
        self.tensors = views
        self.net.attach(views)
        super().attach(views)

    def count(self, sizes: Tensor, y: Tensor) -> Hashable:
        return int(sizes[0])

    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        n = int(sizes[0])
        x, y = x[0, :n], y[0, :n]
        if self.piece is None or n <= self.piece:
            if contrast is None and self.lasting:
                return self._plain_step(x, y, out)
            loss = self._mean(x, y, contrast)
            self.net.gradient(loss, out[0])
            return loss.detach().unsqueeze(0)
        out.zero_()
        part, total = torch.empty_like(out[0]), torch.zeros(1, device=out.device)
        for some, theirs in zip(x.split(self.piece), y.split(self.piece), strict=True):
            loss = self._mean(some, theirs, contrast) * (len(some) / n)
            out[0] += self.net.gradient(loss, part)
            total += loss.detach()
        return total

    def _plain_step(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """A step that is recorded once it was done often."""
        inputs, views = (x, y, *self.tensors), [*self.net.spec.views(out[0]).values()]
        recorded = self.records.find((), self._compute, inputs, len(self.tensors))
        if recorded is not None:
            return recorded(*inputs, *views)[0]
        loss = self._mean(x, y, None)
        self.net.gradient(loss, out[0])
        found = loss.detach().unsqueeze(0)
        self.records.judge(inputs, *views, found)
        return found

    def _compute(self, x: Tensor, y: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Gradients by tensor, and the loss [1]: as in :meth:`gradients`, as a function."""
        params, leaves = self._leaves(tensors)
        loss = self._plain(partial(self.functional, params), x, y)
        grads = torch.autograd.grad(loss, leaves, materialize_grads=True)
        return (*grads, loss.detach().unsqueeze(0))

    def _plain(self, network: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
        with self.multiplying(x):
            logits = network(x)
        return self.loss.mean(logits.float(), y)

    def _mean(self, x: Tensor, y: Tensor, contrast: Contrast | None) -> Tensor:
        """The mean loss of rows of a mini-batch."""
        if contrast is None:
            return self._plain(self.net.module, x, y)
        with self.multiplying(x):
            logits, features = self.net.featured(x)
            with torch.no_grad():
                others = [self.net.at(m[0], contrast.buffers[0], x)[1] for m in contrast.models]
        term = contrast.term(features[None].float(), [z[None].float() for z in others])
        return self.loss.mean(logits.float(), y) + term.mean()


class Vectorized(Engine):
    """C clients as one batched computation over stacked parameters (``torch.func.vmap``), which is
    recorded once for each shape and replayed (:mod:`orchestrator.training.tracing`).

    For networks without buffers and without dropout; a client's bits depend on the block it is in,
    but on nothing else.
    """

    def __init__(self, net: Net, loss: Loss, precision: Precision = "float32") -> None:
        super().__init__(net, loss, precision)
        self.forward = torch.func.vmap(net.functional())
        self.featured = torch.func.vmap(net.functional(featured=True))
        self.records = Records()
        self.known = is_known(loss, *net.module.modules())
        self.attached: list[Tensor] = []
        self.shares: dict[torch.Size, tuple[list[int], Tensor]] = {}

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        return list(self.net.spec.views(w).values())

    def attach(self, views: list[Tensor]) -> None:
        self.attached = views
        super().attach(views)

    def count(self, sizes: Tensor, y: Tensor) -> Hashable:
        self._shares(sizes, y)
        return ()

    def _shares(self, sizes: Tensor, y: Tensor) -> Tensor:
        """How much each row counts [C, B], of each shape in memory that stays: recorded steps read
        it there.
        """
        counted, shares = self.shares.get(y.shape[:2], ([], torch.empty(0)))
        if counted != sizes.tolist():
            now = shares_of(sizes, y)
            shares = shares.copy_(now) if counted else now
            self.shares[y.shape[:2]] = sizes.tolist(), shares
        return shares

    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        models = contrast.models if contrast else []
        inputs = (x, y, self._shares(sizes, y), *(v[: len(w)] for v in self.attached), *models)
        recorded = self._recorded(contrast, inputs)
        if recorded is not None:
            return recorded(*inputs, *self.net.spec.views(out).values())[0]
        *grads, means = self._compute(contrast.term if contrast else None, *inputs)
        self.net.spec.write(grads, out)
        self.records.judge(inputs, *self.net.spec.views(out).values(), means)
        return means

    def _recorded(self, contrast: Contrast | None, inputs: tuple[Tensor, ...]) -> Function | None:
        """What was recorded of :meth:`_compute`, if it can be: it writes the gradients to further
        inputs.
        """
        term = contrast.term if contrast else None
        its = lasting(term)
        if its is None:
            return None
        trusted = self.known and (term is None or is_known(getattr(term, "__self__", None)))
        compute = partial(self._compute, term)
        return self.records.find(its, compute, inputs, len(self.attached), trusted)

    def _compute(
        self,
        term: Callable[[Tensor, list[Tensor]], Tensor] | None,
        x: Tensor,
        y: Tensor,
        counted: Tensor,
        *vectors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Gradients by tensor, each [C, ...], and losses [C]; of the ``vectors``, those after the
        parameters are reference models [C, d].
        """
        names = self.net.spec.names
        params, leaves = self._leaves(vectors[: len(names)])
        with self.multiplying(x):
            logits, features = self.featured(params, x) if term else (self.forward(params, x), x)
            with torch.no_grad():
                views = [self.net.spec.views(m) for m in vectors[len(names) :]]
                others = [self.featured(v, x)[1].float() for v in views]
        outputs = logits.float().flatten(0, 1)
        losses = self.loss.per_sample(outputs, y.flatten(0, 1)).view(y.shape[:2])
        if term is not None:
            losses = losses + term(features.float(), others)
        means = (losses * counted).sum(1)
        # no client's mean depends on another's parameters: the sum's gradient is each one's own
        grads = torch.autograd.grad(means.sum(), leaves, materialize_grads=True)
        return (*grads, means.detach())


def keep(kept: dict[Hashable, T], key: Hashable, value: T, most: int) -> None:
    """Put a value behind the others, of which those stay that were put there last: ``most``."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


KNOWN = ("algorithms", "orchestrator", "torch")
"""Packages whose code does with tensors what a record of it says."""


def is_known(*parts: object) -> bool:
    """Whether a loss, modules and rules are our code or torch's, and nobody has hung code of his
    own on them.
    """
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any(
        type(one).__module__.partition(".")[0] not in KNOWN
        or isinstance(one, Own)
        or any(getattr(one, hook, None) for hook in hooks)
        or "forward" in getattr(one, "__dict__", ())
        for one in parts
    )


def lasting(term: Callable[..., Tensor] | None) -> tuple[Hashable, ...] | None:
    """What tells a rule's loss term from others (none: ``()``), though an equal rule comes with
    each block; None where nothing does.
    """
    if term is None:
        return ()
    owner, function = getattr(term, "__self__", None), getattr(term, "__func__", None)
    its = None if owner is None else told_apart(owner)
    return None if its is None else (function, its)


def told_apart(rule: object) -> Hashable | None:
    """What tells a rule from others, though an equal one comes with each block: its class and its
    fields (as a dataclass; of those that it compares); None where it holds anything else.
    """
    known = fields(rule) if is_dataclass(rule) else ()
    slots = [vars(cls).get("__slots__", ()) for cls in type(rule).__mro__]
    held = {*getattr(rule, "__dict__", ())}.union(
        *((s,) if isinstance(s, str) else s for s in slots)
    )
    if not held <= {field.name for field in known}:
        return None
    try:
        return type(rule), tuple(_comparable(getattr(rule, f.name)) for f in known if f.compare)
    except (AttributeError, TypeError):
        return None


def _comparable(value: object) -> Hashable:
    """Raises TypeError for what has no hash, or one that is not of its numbers."""
    if isinstance(value, torch.Tensor):
        raise TypeError
    if isinstance(value, tuple):
        return tuple(_comparable(one) for one in value)
    # which have none before Python 3.12
    if isinstance(value, slice):
        return slice, value.start, value.stop, value.step
    hash(value)
    return value


def shares_of(sizes: Tensor, y: Tensor) -> Tensor:
    """1/size in a client's true rows, which are the first ``sizes`` [C] of targets y [C, B, ...], 0
    in the padding [C, B]: each mean is over the true batch.
    """
    here, places = sizes.to(y.device), torch.arange(y.shape[1], device=y.device)
    return (places < here.unsqueeze(1)) / here.unsqueeze(1)


def _pads(module: torch.nn.Module) -> bool:
    if not isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag):
        return False
    return module.padding_idx is not None or module.scale_grad_by_freq


def vectorizable(net: Net) -> str | None:
    """Why this network cannot be trained vectorised, or None if it can."""
    if net.buffer_spec.size:
        return "it has batch-norm statistics, which a padded batch would change"
    if net.mixes:
        return "what it makes of an input in training depends on the others of the batch"
    masks = getattr(net.module, "masks_padding", False)
    if not masks and any(_pads(module) for module in net.module.modules()):
        return "torch does not heed padding_idx and scale_grad_by_freq of embeddings then"
    if net.unstacked:
        return f"torch cannot batch it over clients ({net.unstacked[:200]})"
    if net.stochastic:
        return "it may have dropout, whose draws could not be keyed by client"
    if any(isinstance(module, torch.nn.RNNBase) for module in net.module.modules()):
        return "it has recurrent layers, which torch cannot batch over clients"
    return None
