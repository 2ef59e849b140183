"""``fedorch export``: a run's final model as others take it, with a card that says what it is."""

from __future__ import annotations

import io
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from orchestrator.cli.predicting import ODDS
from orchestrator.config import UNNAMED
from orchestrator.data.columns import Column
from orchestrator.errors import UserError
from orchestrator.extras import named_if_missing
from orchestrator.files import write_text, write_whole
from orchestrator.models.base import Model
from orchestrator.models.given import GivenModule
from orchestrator.pages.sentence import told
from orchestrator.plugins import FOLDER as PLUGINS
from orchestrator.results import manifest
from orchestrator.results.columns import of_round
from orchestrator.results.run_folder import CONFIG, INPUTS, MODEL, RESULT, RunFolder
from orchestrator.results.usage import Inputs, TrainedModel
from orchestrator.terminal import console

if TYPE_CHECKING:
    from torch import Tensor

COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""What torch colours its sentences with."""
OPENED = (
    "Where the run is at hand, `network = fedorch.open(RUN).model()` builds it, RUN being its "
    "folder, and has the weights."
)
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
    others = _others(model)
    # numbers that are small or large may take another way
    scaled = [others * scale for scale in SCALES] if others.is_floating_point() else [others]
    tried = [_taken(network, some, _examples(model)) for some in scaled]
    if not all(_follows(trace, some, network(some)) for some in tried):
        raise UserError(
            f"export: what {type(model.module).__name__} does depends on the values of its inputs, "
            "which TorchScript's trace does not follow; export .pt or .safetensors"
        )
    return written.getvalue()


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
        ids = ids * (torch.arange(shape[-1]) < lengths).view(-1, *[1] * (len(shape) - 2), shape[-1])
    return ids.to(getattr(torch, kind))


def _exported(model: TrainedModel) -> bytes:
    rows = torch.export.Dim("rows")
    with _as_sentence(model):
        program = torch.export.export(
            Prepared(model).eval(), (_examples(model),), dynamic_shapes=({0: rows},)
        )
        written = io.BytesIO()
        torch.export.save(program, written)
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


def model_card(folder: RunFolder, model: TrainedModel, license_: str, out: Path) -> str:
    """What the model is, in the form that Hugging Face's hub reads: data, algorithm, metrics,
    licence, digest, and how to use it.
    """
    config, result = folder.config(), folder.result()
    parameters = sum(tensor.numel() for tensor in folder.model().values())
    what, ending = told(config, result, parameters)
    metrics = {k: v for k, v in result["metrics"].items() if k.startswith(("test", "client"))}
    rows = "".join(f"| {k} | {v:.4f} | {of_round(k)} |\n" for k, v in metrics.items())
    inputs = model.inputs
    given = f"{'pixels, ' if inputs['dtype'] == 'uint8' else ''}{_array(inputs)}"
    # a module that Python code has handed over nobody else can build: its folder is weights
    given_module = isinstance(config.model, GivenModule)
    form = ".safetensors" if not out.suffix and given_module else out.suffix
    classes = inputs.get("classes", [])
    title = f"{config.model.name} on {config.data.dataset.name}, by {config.algorithm.name}"
    title = title if config.name == UNNAMED else config.name
    odds = config.loss.name in ODDS and inputs["task"] == "classes"
    scores = ", whose softmax is how likely each class is" if odds else ""
    named = f" Classes, in the order of the outputs: {', '.join(classes)}." if classes else ""
    return (
        "---\n"
        f"license: {json.dumps(license_)}\nlibrary_name: fedorch\n"
        f"tags: [federated-learning, {config.algorithm.name}]\n"
        f"datasets: [{config.data.dataset.name}]\n---\n\n"
        f"# {title}\n\n{what} {ending}\n\n"
        f"Inputs: {given}, {_preparation(inputs, form)}; "
        f"{inputs['outputs']} outputs{scores}.{named}\n\n"
        f"{_usage(out, form, model, config.model)}"
        f"| metric | value | meaning |\n|---|---|---|\n{rows}\n"
        f"weights_sha256 `{result['weights_sha256']}`, seed {result['seed']}, "
        f"fedorch {result['versions'].get('fedorch', '')}.\n"
    )


def _usage(out: Path, form: str, model: TrainedModel, of: Model) -> str:
    """How it is loaded, in Python; for weights alone, into which network."""
    name, file = json.dumps(out.name), json.dumps(out.name if out.suffix else f"{out.name}/{MODEL}")
    made = "predict" if model.inputs["task"] == "classes" else "outputs"
    shown, scaled = [*_example(model.inputs)], [*_scaling(model.inputs)]
    text, asked = _asked(model.inputs)
    named = [*_names(model.inputs)]
    lines = {
        ".onnx": ["import onnxruntime", f"model = onnxruntime.InferenceSession({name})",
                  *shown, 'outputs = model.run(None, {"x": x})[0]', *named],
        ".pt2": ["import torch", f"model = torch.export.load({name}).module()",
                 *shown, "outputs = model(torch.as_tensor(x)).detach()", *named],
        ".pt": ["import torch", f"state = torch.load({name}, weights_only=True)",
                "network.load_state_dict(state)  # the network above", "network.eval()",
                *shown, *scaled, "outputs = network(torch.as_tensor(x)).detach()", *named],
        ".safetensors": ["import torch", "from safetensors.torch import load_file",
                         f"network.load_state_dict(load_file({file}))  # the network above",
                         "network.eval()", *shown, *scaled,
                         "outputs = network(torch.as_tensor(x)).detach()", *named],
        ".torchscript": ["import torch", f"model = torch.jit.load({name})", *shown,
                         "outputs = model(torch.as_tensor(x)).detach()", *named],
        "": ["import fedorch", f"model = fedorch.open({name})", text,
             f"made = model.{made}({asked})",
             *(["print([model.classes[c] for c in made])"] if named else [])],
    }[form]  # fmt: skip
    weights = form in (".pt", ".safetensors")
    # which nobody but its own code can build
    opened = "" if isinstance(of, GivenModule) else f"\n{OPENED}\n"
    into = (
        f"The weights are those of this network:\n\n```\n{model.module}\n```\n{opened}\n"
        if weights else ""
    )  # fmt: skip
    return into + "```python\n" + "\n".join(lines) + "\n```\n\n"


def _example(inputs: Inputs) -> Iterator[str]:
    """Lines that make inputs ``x`` of a picture; of others what they are."""
    shape = inputs["shape"]
    if columns := inputs.get("columns"):
        yield "import numpy"
        yield f"row = {_row(columns)}"
        yield f'x = numpy.array([[{", ".join(map(_of_row, columns))}]], "float32")'
        return
    if inputs["dtype"] != "uint8" or len(shape) != 3 or shape[0] not in (1, 3):
        yield f"# x: {_array(inputs)}"
        return
    mode, axes = ("L", "None, None") if shape[0] == 1 else ("RGB", "None")
    turned = "" if shape[0] == 1 else ".transpose(0, 3, 1, 2).copy()"
    yield "import numpy"
    yield "from PIL import Image"
    yield (
        f'picture = Image.open("picture.png").convert("{mode}").resize(({shape[2]}, {shape[1]}), '
        "Image.Resampling.BILINEAR)"
    )
    yield f"x = numpy.array(picture)[{axes}]{turned}  # {_array(inputs)}"


def _row(columns: Sequence[Column]) -> str:
    """A row in the middle of those that were trained on."""
    middle = {
        c["name"]: round(c["mean"], 3) if c["texts"] is None else c["texts"][0] for c in columns
    }
    return json.dumps(middle, ensure_ascii=False)


def _of_row(column: Column) -> str:
    """What makes a column's inputs of ``row``."""
    value = f"row[{json.dumps(column['name'], ensure_ascii=False)}]"
    if column["texts"] is None:
        return f"({value} - {column['mean']:.9g}) / {column['std']:.9g}"
    return ", ".join(f"{value} == {json.dumps(t, ensure_ascii=False)}" for t in column["texts"])


def _scaling(inputs: Inputs) -> Iterator[str]:
    """Lines that scale pixels ``x``, for a network without that in front."""
    if inputs["dtype"] == "uint8":
        shift, scale = (
            f"torch.tensor([{', '.join(f'{v:.9g}' for v in inputs[key])}]).view(-1, 1, 1)"
            for key in ("shift", "scale")
        )
        yield f"x = (torch.as_tensor(x).float() - {shift}) * {scale}"


def _names(inputs: Inputs) -> Iterator[str]:
    """Lines that turn ``outputs`` into classes."""
    if inputs["task"] == "classes" and (classes := inputs.get("classes")):
        yield f"classes = {json.dumps(classes, ensure_ascii=False)}"
        yield "print([classes[int(row.argmax())] for row in outputs])"


def _asked(inputs: Inputs) -> tuple[str, str]:
    """A comment, and what `fedorch.open`'s model is asked of: a picture, a row, an array."""
    if columns := inputs.get("columns"):
        about = "# rows as they are, also as a frame; an array has to be made ready"
        return f"{about}, {_array(inputs)}", _row(columns)
    pixels = inputs["dtype"] == "uint8" and len(inputs["shape"]) == 3
    if pixels and inputs["shape"][0] in (1, 3):
        return f"# or an array, {_array(inputs)}", '"picture.png"'
    return f"# x: {_array(inputs)}", "x"


def _array(inputs: Inputs) -> str:
    """Type and shape of inputs."""
    return f"{inputs['dtype']} [{', '.join(map(str, ('n', *inputs['shape'])))}]"


def _preparation(inputs: Inputs, form: str) -> str:
    """What must be done to inputs first."""
    if not form:
        if columns := inputs.get("columns"):
            names = ", ".join(column["name"] for column in columns)
            return f"which `fedorch.open` makes of rows with the columns {names}"
        return "as they are: `fedorch.open` scales pixels"
    if columns := inputs.get("columns"):
        return f"made of a table's columns, in this order: {'; '.join(map(_made, columns))}"
    if inputs["dtype"] != "uint8":
        return "as the model was trained on"
    if form in (".onnx", ".pt2", ".torchscript"):
        return "scaled inside the model"
    shift, scale = (", ".join(f"{v:.9g}" for v in inputs[key]) for key in ("shift", "scale"))
    return f"to be scaled, (x − [{shift}]) · [{scale}] of each channel"


def _made(column: Column) -> str:
    name = column["name"]
    if column["texts"] is None:
        return f"({name} − {column['mean']:.9g}) / {column['std']:.9g}"
    return ", ".join(f"1 where {name} is {text!r}, else 0" for text in column["texts"])
