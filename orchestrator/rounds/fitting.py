"""Whether network, loss, metrics, algorithm and attack fit the data, asked before all else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from algorithms.algorithm import Algorithm
from algorithms.contract import Broken
from algorithms.finite import all_finite
from algorithms.local_config import LocalConfig
from algorithms.parts.losses import IGNORED
from algorithms.parts.schedules import Schedule
from orchestrator.config import Config
from orchestrator.data.augment import Augmentation
from orchestrator.data.federated import FederatedData
from orchestrator.data.mapped import pieces
from orchestrator.data.samples import Samples
from orchestrator.models.net import Net
from orchestrator.models.tried import (
    called,
    has_features,
    mixes,
    needs_company,
    require_alone,
    tried,
    unchanged,
    unstacked,
)
from orchestrator.plugins.blame import raised
from orchestrator.results.usage import frozen_sha256
from orchestrator.training.precision import unfit

TRIED = 5
"""Rows that a network is tried on."""


def require_fit(config: Config, samples: Samples, net: Net) -> bool:
    """Raises ValueError with the first thing that does not; returns whether a network of others
    draws random numbers in training.
    """
    of = config.model.foreign
    if not of and config.model.tags != bool(samples.tags):
        kinds = ("each token", "each input") if samples.tags else ("each input", "each token")
        raise ValueError(
            f"model: the data have a class for {kinds[0]}, and {config.model.name} says one for "
            f"{kinds[1]}"
        )
    for problem in _of_ids(config, samples, net):
        raise ValueError(problem)
    draws = _tried_out(config, samples, net) if of or samples.tags else False
    if not of and not samples.tags and hasattr(net.module, "pad"):
        require_alone(config.model.name, net.module, _trials(config, samples, net), samples.made)
    if not net.spec.size:
        raise ValueError(f"model: {of or config.model.name} has no parameters to train")
    for problem in _problems(config, samples):
        raise ValueError(problem)
    precision, gpus = config.local.precision, config.resources.gpus_per_actor
    if reason := unfit(precision, gpus, net.module, _inputs(samples, 2)):
        raise ValueError(f"local.precision: {reason}")
    return draws


def _tried_out(config: Config, samples: Samples, net: Net) -> bool:
    """Whether the network draws random numbers in training, on some of the data's rows; raises
    ValueError if it does not do what trainers need of it.
    """
    of = config.model.foreign or config.model.name
    inputs, frozen = _trials(config, samples, net), frozen_sha256(net)
    names = [name for name, _ in net.module.named_parameters()]
    draws = tried(of, net.module, inputs, samples.made)
    net.mixes = not draws and mixes(of, net.module, inputs, samples.made)
    # draws are other ones for each client, whatever torch can do
    net.unstacked = "" if draws else unstacked(net, inputs)
    if names != [name for name, _ in net.module.named_parameters()]:
        raise ValueError(f"model: {of}: it makes parameters in its first pass; make them before")
    if not all_finite([net.initial]):
        raise ValueError(f"model: {of}: its first weights are NaN or infinite")
    again = Net.of(config.model, samples.shape, samples.outputs, config.seed)
    if not torch.equal(net.initial, again.initial):
        raise ValueError(
            f"model: {of}: its first weights differ from one time to the next; draw them from "
            "torch's global generator, which is seeded for it"
        )
    if frozen != frozen_sha256(again):
        raise ValueError(
            f"model: {of}: what it holds beside its weights (tables, frozen tensors) "
            "differs from one time to the next, and each actor would have its own; draw it from "
            "torch's global generator, which is seeded for it"
        )
    return draws


def remarks(config: Config, samples: Samples, net: Net, algorithm: Algorithm) -> Iterator[str]:
    """What is to be told before the first round: what will be done as it was asked, and can hardly
    be meant. Raises ValueError for features that there are none of.
    """
    x, local = _inputs(samples, 2), config.local
    steps = max(local.planned(int(rows)) for rows in algorithm.setting.samples)
    if config.algorithm.compares_features and not has_features(net, x):
        yield (
            f"{config.algorithm.name}: what enters the last layer does not depend on the weights "
            "before it, so that comparing it moves none of them (features are what enters the "
            "module that is called last of those that own weights)"
        )
    for key, what, schedule, last in (
        ("schedule", "round", local.schedule, config.rounds),
        ("within", "step", local.within, steps),
    ):
        if last and schedule.ends_at_zero and _ended(schedule, last):
            yield (
                f"local.{key}: the learning rate of the last {what} ({last}) is 0: up to it there "
                f"are {what}s in which nothing is trained, unless its over is raised"
            )
    if config.evaluation.metrics and not config.algorithm.makes_common:
        yield (
            f"evaluation.metrics are of a model for all clients, and {config.algorithm.name} makes "
            "none but the clients' own: none of them is reported"
        )
    yield from _of_layers(config, net, x)
    yield from algorithm.remarks()


def _ended(schedule: Schedule, last: int) -> bool:
    """Whether its factor is 0 at the last round or step; of one that is no number the first that
    meets it says so.
    """
    try:
        return schedule.factor(last) == 0
    except Broken:
        return False


def _of_layers(config: Config, net: Net, x: torch.Tensor) -> Iterator[str]:
    """Where "the last so many layers" are others in the order of declaration, by which parts count
    them, than in that of their calls.
    """
    order: list[str] | None = None
    for part in config.sections():
        many = getattr(part, "layers", None)
        # a network's own are those that it has
        if part is config.model or not isinstance(many, int):
            continue
        order = called(net, x) if order is None else order
        declared = net.spec.layers[-many:]
        if {*order} == {*net.spec.layers} and {*order[-many:]} != {*declared}:
            yield (
                f"layers {many} of {getattr(part, 'name', 'a part')}: those that the network "
                f"declares last ({', '.join(declared)}), and not those that it calls last "
                f"({', '.join(order[-many:])}), which a regular expression over names can say"
            )


def require_batches(config: Config, data: FederatedData, net: Net) -> None:
    """Raises ValueError for a client that would train on a single row where the network's batch
    normalisation can make nothing of one.
    """
    if not any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in net.module.modules()):
        return
    of, samples = config.model.foreign or config.model.name, data.samples
    if not needs_company(of, net.module, _inputs(samples, 1), samples.made):
        return
    sizes = {f"client {k}": int(n) for k, n in enumerate(data.train.sizes)}
    sizes["the server"] = len(data.heldout_rows) if config.aggregator.needs_reference else 0
    local = config.local
    for who, rows in sizes.items():
        batches = _batch_sizes(rows, local)
        piece = local.micro_batch or local.batch_size
        if any(min(b, piece) == 1 or b % piece == 1 for b in batches):
            raise ValueError(
                f"model: {of}: its batch normalisation can make nothing of a single row, and {who} "
                f"has {rows}, of which a mini-batch (of {local.batch_size}"
                f"{f', in pieces of {piece}' if local.micro_batch else ''}) has one; set "
                "local.drop_last, another local.batch_size, or no local.micro_batch"
            )


def _batch_sizes(rows: int, local: LocalConfig) -> set[int]:
    """Sizes of the mini-batches that a client of so many rows meets."""
    b = local.batch_size
    if local.drop_last or local.sampling == "independent":
        return {min(rows, b)} if rows >= b or not local.drop_last else set()
    reached = local.steps is None or local.steps >= -(-rows // b)
    return {min(rows, b), rows % b if reached else 0} - {0}


def _inputs(samples: Samples, rows: int) -> torch.Tensor:
    """The first inputs, of the type and the size that networks meet."""
    x = torch.from_numpy(samples.x[:rows].copy())
    return x.float() / 255 if x.dtype == torch.uint8 else x


def _trials(config: Config, samples: Samples, net: Net) -> torch.Tensor:
    """Inputs that a network is tried on: the first of the data; of texts with padding the first
    whole, and the others shorter and shorter by their middle, because they may all be as long.
    """
    x = _inputs(samples, TRIED)
    if not config.model.foreign and (pad := getattr(net.module, "pad", None)) is not None:
        for number, (ids, types) in enumerate(x):
            words = int((ids != pad).sum())
            left = max(1, words * (2 * len(x) - number) // (2 * len(x)))
            # the last ends a text, and some networks ask for that
            ids[left - 1], types[left - 1] = ids[words - 1].clone(), types[words - 1].clone()
            ids[left:], types[left:] = pad, 0
        if not _takes(net, x):  # some want as many ends in each text
            return _inputs(samples, TRIED)
    return x


def _of_ids(config: Config, samples: Samples, net: Net) -> Iterator[str]:
    """What networks of ours that begin with an embedding say of other inputs than its ids."""
    rows = getattr(getattr(net.module, "embedding", None), "num_embeddings", None)
    if config.model.foreign:
        return
    if (mine := getattr(net.module, "pad", None)) is not None:
        theirs = config.data.dataset.padding
        if theirs not in (None, mine):
            yield (
                f"model.checkpoint: {config.model.name} takes token {mine} for padding, and "
                f"data.dataset.tokenizer fills texts up with token {theirs}; set pad_token_id in "
                f"the checkpoint's config.json to {theirs}"
            )
        return
    if rows is None:
        if samples.x.dtype == np.int32 and not _takes(net, _inputs(samples, 2)):
            yield (
                f"model {config.model.name!r} multiplies its inputs, and the data's are token ids; "
                "take one that begins with an embedding (`fedorch list models`)"
            )
        return
    if samples.x.dtype != np.int32:
        yield f"model {config.model.name!r} needs token ids, and the inputs are other numbers"
    elif (most := max(int(piece.max()) for piece in pieces(samples.x))) >= rows:
        yield f"model.vocabulary: the embedding has {rows} rows, and token ids go up to {most}"


def _takes(net: Net, x: torch.Tensor) -> bool:
    """Whether the network makes anything of such inputs."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), unchanged(net.module):
            net.module.eval()
            net.module(x)
    except Exception:  # whatever a network raises of inputs that it was not made for
        return False
    return True


def _problems(config: Config, samples: Samples) -> Iterator[str]:
    targets = torch.from_numpy(samples.wanted.copy())
    if (refusal := config.loss.refuses(samples.outputs, targets)) is not None:
        yield f"loss: {refusal}"
    first = torch.from_numpy(samples.x[:1].copy())
    for augmentation in config.data.augment:
        if (refusal := _tried(augmentation, first)) is not None:
            yield f"data.augment: {augmentation.name}: {refusal}"
    for metric in config.evaluation.metrics:
        each = targets[targets != IGNORED] if samples.tags else targets
        if (refusal := metric.refuses(each)) is not None:
            yield f"evaluation.metrics: {refusal}"
    if samples.targets is None:
        return
    kind = "classes of tokens" if samples.tags else "numbers"
    if config.algorithm.needs_classes:
        yield f"{config.algorithm.name} goes by accuracy, and the data's targets are {kind}"
    if config.attack.flips_labels:
        name = config.attack.name
        yield f"attack {name} flips classes of rows, and the data's targets are {kind}"


def _tried(augmentation: Augmentation, first: torch.Tensor) -> str | None:
    try:
        return augmentation.tried(first)
    except Exception as error:  # whatever code of others may raise
        return raised(error)
