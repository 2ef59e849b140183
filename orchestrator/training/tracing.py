"""A computation written down operation by operation, and done again without the Python around it.

``vmap`` and autograd start some hundred small operations for a step of a small network, and the
time goes into starting them: each passes through Python, batching rules and the graph that
derivatives are made from. Of a computation whose operations depend on the shapes of its inputs
alone, what reaches the kernels can be recorded once and replayed. (``make_fx`` records the same,
but imports for a second and 150 MB before it begins.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from orchestrator.training.simplifying import deliver, exact, stored, turn_products

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., "tuple[Tensor, ...]"]
IRREGULAR = frozenset((torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output))
"""Marks of operations that draw numbers, or give Python a value to decide by."""


def trace(
    function: Function, inputs: Sequence[Tensor], delivered: int = 0, exactly: bool = False
) -> Function | None:
    """What ``function`` does to tensors of the shapes and types of ``inputs``, as a function; of
    its results the first ``delivered`` are not returned, but written to as many further inputs.

    The results are ``function``'s, ``exactly``, or but for the rounding of products that are
    computed the other way round (:func:`orchestrator.training.simplifying.turn_products`). None
    where what is done is not a matter of shapes alone, as far as can be told: where a random number
    is drawn, a value is read, a tensor is written to that is not its own, or a second evaluation
    has other bits.
    """
    recorder = Recorder(inputs)
    try:
        with Reading(), recorder:
            outputs = function(*inputs)
        graph, constants = recorder.finish(outputs), recorder.constants
        exact(graph, constants)
        again = _program(graph, constants)(*inputs)
    # what was left out may have been needed after all: for a view of what it made, say
    except (Unrecordable, RuntimeError):
        return None
    if not same(again, function(*inputs)):
        return None
    if not exactly:
        turn_products(graph)
    deliver(graph, delivered)
    # the example's tensors
    for node in graph.nodes:
        node.meta.clear()
    return _program(graph, constants)


def _program(graph: torch.fx.Graph, constants: dict[str, Tensor]) -> Function:
    """The record as a function."""
    root = torch.nn.Module()
    for node in graph.nodes:
        if node.op == "get_attr":
            root.register_buffer(node.target, constants[node.target])
    return torch.fx.GraphModule(root, graph).forward


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors are equal, and NaN where the others are: of a diverged model, too."""
    pairs = zip(ones, others, strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


class Unrecordable(BaseException):
    """An operation that does not do the same each time; no Exception, which code of others may
    catch on its way.
    """


class Reading(TorchFunctionMode):
    """Refuses what hands numbers over to Python past all operations (``numpy``, ``tolist``):
    whatever is made of them would be the same for ever.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = (*args, *(kwargs or {}).values())
        if function in READS or (function in MAKES and _holds_tensors(given)):
            raise Unrecordable
        if getattr(function, "__name__", "") in SPLITS and _holds_tensors([given[1:]]):
            raise Unrecordable
        return function(*args, **(kwargs or {}))


READS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("numpy", "tolist", "__array__", "__dlpack__", "apply_", "map_", "item")
)
"""Of these some are no operations, so that no recorder sees them."""
MAKES = frozenset((torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor))
"""These read the numbers of tensors that stand in a list, and no recorder sees it."""
SPLITS = frozenset(("tensor_split", "_pack_padded_sequence"))
"""These read where to split in tensors of numbers; there are several functions of such a name."""


def _holds_tensors(given: Sequence[Any]) -> bool:
    """Whether a tensor stands in a list among them, be it one within others."""
    lists = [one for one in given if isinstance(one, list | tuple)]
    return any(
        isinstance(inner, torch.Tensor) or _holds_tensors([inner]) for one in lists for inner in one
    )


class Recorder(TorchDispatchMode):
    """Collects the operations that reach the kernels while it is entered."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self.known: dict[int, torch.fx.Node] = {}
        self.alive: list[Tensor] = []
        self.own: set[int] = set()
        for number, tensor in enumerate(inputs):
            self._know(tensor, self.graph.placeholder(f"input_{number}"))

    def finish(self, outputs: Sequence[Tensor]) -> torch.fx.Graph:
        """What was recorded, from the inputs to ``outputs``."""
        self.graph.output(tuple(self._node(out) for out in outputs))
        return self.graph

    def record(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do an operation, and write it down; raises Unrecordable."""
        kwargs = kwargs or {}
        given = (*args, *kwargs.values())
        if not repeatable(operation, args) or self._writes_elsewhere(operation, given):
            raise Unrecordable
        noted = torch.fx.node.map_aggregate((args, kwargs), self._node)
        out = operation(*args, **kwargs)
        if not isinstance(out, torch.Tensor | tuple | list):
            raise Unrecordable  # a look at the numbers: whether a matrix has an inverse, say
        node = self.graph.call_function(operation, *noted)
        if isinstance(out, torch.Tensor):
            made = [(out, node)]
        else:
            made = [
                (one, self.graph.call_function(operator.getitem, (node, i)))
                for i, one in enumerate(out)
                if isinstance(one, torch.Tensor)
            ]
        for tensor, its in made:
            self._know(tensor, its)
            if not operation.is_view:
                self.own.add(tensor.untyped_storage().data_ptr())
        return out

    def _writes_elsewhere(self, operation: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operation may change a tensor that was there before."""
        if not operation._schema.is_mutable:
            return False
        memory = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        return not memory <= self.own

    def _node(self, value: Any) -> Any:
        """What stands for a value: for a tensor that no operation made, a constant."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.known:
            if value.requires_grad:  # a parameter that came past the inputs: the next is another
                raise Unrecordable
            self._know(value, stored(self.graph, value, self.constants))
        return self.known[id(value)]

    def _know(self, tensor: Tensor, node: torch.fx.Node) -> None:
        self.known[id(tensor)] = node
        # what is gone could leave its id to another
        self.alive.append(tensor)
        node.meta["value"] = tensor


def repeatable(operation: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation gives the same for the same tensors, of shapes that theirs decide."""
    if not IRREGULAR.isdisjoint(operation.tags):
        return False
    if torch.Tag.dynamic_output_shape not in operation.tags:
        return True
    # row numbers give as many rows; a mask, as many as it has hits
    return operation is torch.ops.aten.index.Tensor and all(
        index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1]
    )


# not in the class, whose making would wrap it in a function that imports torch's compiler
Recorder.__torch_dispatch__ = Recorder.record  # type: ignore[assignment, method-assign]
