"""A run's state taken apart into JSON and tensors, and put together again as what it was."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from orchestrator.errors import UserError
from orchestrator.results.spans import as_tensor, bits_of, is_spread, key_of, spans, spread

if TYPE_CHECKING:
    from torch import Tensor


def apart(state: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """JSON form of a state, and its tensors and arrays by the names that they have there; raises
    UserError for what would come back as something else.
    """
    parts = _Parts(state)
    return parts.split(state, ""), parts.tensors


def together(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What :func:`apart` has taken apart, in the tensors' memory."""
    return _Whole(tensors).join(form)


def require_storable(state: Mapping[str, Any]) -> None:
    """Raise UserError for a state that no checkpoint can hold, before one is to be written."""
    apart(state)


class _Parts:
    """Takes a state apart."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.tensors: dict[str, Tensor] = {}
        """Of tensors, arrays, and memory of several, by the paths of the first."""
        self.names: dict[object, str] = {}
        """Memory that has one: what is in two places is one again when it is read."""
        self.looked: dict[int, Tensor] = {}
        """Of arrays, by their identity."""
        self.numbers: dict[int, int] = {}
        """Of dicts and lists, by their identity, in which order they were met."""
        self.within: list[int] = []
        """Those that are being taken apart."""
        self.turned: list[np.ndarray] = []
        """Arrays at which torch cannot look: what they have in common with others is lost."""
        self.spans = spans(self._tensors(state, set()))

    def _tensors(self, value: Any, met: set[int]) -> Iterator[Tensor]:
        if isinstance(value, torch.Tensor) and _is_dense(value):
            yield value
        elif isinstance(value, np.ndarray) and _is_plain(value):
            if (there := as_tensor(value)) is None:
                self.turned.append(value)
                there = torch.from_numpy(np.array(value, order="C"))
            yield self.looked.setdefault(id(value), there)
        elif type(value) in (dict, OrderedDict, list, tuple) and id(value) not in met:
            met.add(id(value))
            for one in value.values() if isinstance(value, dict) else value:
                yield from self._tensors(one, met)

    def split(self, value: Any, path: str) -> Any:
        """JSON form of ``value``."""
        if isinstance(value, torch.Tensor) and _is_dense(value):
            return {_kind_of(value): self._tensor(value, path)}
        if isinstance(value, np.float64):
            # a float to Python, but not where arrays of fewer digits are multiplied by it
            return {"$float64": float.__repr__(value)}
        if isinstance(value, np.ndarray) and _is_plain(value):
            return {"$array": self._array(value, path)}
        if isinstance(value, np.generic) and _is_plain(value):
            return {"$number": [value.dtype.str, value.tobytes().hex()]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": str(value)}  # JSON has no name for them
        if value is None or type(value) in (bool, int, float, str, np.str_):
            return value
        return self._split_apart(value, path)

    def _tensor(self, value: Tensor, path: str) -> str | list[Any]:
        if self.turned and value.device.type == "cpu":
            # of some types NumPy has none
            self._require_apart(value.detach().view(bits_of(value)).numpy(), path)
        return self._stored(value, value.stride(), path)

    def _array(self, value: np.ndarray, path: str) -> str | list[Any]:
        self._require_apart(value, path)
        there, size = self.looked[id(value)], max(1, value.itemsize)
        whole = all(step % size == 0 for step in value.strides)
        steps = [step // size for step in value.strides]
        return self._stored(there, steps if whole else there.stride(), path)

    def _split_apart(self, value: Any, path: str) -> Any:
        """The same of what holds others; raises UserError for what is none of that."""
        if type(value) in (dict, OrderedDict, list):
            if id(value) in self.within:
                raise UserError(f"no checkpoint can hold {_called(path)}: it holds itself")
            if id(value) in self.numbers:
                return {"$again": self.numbers[id(value)]}
            self.numbers[id(value)] = len(self.numbers)
            self.within.append(id(value))
            found = self._split_items(value, path)
            self.within.pop()
            return found
        if type(value) is tuple:
            return {"$tuple": [self.split(v, f"{path}/{i}") for i, v in enumerate(value)]}
        raise UserError(
            f"no checkpoint can hold {_called(path)}, a {type(value).__name__}: state is made of "
            "dicts, lists, tuples, texts, numbers, dense tensors and arrays without a mask, and of "
            "no classes derived from these"
        )

    def _split_items(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            # pairs, because JSON's keys are text and clients have numbers
            items = [
                [self.split(k, f"{path}, a key"), self.split(v, f"{path}/{k}")]
                for k, v in value.items()
            ]
            return {"$map" if type(value) is dict else "$ordered": items}
        return [self.split(v, f"{path}/{i}") for i, v in enumerate(value)]

    def _require_apart(self, array: np.ndarray, path: str) -> None:
        """Raise UserError for an array that may have memory in common with one at which torch
        cannot look.
        """
        if any(one is not array and np.may_share_memory(one, array) for one in self.turned):
            raise UserError(
                f"no checkpoint can hold {_called(path)} as it is: it lies in the memory of "
                "another array of the state that runs backwards, or by parts of an element; keep a "
                "copy"
            )

    def _stored(self, tensor: Tensor, steps: Sequence[int], path: str) -> str | list[Any]:
        """A tensor's name; where its memory is others', too, the memory's name, and where the
        tensor is in it: the first, shape and strides; where its ``steps`` are of its own, these
        without a first.
        """
        key = key_of(tensor)
        if span := self.spans.get(key):
            if len(span.types) > 1:
                raise UserError(
                    f"no checkpoint can hold {_called(path)} as it is: it lies in the memory of "
                    "another part of the state, of another type; keep a copy"
                )
            name = self._named(("span", id(span)), span.flat, path)
            return [name, span.offset(tensor), [*tensor.shape], [*tensor.stride()]]
        name = self._named(key, tensor, path)
        own = tensor.numel() and [*steps] != [*tensor.contiguous().stride()]
        if own and is_spread(tensor.shape, steps):
            return [name, None, [*tensor.shape], [*steps]]
        return name

    def _named(self, key: object, tensor: Tensor, path: str) -> str:
        """Keep a tensor under the name that ``key`` has, or a new one: its path where no other has
        that.
        """
        if key not in self.names:
            name = path
            while name in self.tensors:
                name += "'"
            self.tensors[name], self.names[key] = tensor, name
        return self.names[key]


def _called(path: str) -> str:
    return path.strip("/")[:200]


def _is_dense(value: Tensor) -> bool:
    """Whether safetensors can hold a tensor, and all there is of it."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout == torch.strided and not (value.is_complex() or value.is_quantized)


def _kind_of(value: Tensor) -> str:
    """Whether it is a parameter, or has gradients of its own."""
    if isinstance(value, torch.nn.Parameter):
        return "$parameter" if value.requires_grad else "$frozen"
    return "$leaf" if value.requires_grad and value.is_leaf else "$tensor"


def _is_plain(value: np.ndarray | np.generic) -> bool:
    """Whether a tensor can hold all there is of an array, or a number of NumPy's."""
    known = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and value.dtype.isnative
    return known and not isinstance(value, np.ma.MaskedArray | np.matrix)


NUMBERS: Mapping[str, Callable[[Any], Any]] = {
    "$float64": np.float64,
    "$float": float,
    "$number": lambda its: np.frombuffer(bytes.fromhex(its[1]), its[0])[0],
}
OF_TENSORS: Mapping[str, Callable[[Any], Any]] = {
    "$tensor": lambda its: its,
    "$leaf": lambda its: its.detach().requires_grad_(),
    "$parameter": lambda its: torch.nn.Parameter(its),
    "$frozen": lambda its: torch.nn.Parameter(its, requires_grad=False),
    "$array": lambda its: its if isinstance(its, np.ndarray) else its.numpy(),
    "$scalar": lambda its: its.numpy()[()],
}


class _Whole:
    """Puts a state together from its ``tensors``."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.made: dict[object, Any] = {}
        """What is in two places is one thing there, too."""
        self.met: list[Any] = []
        """Dicts and lists, in the order in which they were met."""

    def join(self, value: Any) -> Any:
        """What :meth:`_Parts.split` has made JSON of."""
        if isinstance(value, list):
            several: list[Any] = []
            self.met.append(several)
            several += [self.join(v) for v in value]
            return several
        if not isinstance(value, dict):
            return value
        ((kind, its),) = value.items()
        if kind in ("$map", "$ordered"):
            items: dict[Any, Any] = {} if kind == "$map" else OrderedDict()
            self.met.append(items)
            items.update((self.join(k), self.join(v)) for k, v in its)
            return items
        if kind == "$again":
            return self.met[its]
        if kind == "$tuple":
            return tuple(self.join(v) for v in its)
        if kind in NUMBERS:
            return NUMBERS[kind](its)
        key = kind, str(its)
        if key not in self.made:
            self.made[key] = OF_TENSORS[kind](self._read(its))
        return self.made[key]

    def _read(self, its: str | list[Any]) -> Tensor | np.ndarray:
        if isinstance(its, str):
            return self.tensors[its]
        name, first, shape, strides = its
        if first is None:
            return spread(self.tensors[name], shape, strides)
        return self.tensors[name].as_strided(shape, strides, first)
