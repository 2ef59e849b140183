"""The card beside an exported model: what it is, and code that uses it as it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.cli.predicting import gives_odds, takes_pictures
from orchestrator.config import UNNAMED
from orchestrator.data.columns import Column
from orchestrator.models.base import Model
from orchestrator.models.given import GivenModule
from orchestrator.pages.sentence import told
from orchestrator.results.columns import of_round
from orchestrator.results.contents import MODEL
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import Inputs, TrainedModel, parameters_of

OPENED = (
    "Where the run is at hand, `network = fedorch.open(RUN).model()` builds it, RUN being its "
    "folder, and has the weights."
)


def model_card(folder: RunFolder, model: TrainedModel, license_: str, out: Path) -> str:
    """What the model is, in the form that Hugging Face's hub reads: data, algorithm, metrics,
    licence, digest, and how to use it.
    """
    config, result = folder.config(), folder.result()
    what, ending = told(config, result, parameters_of(folder, result))
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
    odds = gives_odds(model, config)
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
    if not takes_pictures(inputs):
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
    if takes_pictures(inputs):
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
