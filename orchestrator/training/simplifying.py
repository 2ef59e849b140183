"""What can be left out of a recorded computation (:mod:`orchestrator.training.tracing`)."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx import Graph, Node

if TYPE_CHECKING:
    from torch import Tensor

ops = torch.ops.aten
RESHAPING = frozenset(
    (ops.view.default, ops._unsafe_view.default, ops.expand.default, ops.detach.default,
     ops.alias.default)
)  # fmt: skip
"""Operations that change nothing where the shape stays."""
FILLING = frozenset((ops.ones_like.default, ops.zeros_like.default, ops.new_zeros.default))
"""Operations whose results depend on the shapes of what they are given."""


def exact(graph: Graph, constants: dict[str, Tensor]) -> None:
    """Leave out what changes no bit: steps that do nothing, that were done before, or that give
    the same whatever the inputs are, and so join the ``constants``.

    A record that writes over its own tensors is left as it is: there the order matters.
    """
    if any(_writes(node) for node in graph.nodes):
        return
    done: dict[tuple[Any, ...], Node] = {}
    for node in _calls(graph):
        same = _itself(node) or _constant(node, constants)
        key = (node.target, repr(node.args), repr(node.kwargs))
        _put(node, same or done.setdefault(key, node))
    _drop_unused(graph)


def turn_products(graph: Graph) -> None:
    """Compute AB as (BᵀAᵀ)ᵀ where that has the longer rows, which libraries are up to 1.7 times as
    fast with, and where only (AB)ᵀ is asked for, as autograd does for the weights of linear layers.
    The same numbers up to rounding.
    """
    if any(_writes(node) for node in graph.nodes):
        return
    for node in _calls(graph):
        if node.target is not ops.bmm.default:
            continue
        rows, columns = node.meta["value"].shape[1:]
        turned = [user for user in node.users if _transposed(user) is node]
        if columns < rows or len(turned) == len(node.users):
            _turn(node, turned)
    _drop_unused(graph)


def deliver(graph: Graph, count: int) -> None:
    """Have the first ``count`` results written where further inputs lie, and not returned."""
    end = graph.output_node()
    results = cast("tuple[Node, ...]", end.args[0])
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for number, result in enumerate(results[:count]):
        with graph.inserting_after(last):
            last = graph.placeholder(f"place_{number}")
        if result.target is ops.bmm.default and len(result.users) == results.count(result) == 1:
            # a product need not be copied
            with graph.inserting_before(result):
                made = graph.call_function(ops.bmm.out, result.args, {"out": last})
            _put(result, made)
        else:
            with graph.inserting_before(end):
                graph.call_function(ops.copy_.default, (last, result))
    end.args = (results[count:],)


def _turn(product: Node, turned: list[Node]) -> None:
    """``turned``: uses of it that are transpositions."""
    graph, value = product.graph, product.meta["value"]
    first, second = product.all_input_nodes
    with graph.inserting_before(product):
        sides = [_transposed(side) or _transposition(side) for side in (second, first)]
        other = graph.call_function(ops.bmm.default, tuple(sides))
        # as it would lie in memory: what follows may reshape it
        back = graph.call_function(
            ops.clone.default,
            (_transposition(other),),
            {"memory_format": torch.contiguous_format},
        )
        back.meta["value"] = value
    for one in turned:
        _put(one, other)
    _put(product, back)


def _transposition(node: Node) -> Node:
    made: Node = node.graph.call_function(ops.transpose.int, (node, 1, 2))
    return made


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _put(node: Node, other: Node) -> None:
    """Use ``other`` in place of ``node``."""
    if other is not node:
        node.replace_all_uses_with(other)
        node.graph.erase_node(node)


def _drop_unused(graph: Graph) -> None:
    for node in reversed(graph.nodes):
        if not node.users and node.op in ("call_function", "get_attr"):
            graph.erase_node(node)


def _itself(node: Node) -> Node | None:
    """The node whose result this one repeats, if it does nothing."""
    value: Any = node.meta.get("value")
    args: Any = node.args
    if not isinstance(value, torch.Tensor) or not args or not isinstance(args[0], Node):
        return None
    first = args[0]
    if node.target in RESHAPING:
        return first if first.meta["value"].shape == value.shape else None
    if node.target is ops.permute.default:
        return first if list(args[1]) == list(range(value.dim())) else None
    if node.target is ops.transpose.int:
        before = _transposed(first)
        return before if before is not None and _axes(node) == _axes(first) else None
    if node.target is ops.mul.Scalar:
        return first if args[1] == 1 and first.meta["value"].dtype == value.dtype else None
    return _unchanged_by_ones(node, value) if node.target is ops.mul.Tensor else None


def _unchanged_by_ones(node: Node, value: Tensor) -> Node | None:
    """The factor that a product with ones is, of the product's own shape and type."""
    for one, other in (node.args, node.args[::-1]):
        if not (isinstance(one, Node) and isinstance(other, Node) and one.op == "get_attr"):
            continue
        kept, ones = other.meta["value"], one.meta["value"]
        # where it lies otherwise in memory, a view of the product may be none of it
        alike = kept.dtype == value.dtype and kept.stride() == value.stride()
        if kept.shape == value.shape and alike and bool((ones == 1).all()):
            return other
    return None


def _axes(node: Node) -> set[int]:
    """Which two axes a transposition changes."""
    dims, axes = node.meta["value"].dim(), cast("tuple[int, int]", node.args[1:])
    return {axis % dims for axis in axes}


def _transposed(node: Node) -> Node | None:
    """What this is the matrix-wise transposition of, of stacked matrices [C, n, m]; or None."""
    if node.target is not ops.transpose.int or "value" not in node.meta:
        return None
    inside = node.meta["value"].dim() == 3 and _axes(node) == {1, 2}
    return node.all_input_nodes[0] if inside else None


def _constant(node: Node, constants: dict[str, Tensor]) -> Node | None:
    """A stored tensor in place of what depends on shapes and constants alone."""
    value = node.meta.get("value")
    fixed = node.target in FILLING or all(n.op == "get_attr" for n in node.all_input_nodes)
    if not fixed or node.target is operator.getitem or not isinstance(value, torch.Tensor):
        return None
    return stored(node.graph, value, constants, before=node)


def stored(
    graph: Graph, value: Tensor, constants: dict[str, Tensor], before: Node | None = None
) -> Node:
    """A node that stands for ``value``, which joins the ``constants``."""
    name = f"constant_{len(constants)}"
    constants[name] = value
    with graph.inserting_before(before) if before else nullcontext():
        node = graph.get_attr(name)
    node.meta["value"] = value
    return node
