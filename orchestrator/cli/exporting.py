"""``fedorch export``: a run's final model as others take it, with a card that says what it is."""

from __future__ import annotations

import io
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from orchestrator.cli.cards import model_card
from orchestrator.errors import UserError
from orchestrator.extras import named_if_missing
from orchestrator.files import write_text, write_whole
from orchestrator.plugins.plugin import FOLDER as PLUGINS
from orchestrator.results import manifest
from orchestrator.results.contents import CONFIG, INPUTS, MODEL, RESULT
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import TrainedModel
from orchestrator.terminal import console

if TYPE_CHECKING:
    from torch import Tensor

COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""What torch colours its sentences with."""
SCALES = (1.0, 10.0, 0.01)
"""Of the numbers that a trace is tried with."""
EXAMPLES = 2
"""Inputs that a network is traced with."""


class Prepared(torch.nn.Module):
    """A network with what its inputs need in front: pixels (uint8) are scaled as in training."""

    shift: Tensor
    scale: Tensor

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.module = model.module
        shape = (-1, *[1] * (len(model.inputs["shape"]) - 1))
        self.pixels = model.inputs["dtype"] == "uint8"
        self.register_buffer("shift", torch.tensor(model.inputs["shift"]).view(shape))
        self.register_buffer("scale", torch.tensor(model.inputs["scale"]).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [n, o] of inputs [n, ...]."""
        return self.module((x.float() - self.shift) * self.scale if self.pixels else x)


class OfPixels(torch.nn.Module):
    """A trace with a look at its inputs in front, which the trace itself would not hold: pixels
    from 0 to 1 are another picture.
    """

    def __init__(self, trace: torch.nn.Module) -> None:
        super().__init__()
        self.trace = trace

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [n, o] of pixels [n, ...], uint8."""
        assert x.dtype == torch.uint8, "inputs are pixels from 0 to 255, uint8"
        return self.trace(x)


def write_model(folder: RunFolder, out: Path, license_: str) -> None:
    """Write the model as ``out``, by its ending, and a card beside it (in a folder: README.md).

    Raises UserError for another ending, what is there already, or a network that the form cannot
    hold.
    """
    model = TrainedModel(folder)
    writers: dict[str, Callable[[Path], object]] = {
        ".onnx": lambda path: _onnx(model, path),
        ".pt2": lambda path: path.write_bytes(_exported(model)),
        ".torchscript": lambda path: path.write_bytes(_traced(model)),
        ".pt": lambda path: path.write_bytes(_state_dict(model)),
        ".safetensors": lambda path: save_file(_tensors(model), path),
        "": lambda path: _folder(folder, model, path),
    }
    if out.suffix not in writers:
        known = ", ".join(filter(None, writers))
        raise UserError(f"export {out}: its name ends in none of {known}; or name a new folder")
    if not out.parent.is_dir():
        raise UserError(f"export {out}: {out.parent} is no folder")
    if out.exists():
        raise UserError(f"export {out}: it is there already")
    card = out / "README.md" if not out.suffix else out.with_name(f"{out.name}.md")
    if card.exists():
        raise UserError(f"export {out}: its card {card} is there already")
    with named_if_missing():
        if out.suffix:
            write_whole(out, writers[out.suffix])
        else:
            writers[""](out)
    write_text(card, model_card(folder, model, license_, out))
    console.print(f"wrote {out} and {card}", soft_wrap=True)


def _state_dict(model: TrainedModel) -> bytes:
    # torch's own writing of files raises errors that are not the disk's
    buffer = io.BytesIO()
    torch.save(model.module.state_dict(), buffer)
    return buffer.getvalue()


def _tensors(model: TrainedModel) -> dict[str, Tensor]:
    # copies: of weights that two modules share the file has both
    return {name: t.contiguous().clone() for name, t in model.module.state_dict().items()}


def _examples(model: TrainedModel) -> Tensor:
    """Inputs that the network takes."""
    shape, kind = (EXAMPLES, *model.inputs["shape"]), model.inputs["dtype"]
    if kind == "float32":
        return torch.linspace(-1, 1, EXAMPLES * _size(shape[1:])).view(shape)
    return (
        torch.arange(EXAMPLES * _size(shape[1:])).view(shape).remainder(2).to(getattr(torch, kind))
    )


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


@torch.no_grad()
def _traced(model: TrainedModel) -> bytes:
    with _as_sentence(model):
        written, network = io.BytesIO(), Prepared(model).eval()
        trace = torch.jit.trace(network, _examples(model))
        torch.jit.save(torch.jit.script(OfPixels(trace)) if network.pixels else trace, written)
    _require_followed(model, trace, "TorchScript's trace does")
    return written.getvalue()


def _require_followed(model: TrainedModel, made: Callable[[Tensor], Tensor], whose: str) -> None:
    """Raise UserError unless what was ``made`` of a network says what that says, of other inputs
    than it was made with; ``whose`` does not then.
    """
    network, others = Prepared(model).eval(), _others(model)
    # numbers that are small or large may take another way
    scaled = [others * scale for scale in SCALES] if others.is_floating_point() else [others]
    tried = [_taken(network, some, _examples(model)) for some in scaled]
    if not all(_follows(made, some, network(some)) for some in tried):
        raise UserError(
            f"export: what {type(model.module).__name__} does depends on the values of its inputs, "
            f"which {whose} not follow; export .pt or .safetensors"
        )


def _taken(network: torch.nn.Module, others: Tensor, examples: Tensor) -> Tensor:
    """Other inputs, or (where the network does not take such) the examples in another order, and
    more of them.
    """
    try:
        network(others)
    except Exception:  # whatever a network raises of inputs that it was not made for
        return torch.cat([examples.flip(0), examples[:1]])
    return others


def _follows(trace: Callable[[Tensor], Tensor], x: Tensor, made: Tensor) -> bool:
    """Whether a trace makes the same of other inputs than those that it was made with: it holds
    what was done to these, whatever that depended on.
    """
    try:
        found = trace(x)
    except (RuntimeError, IndexError):
        return False
    alike = found.shape == made.shape
    return alike and torch.allclose(found, made, rtol=1e-4, atol=1e-6, equal_nan=True)


def _others(model: TrainedModel) -> Tensor:
    """Other inputs than the examples, and another number of them; texts of several lengths."""
    draws = torch.Generator().manual_seed(0)
    shape, kind = (2 * EXAMPLES + 1, *model.inputs["shape"]), model.inputs["dtype"]
    if kind == "float32":
        return torch.randn(shape, generator=draws)
    # of words those that the examples have: how many more there are is not known
    ids = torch.randint(0, 256 if kind == "uint8" else 2, shape, generator=draws)
    if kind != "uint8":
        lengths = torch.randint(1, shape[-1] + 1, (len(ids), 1), generator=draws)
        # whatever stands for padding, one of two is a text without
        ids[0], ids[1], lengths[:2] = 0, 1, shape[-1]
        ids = ids * (torch.arange(shape[-1]) < lengths).view(-1, *[1] * (len(shape) - 2), shape[-1])
    return ids.to(getattr(torch, kind))


@torch.no_grad()
def _exported(model: TrainedModel) -> bytes:
    rows = torch.export.Dim("rows")
    with _as_sentence(model):
        program = torch.export.export(
            Prepared(model).eval(), (_examples(model),), dynamic_shapes=({0: rows},)
        )
        written = io.BytesIO()
        torch.export.save(program, written)
        # not all that torch writes it can read
        again = torch.export.load(io.BytesIO(written.getvalue())).module()
    _require_followed(model, again, "torch.export's program does")
    return written.getvalue()


def _onnx(model: TrainedModel, path: Path) -> None:
    rows = torch.export.Dim("rows")
    with _as_sentence(model):
        program = torch.onnx.export(
            Prepared(model).eval(), (_examples(model),), dynamo=True, verbose=False,
            input_names=["x"], output_names=["outputs"], dynamic_shapes=({0: rows},),
        )  # fmt: skip
    assert program is not None
    taken = program.model.graph.inputs[0].shape
    if taken is not None and isinstance(taken[0], int):
        raise UserError(
            f"export: what {type(model.module).__name__} does depends on how many rows there are, "
            "and ONNX's would take no other number; export .pt or .safetensors"
        )
    program.save(path)


@contextmanager
def _as_sentence(model: TrainedModel) -> Iterator[None]:
    """What torch says of a network that it cannot take apart, in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImportError:
        raise
    except Exception as error:
        why = " ".join(COLOURS.sub("", str(error)).split())[:200]
        name = type(model.module).__name__
        raise UserError(f"export: torch cannot take {name} apart: {why}") from error


def _folder(folder: RunFolder, model: TrainedModel, path: Path) -> None:
    """Weights, config, and what makes inputs, by the names that the hub knows; with the result they
    are a run's folder, which all commands take that use its model.
    """
    path.mkdir()
    try:
        _fill(folder, model, path)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _fill(folder: RunFolder, model: TrainedModel, path: Path) -> None:
    write_whole(path / MODEL, lambda file: save_file(_tensors(model), file))
    config = folder.config()
    about = {
        "library_name": "fedorch", "model": config.model.model_dump(mode="json"),
        "inputs": model.inputs,
    }  # fmt: skip
    write_text(path / "config.json", json.dumps(about, indent=2) + "\n")
    for name in (CONFIG, INPUTS, RESULT):
        write_text(path / name, manifest.verify(folder.path, name).read_text(encoding="utf-8"))
    if (plugins := folder.path / PLUGINS).is_dir():
        shutil.copytree(plugins, path / PLUGINS)
    manifest.seal(path, (CONFIG, INPUTS, RESULT, MODEL))
