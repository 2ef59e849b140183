"""A network of a user's own, tried on some inputs before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

from algorithms.flat import floating_buffers
from orchestrator.models.net import extent
from orchestrator.noted import note
from orchestrator.plugins.blame import raised

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.models.net import Net

DEPTH = 4
"""How far within attributes tensors are looked for."""
Named = tuple[str, str]
"""A module's dotted name, and that of an attribute of its."""


@dataclass(frozen=True)
class Pass:
    """What a network makes of some inputs."""

    made: Tensor
    statistics: tuple[Tensor, ...]
    """Its floating-point buffers afterwards."""
    drew: bool
    """Whether it has drawn from torch's generator."""
    noted: dict[tuple[str, str], object]
    """What stands for the plain values that its modules hold afterwards."""

    def same(self, other: Pass) -> bool:
        """Whether another pass was no different."""
        pairs = zip((self.made, *self.statistics), (other.made, *other.statistics), strict=True)
        return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def tried(of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...]) -> bool:
    """Whether training it draws from torch's generator, which is then keyed.

    ``x`` [n, ...] are inputs as in training. Raises ValueError, which names it as ``of``, unless it
    makes float32 [n, *made] of them: in evaluation of each by itself, and the same each time; in
    training the same when torch's generator is seeded alike, and parameters and floating-point
    buffers are put back, which are all that clients, actors and checkpoints have in common. So no
    other buffer may change, and no parameter be made on the way.
    """
    _require_dense(of, module)
    first = [tensor for _, _, tensor in _plain_tensors(module)]
    with unchanged(module) as before, _elsewhere(of, module, x, made):
        module.eval()
        given = x.clone()
        judged = _passed(of, module, x, made, seed=0)
        if not torch.equal(x, given):
            raise ValueError(f"model: {of}: it writes into its inputs; work on a copy")
        if not judged.same(_passed(of, module, x, made, seed=1)):
            raise ValueError(
                f"model: {of}: its outputs for the same inputs differ in evaluation, where nothing "
                "may be drawn; draw only where self.training is true"
            )
        _require_alone(of, module, x, judged.made)
        module.train()
        trained = _passed(of, module, x, made, seed=0)
        again = _passed(of, module, x, made, seed=0)
        if not trained.same(again):
            raise ValueError(
                f"model: {of}: its outputs, or statistics, for the same inputs and the same seed "
                "of torch's differ from pass to pass; it may draw from torch's global generator "
                "alone (not numpy, random, the clock, or a generator of its own), and keep nothing "
                "but parameters and floating-point buffers (no counters)"
            )
        _require_kept(of, module, before)
        _require_uncounted(of, trained.noted, again.noted)
    # at its own weights; after passes, in which some make theirs anew (spectral norm)
    _require_no_views(of, module, first)
    return trained.drew


def require_alone(of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...]) -> None:
    """Raises ValueError where what it makes of one of ``x`` [n, ...] in evaluation depends on the
    others.
    """
    with unchanged(module):
        module.eval()
        _require_alone(of, module, x, _passed(of, module, x, made, seed=0).made)


def _require_alone(of: str, module: torch.nn.Module, x: Tensor, together: Tensor) -> None:
    made = tuple(together.shape[1:])
    each = torch.cat([_passed(of, module, one[None], made, seed=0).made for one in x])
    # what is left of large terms that cancel is as far off as these
    scale = max(1.0, float(together.nan_to_num(0.0, 0.0, 0.0).abs().max()))
    if not torch.allclose(together, each, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
        raise ValueError(
            f"model: {of}: in evaluation, its outputs for an input depend on the other inputs "
            "of the batch"
        )


def _require_dense(of: str, module: torch.nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "sparse", False) is True:
            raise ValueError(f"model: {of}: {name} asks for sparse gradients; set sparse=False")


def mixes(of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...]) -> bool:
    """Whether what it makes of an input in training depends on the others of the batch ``x`` [n,
    ...]; of one that :func:`tried` has found to draw nothing.
    """
    with unchanged(module), _elsewhere(of, module, x, made):
        module.train()
        try:
            both = _passed(of, module, x, made, seed=0).made[:1]
            alone = _passed(of, module, x[:1], made, seed=0).made
        except ValueError:  # batch normalisation of one row
            return True
        return not torch.allclose(both, alone, rtol=1e-3, atol=1e-4, equal_nan=True)


def unstacked(net: Net, x: Tensor) -> str:
    """Why torch cannot compute the gradients of a network that draws nothing for several clients at
    once, as it does for one, on a batch ``x`` [n, ...]; or "".
    """
    alone: list[tuple[Tensor, ...]] = []
    models: list[list[Tensor]] = []
    try:
        with unchanged(net.module):
            net.module.train()
            for client in (1, 2):  # of weights that are not the module's own
                with disturbed(net.module, client):
                    alone.append(_gradients(net.module(x), [*net.params.values()]))
                    models.append([tensor.detach().clone() for tensor in net.params.values()])
            leaves = [torch.stack(both).requires_grad_() for both in zip(*models, strict=True)]
            stack = dict(zip(net.params, leaves, strict=True))
            batched = torch.func.vmap(net.functional(), randomness="different")
            together = _gradients(batched(stack, torch.stack([x, x])), leaves)
    except Exception as error:  # whatever a network may do that torch cannot batch
        return raised(error)
    expected = [torch.stack(both) for both in zip(*alone, strict=True)]
    if all(map(_near, expected, together)):
        return ""
    return "its gradients are others then: it may have hooks, or options that are not heeded"


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _gradients(made: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
    # each output by a weight of its own
    weights = torch.linspace(0.5, 1.5, made.shape[-1])
    return torch.autograd.grad((made * weights).sum(), of, materialize_grads=True)


def needs_company(of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...]) -> bool:
    """Whether it can make nothing of one row ``x`` [1, ...] in training."""
    with unchanged(module):
        module.train()
        try:
            _passed(of, module, x, made, seed=0)
        except ValueError as error:
            return "more than 1 value per channel" in str(error)
        return False


def _require_no_views(of: str, module: torch.nn.Module, first: list[Tensor]) -> None:
    """Raise ValueError for a plain attribute that has been there from the ``first``, and lies in
    the memory of a parameter or of statistics: while clients train, these are elsewhere.
    """
    registered = dict(itertools.chain(module.named_parameters(), floating_buffers(module).items()))
    known = {id(tensor) for tensor in registered.values()}
    places = {name: extent(tensor) for name, tensor in registered.items()}
    for part, key, tensor in _plain_tensors(module):
        stays = any(one is tensor for one in first) and id(tensor) not in known
        begin, end = extent(tensor) if stays else (0, 0)
        within = [name for name, (low, high) in places.items() if begin < high and low < end]
        if within:
            raise ValueError(
                f"model: {of}: {f'{part}.{key}'.lstrip('.')} lies in the memory of its "
                f"{within[0]}, which is another while clients train: make it in forward"
            )


def _plain_tensors(module: torch.nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    """Module, attribute, and tensor in it, of those that are neither parameters nor buffers."""
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key not in ("_parameters", "_buffers", "_modules"):
                yield from ((name, key, one) for one in _tensors_in(value, DEPTH))


def _tensors_in(value: object, depth: int) -> Iterator[Tensor]:
    """A tensor, or those in collections and in plain objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict | list | tuple | SimpleNamespace):
        inside = vars(value) if isinstance(value, SimpleNamespace) else value
        for one in inside.values() if isinstance(inside, dict) else inside:
            yield from _tensors_in(one, depth - 1)


def _require_kept(of: str, module: torch.nn.Module, before: dict[str, Tensor]) -> None:
    """Raise ValueError for a buffer that no client sends, and that passes have changed."""
    # batch norm needs its counter for momentum=None alone, which the passes tell
    counters = {
        f"{name}.num_batches_tracked".lstrip(".")
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.modules.batchnorm._NormBase)
    }
    for name, buffer in module.named_buffers():
        if name in counters or name not in before or buffer.is_floating_point():
            continue
        if not torch.equal(buffer, before[name]):
            raise ValueError(
                f"model: {of}: a pass in training changes its buffer {name}, which is "
                f"{buffer.dtype}; only floating-point buffers are sent, averaged and kept"
            )


def _require_uncounted(of: str, once: dict[Named, object], twice: dict[Named, object]) -> None:
    """Raise ValueError for what a second pass over the same inputs leaves otherwise than the first:
    who counts may do something else after so many, which no two passes show.
    """
    for name, key in twice:
        if once.get((name, key)) != twice[name, key]:
            raise ValueError(
                f"model: {of}: each pass in training changes its {f'{name}.{key}'.lstrip('.')}, "
                "which clients, actors and checkpoints do not have in common; only parameters and "
                "floating-point buffers are sent, averaged and kept"
            )


def _noted(module: torch.nn.Module) -> dict[Named, object]:
    # what every module has: parameters, buffers and hooks are looked at elsewhere
    usual = vars(torch.nn.Module()).keys()
    return {
        (name, key): note(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key not in usual
    }


@contextmanager
def unchanged(module: torch.nn.Module) -> Iterator[dict[str, Tensor]]:
    """Put buffers and mode back at the end. Not by a copy of the module: not every one can be
    copied. Gives what was in the buffers.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    training = module.training
    try:
        yield before
    finally:
        for name, buffer in module.named_buffers():
            if name in before and buffer.shape == before[name].shape:
                buffer.copy_(before[name])
        module.train(training)


def _elsewhere(
    of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...]
) -> AbstractContextManager[None]:
    """:func:`disturbed`, where the network takes such weights: some must be of a kind (a simplex,
    say), which noise is not.
    """
    training = module.training
    try:
        with disturbed(module):
            module.eval()
            _passed(of, module, x, made, seed=0)
    except ValueError:
        return nullcontext()
    finally:
        module.train(training)
    return disturbed(module)


@contextmanager
def disturbed(module: torch.nn.Module, seed: int = 0) -> Iterator[None]:
    """With other weights than the first ones, of which some may hide what a network does: behind a
    head, or a gate, of zeros nothing is seen.
    """
    generator = torch.Generator().manual_seed(seed)
    own = [(tensor, tensor.data) for tensor in module.parameters() if tensor.requires_grad]
    try:
        for tensor, data in own:
            size = float(data.square().mean().sqrt()) if data.numel() else 0.0
            noise = torch.randn(data.shape, generator=generator).to(data)
            tensor.data = data + 0.1 * (size or 1.0) * noise
        yield
    finally:
        for tensor, data in own:
            tensor.data = data


def _passed(of: str, module: torch.nn.Module, x: Tensor, made: tuple[int, ...], seed: int) -> Pass:
    """A pass that leaves the floating-point buffers as they were."""
    statistics = floating_buffers(module)
    before = {name: buffer.clone() for name, buffer in statistics.items()}
    known = {
        name: (tensor, tensor.data_ptr())
        for name, tensor in (*statistics.items(), *module.named_parameters())
    }
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            out = module(x)
            drew = not torch.equal(state, torch.get_rng_state())
        after = tuple(buffer.clone() for buffer in statistics.values())
    except Exception as error:  # whatever code of others may raise
        shape = tuple(x.shape)
        raise ValueError(f"model: {of}: inputs of shape {shape}: {raised(error)}") from error
    finally:
        for name, buffer in statistics.items():
            buffer.copy_(before[name])
    _require_in_place(of, module, known)
    return Pass(_of_form(of, out, x, made), after, drew, _noted(module))


def _require_in_place(
    of: str, module: torch.nn.Module, known: dict[str, tuple[Tensor, int]]
) -> None:
    """Raise ValueError if a pass in training has put another tensor, or other memory, in the place
    of a parameter or of statistics that were ``known``: nobody would train, or send, it.
    """
    parameters = dict(module.named_parameters())
    now = {**dict(module.named_buffers()), **parameters}
    for name, (tensor, place) in known.items() if module.training else ():
        new, what = now.get(name, tensor), "parameter" if name in parameters else "buffer"
        if new is tensor and new.data_ptr() == place:
            continue
        if new is tensor or not (new.shape == tensor.shape and torch.equal(new, tensor)):
            write = f"self.{name}.data.copy_(...)" if new is tensor else f"self.{name}.copy_(...)"
            raise ValueError(
                f"model: {of}: a pass in training puts another tensor in the place of its {what} "
                f"{name}, which nobody would send; write into the one that is there ({write})"
            )


def _of_form(of: str, out: object, x: Tensor, made: tuple[int, ...]) -> Tensor:
    wanted = (len(x), *made)
    if isinstance(out, torch.Tensor) and out.shape == wanted and out.dtype == torch.float32:
        return out
    found = type(out).__name__
    if isinstance(out, torch.Tensor):
        found = f"{out.dtype} of shape {tuple(out.shape)}"
    raise ValueError(
        f"model: {of} makes {found} of inputs of shape {tuple(x.shape)}, and not torch.float32 of "
        f"shape {wanted}"
    )


def has_features(net: Net, x: Tensor) -> bool:
    """Whether what enters the last layer depends on weights, for inputs ``x`` [n, ...]; raises
    ValueError for a network of which nobody can say what that is.
    """
    entered = [given for given in _calls(net, x).values() if given is not None]
    if not entered:
        raise ValueError(
            "model: features are what enters the last layer, and the network calls no module that "
            "owns weights (functions use them): make its head a layer (torch.nn.Linear)"
        )
    return entered[-1].requires_grad


def called(net: Net, x: Tensor) -> list[str]:
    """The layers in the order in which a pass over ``x`` [n, ...] has called each last; without
    those that are never called.
    """
    return [*_calls(net, x)]


def _calls(net: Net, x: Tensor) -> dict[str, Tensor | None]:
    """Layer -> what entered it in its last call, if that was a tensor; in the order of these."""
    found: dict[str, Tensor | None] = {}

    def hear(name: str, inputs: tuple[object, ...]) -> None:
        found.pop(name, None)
        first = inputs[0] if inputs else None
        found[name] = first if isinstance(first, torch.Tensor) else None

    hooks = [
        net.module.get_submodule(name).register_forward_pre_hook(
            lambda module, inputs, name=name: hear(name, inputs)
        )
        for name in net.spec.layers
    ]
    try:
        with torch.random.fork_rng(devices=[]), unchanged(net.module):
            net.module(x)
    finally:
        for hook in hooks:
            hook.remove()
    return found
