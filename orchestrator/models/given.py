"""A network that a Python process has made itself."""

from __future__ import annotations

import contextlib
import copy
import dis
import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType

import torch

from algorithms.part import option
from orchestrator.models.base import Model

GIVEN: dict[str, torch.nn.Module] = {}
"""Digest -> what this process has handed over."""


class GivenModule(Model):
    """A module that a Python process has handed over (``fedorch.Experiment(model=...)``), with the
    weights that it had: nobody else can build it.
    """

    name: str = "given"
    sha256: str = option("", "digest of its layers and weights")

    @property
    def foreign(self) -> str:
        return "the module"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        if self.sha256 not in GIVEN:
            raise ValueError(
                "model: this is a module of a Python process; hand it over again "
                "(fedorch.Experiment(model=...)), or name its file (./nets.py:Net)"
            )
        return copy.deepcopy(GIVEN[self.sha256])


def give(module: torch.nn.Module) -> str:
    """Keep a copy of a module for this process; returns its digest: of layers, weights, code and
    what else its modules know. Raises ValueError for one with hooks on parameters, of which copies
    have none, and for one with functions that hold parts of it, as copies' would the original's.
    """
    hooked = [
        name
        for name, tensor in module.named_parameters()
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None)
    ]
    if hooked:
        raise ValueError(
            f"model: the module: its parameter {hooked[0]} has a hook, which a copy would not "
            "have; register it in a class, and name that (./nets.py:Net)"
        )
    if (tied := _tied(module)) is not None:
        raise ValueError(
            f"model: the module: {tied} is a function that holds parts of the module itself, and "
            "in a copy it would still work with these; make it a method, or a part of a class, and "
            "name that (./nets.py:Net)"
        )
    sha = hashlib.sha256(repr(module).encode())
    for part in module.modules():
        for line in (*_known(part), *_code(type(part))):
            sha.update(line.encode())
    for name, tensor in module.state_dict().items():
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy().tobytes())
    digest = sha.hexdigest()
    GIVEN[digest] = copy.deepcopy(module)
    return digest


def _tied(module: torch.nn.Module) -> str | None:
    """The name of a function among what its modules know that holds one of them, or a tensor of
    theirs; None if there is none.
    """
    own = {id(part) for part in (*module.modules(), *module.parameters(), *module.buffers())}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key not in ("_modules", "_parameters", "_buffers") and _holds(value, own, set()):
                return f"{name}.{key}".lstrip(".")
    return None


def _holds(value: object, own: set[int], seen: set[int]) -> bool:
    """Whether a function in ``value`` holds one of what has the ids ``own``: what a copy of the
    function has, too, for functions are not copied. ``seen``: what was looked at already.
    """
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, partial):
        return _holds(value.func, own, seen) or _holds([*value.args, value.keywords], own, seen)
    if isinstance(value, Mapping):
        return any(_holds(one, own, seen) for one in value.values())
    if isinstance(value, list | tuple | set):
        return any(_holds(one, own, seen) for one in value)
    if not isinstance(value, FunctionType):
        return False
    held = [*_given(value)]
    return any(id(one) in own for one in held) or any(_holds(one, own, seen) for one in held)


def _given(function: FunctionType) -> Iterator[object]:
    """What a function has beside its arguments: defaults, what it closes over, and the globals that
    it names, of functions those of its own file.
    """
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    file = function.__globals__
    for one in (file[name] for name in {*_globals(function.__code__)} if name in file):
        if not isinstance(one, FunctionType) or one.__globals__ is file:
            yield one


def _globals(code: CodeType) -> Iterator[str]:
    """The global names that code looks up, and what functions in it do."""
    yield from (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _known(module: torch.nn.Module) -> Iterator[str]:
    """Its numbers, texts, flags and functions."""
    for name, value in sorted(vars(module).items()):
        if isinstance(value, int | float | str | tuple | list | None) and name != "training":
            yield f"{name}={value!r}"
        elif name in HOOKS:
            for hook in value.values():
                yield from (f"{name}={line}" for line in _function(hook))
        elif isinstance(value, FunctionType | BuiltinFunctionType | partial):
            yield from (f"{name}={line}" for line in _function(value))


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module has its hooks."""


def _function(value: object) -> Iterator[str]:
    """What a function does, as far as can be told: its code, and what it has been given."""
    if isinstance(value, partial):
        yield f"{value.args!r} {value.keywords!r}"
        yield from _function(value.func)
    elif isinstance(value, FunctionType):
        yield from _instructions(value.__code__)
        yield f"{value.__defaults__!r} {value.__kwdefaults__!r}"
        for cell in value.__closure__ or ():
            held = cell.cell_contents
            yield from _function(held) if callable(held) else [repr(held)]
    else:
        yield str(getattr(value, "__qualname__", type(value).__qualname__))


def _code(cls: type) -> Iterator[str]:
    """What the functions of a class of the user's do, and of those that it is made of."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for name, value in sorted(vars(base).items()):
            if isinstance(value, FunctionType):
                yield from (f"{name}:{line}" for line in _instructions(value.__code__))


def _instructions(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(constant)
