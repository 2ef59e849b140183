"""A network of a user's own, tried on two inputs before anything starts."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from orchestrator.plugins import raised


def tried(of: str, module: nn.Module, x: Tensor, made: tuple[int, ...]) -> bool:
    """Whether training it draws from torch's generator, which is then keyed.

    ``x`` [2, ...] are inputs as in training. Raises ValueError, which names it as ``of``, unless it
    makes float32 [2, *made] of them, the same each time: in evaluation, and in training when
    torch's generator is seeded alike.
    """
    judged, _ = _outputs(of, module, x, 0, training=False)
    _require_form(of, judged, x, made)
    if not _same(judged, _outputs(of, module, x, 1, training=False)[0]):
        raise ValueError(
            f"model: {of}: its outputs for the same inputs differ in evaluation, where nothing may "
            "be drawn; draw only where self.training is true"
        )
    trained, draws = _outputs(of, module, x, 0, training=True)
    _require_form(of, trained, x, made)
    if not _same(trained, _outputs(of, module, x, 0, training=True)[0]):
        raise ValueError(
            f"model: {of}: its outputs for the same inputs and the same seed of torch's differ; "
            "draw from torch alone (not numpy, random or the clock)"
        )
    return draws


def _outputs(
    of: str, module: nn.Module, x: Tensor, seed: int, training: bool
) -> tuple[object, bool]:
    """What a copy makes of ``x``, since a pass in training changes statistics; and whether it has
    drawn from torch's generator.
    """
    try:
        one = copy.deepcopy(module).train(training)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            made = one(x)
            return made, not torch.equal(before, torch.get_rng_state())
    except Exception as error:  # whatever code of others may raise
        shape = tuple(x.shape)
        raise ValueError(f"model: {of}: inputs of shape {shape}: {raised(error)}") from error


def _same(one: object, other: object) -> bool:
    assert isinstance(one, Tensor)
    return isinstance(other, Tensor) and torch.equal(one.nan_to_num(), other.nan_to_num())


def _require_form(of: str, out: object, x: Tensor, made: tuple[int, ...]) -> None:
    wanted = (len(x), *made)
    if isinstance(out, Tensor) and out.shape == wanted and out.dtype == torch.float32:
        return
    found = type(out).__name__
    if isinstance(out, Tensor):
        found = f"{out.dtype} of shape {tuple(out.shape)}"
    raise ValueError(
        f"model: {of} makes {found} of inputs of shape {tuple(x.shape)}, and not torch.float32 of "
        f"shape {wanted}"
    )
