"""A module seen as a flat vector: what trainers and evaluators work on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from algorithms.draws import torch_seed
from algorithms.flat import ParamSpec, floating_buffers, reach, trainable
from orchestrator.models.base import Model

if TYPE_CHECKING:
    from torch import Tensor


class Net:
    """One module, its parameter layout, its buffer layout, and its initial vectors.

    The module's parameters can be bound to a flat vector: they become views of it, so that a
    training step on the vector is a training step on the module and nothing is copied.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Raises ValueError as :func:`require_float32`."""
        require_float32(module)
        require_own_memory(module)
        # a module that has never been told is in training mode, but not by its own train(), which
        # may leave parts of it in the other (statistics that are frozen, say)
        module.train()
        self.module = module
        self.params = trainable(module)
        self.buffers = floating_buffers(module)
        for buffer in self.buffers.values():
            # as it will be in training, so that a network is tried as it is trained
            buffer.data = buffer.data.float()
        self.spec = ParamSpec.of(self.params)
        self.buffer_spec = ParamSpec.of(self.buffers)
        self.initial = self.spec.flatten(self.params)
        self.initial_buffers = self.buffer_spec.flatten(self.buffers)
        self.may_draw = False
        """Whether more of it than the modules tell may draw random numbers in training."""
        self.mixes = False
        """Whether its outputs in training are known to depend on the other inputs of the batch."""
        self.unstacked = ""
        """Why torch cannot compute it for several clients at once, where that was tried."""

    @classmethod
    def of(cls, model: Model, shape: tuple[int, ...], classes: int, seed: int) -> Net:
        """Build ``model`` with initial weights that are a function of ``seed`` alone."""
        # modules draw from torch's global generator, which is put back afterwards
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "model"))
            return cls(model.create(shape, classes))

    @cached_property
    def stochastic(self) -> bool:
        """Whether training may draw random numbers inside the network (dropout)."""
        nn = torch.nn
        drops = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
        return self.may_draw or any(
            getattr(m, "may_draw", False) or (isinstance(m, drops) and m.p > 0)
            for m in self.module.modules()
        )

    def to(self, device: torch.device) -> Net:
        """Move what is not in the flat vectors (frozen tensors, integer buffers) to ``device``."""
        self.module.to(device)
        return self

    def bind(self, w: Tensor, buffers: Tensor) -> None:
        """Make the module's parameters and statistics views of ``w`` [d] and ``buffers`` [b]."""
        self.attach(self.views(w, buffers))

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        """``w`` [d] and ``buffers`` [b] in the shapes of the module's parameters and statistics."""
        return [*self.spec.views(w).values(), *self.buffer_spec.views(buffers).values()]

    def attach(self, views: list[Tensor]) -> None:
        """Make the module's parameters and statistics these views, which :meth:`views` made."""
        for tensor, view in zip(
            (*self.params.values(), *self.buffers.values()), views, strict=True
        ):
            # behind the back of autograd: the parameters stay leaves
            tensor.data = view

    def gradient(self, loss: Tensor, out: Tensor) -> Tensor:
        """∇ loss as a flat vector written to ``out`` [d]."""
        # zeros for parameters that the loss does not depend on
        grads = torch.autograd.grad(loss, list(self.params.values()), materialize_grads=True)
        return self.spec.write(grads, out)

    def functional(self, featured: bool = False) -> Callable[[dict[str, Tensor], Tensor], Any]:
        """The module as a function of its named parameters and one batch of inputs: logits, or
        (logits, features).
        """

        def forward(params: dict[str, Tensor], x: Tensor) -> Any:
            if not featured:
                return self._called(params, x)
            # before the call: the first look at it registers the hook
            box = self._features
            return self._called(params, x), box.pop()

        return forward

    def featured(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, classes] and features [B, F] (the last layer's inputs) of the bound model."""
        box = self._features
        return self.module(x), box.pop()

    def at(self, w: Tensor, buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same of the model ``w`` [d], whose statistics are left as they are."""
        # copies of the statistics, which a pass in training mode changes in place
        tensors = self.spec.views(w) | {
            n: b.clone() for n, b in self.buffer_spec.views(buffers).items()
        }
        box = self._features
        return self._called(tensors, x), box.pop()

    def _called(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """The module's outputs with these tensors in the place of its own."""
        tied = {other: tensors[name] for other, name in self._ties.items()}
        made: Tensor = torch.func.functional_call(
            self.module, tensors | tied, (x,), tie_weights=False
        )
        return made

    @cached_property
    def _ties(self) -> dict[str, str]:
        """Further names of parameters that several modules share. (torch's own look at them leaves
        a module that is used in several places with tensors that are not its own.)
        """
        known = {id(tensor): name for name, tensor in self.params.items()}
        found = {}
        for other, tensor in self.module.named_parameters(remove_duplicate=False):
            name = known.get(id(tensor), other)
            owner, own = other.rpartition(".")[0], name.rpartition(".")[0]
            if self.module.get_submodule(owner) is not self.module.get_submodule(own):
                found[other] = name
        return found

    @cached_property
    def _features(self) -> list[Tensor]:
        """Holds what entered the last layer in the latest forward pass: of those that own tensors,
        the one that was called last, wherever the module's class names it.
        """
        box: list[Tensor] = []

        def keep(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs and isinstance(inputs[0], torch.Tensor):
                box[:] = [inputs[0].flatten(1)]

        for name in self.spec.layers:
            self.module.get_submodule(name).register_forward_pre_hook(keep)
        return box


def require_float32(module: torch.nn.Module) -> None:
    """Raise ValueError for a parameter that training would change and that is not float32, as the
    flat vector is; and for a tensor without a shape, or of a type of which no digest can be made.
    """
    if isinstance(module, torch.nn.DataParallel):
        raise ValueError("model: DataParallel is a network on several GPUs; give its .module")
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise ValueError(
                f"model: {name} has no shape yet: call the network once on an input first, or give "
                "its layers their sizes (no Lazy modules)"
            )
        if tensor.is_complex() and tensor.requires_grad:
            raise ValueError(
                f"model: the parameter {name} is {tensor.dtype}, and real numbers are trained: "
                "make two parameters of it, and torch.complex of these in forward"
            )
        if tensor.requires_grad and tensor.dtype != torch.float32:
            raise ValueError(
                f"model: the parameter {name} is {tensor.dtype}, and torch.float32 is what is "
                "trained: make the network so (module.float())"
            )
        if not _in_numpy(tensor.dtype):
            raise ValueError(
                f"model: {name} is {tensor.dtype}, which NumPy does not have, and so no digest can "
                "be made of it: make it torch.float32"
            )


def require_own_memory(module: torch.nn.Module) -> None:
    """Raise ValueError for two tensors that share memory, of which training changes one (in the
    flat vector each has a place of its own), and for hooks that no gradient here calls.
    """
    statistics, taken = floating_buffers(module), []
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise ValueError(
                f"model: the parameter {name} has a hook for when its gradient is in .grad, where "
                "none is put here; use its register_hook"
            )
        begin, end = extent(tensor)
        if begin < end:
            taken.append((begin, end, name, tensor))
    taken.sort(key=lambda one: one[:3])
    before: list[tuple[int, int, str, Tensor]] = []
    for one in taken:
        before = [other for other in before if other[1] > one[0]]
        for _, _, name, tensor in before:
            changes = any(t.requires_grad or n in statistics for n, t in ((name, tensor), one[2:]))
            if changes and _share(tensor, one[3]):
                raise ValueError(
                    f"model: {name} and {one[2]} share memory, and training would change them "
                    "apart: use one of them in both places, or parts of it in forward"
                )
        before.append(one)


def extent(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor's memory begins, and ends; of what has none, nowhere."""
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.numel():
        return 0, 0
    begin = tensor.data_ptr()
    return begin, begin + reach(tensor.shape, tensor.stride()) * tensor.element_size()


def _share(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors whose memory reaches into one another's have an entry in common: columns
    of a matrix have none.
    """
    size = one.element_size()
    (begin, end), (first, last) = extent(one), extent(other)
    if size != other.element_size() or (first - begin) % size:
        return True
    start = min(begin, first)
    marks = torch.zeros((max(end, last) - start) // size, dtype=torch.bool)
    marks.as_strided(one.shape, one.stride(), (begin - start) // size).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), (first - start) // size).any())


def _in_numpy(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except (TypeError, RuntimeError):  # also for quantised numbers
        return False
    return True
