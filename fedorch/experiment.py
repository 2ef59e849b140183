"""An experiment that Python code steps, with a network and data of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from fedorch.runs import config_of, said
from orchestrator.config import Config
from orchestrator.config.paths import has
from orchestrator.data.federated import FederatedData, samples_sha256
from orchestrator.data.own.given import samples_from
from orchestrator.data.samples import Samples, array_of, checked, is_whole
from orchestrator.errors import UserError
from orchestrator.models.given import give
from orchestrator.models.net import Net, require_float32
from orchestrator.plugins.blame import blamed, raised
from orchestrator.rounds.drive import client_table
from orchestrator.rounds.experiment import Experiment as Stepped
from orchestrator.training.modes import put_back

if TYPE_CHECKING:
    from torch import Tensor


class Experiment:
    """One run in this process, round by round; nothing is written.

    ``model`` is what a config has, or a ``torch.nn.Module`` whose weights the server begins with;
    ``data`` is inputs and
    labels ``(x, y)``, or ``(x, y, clients)`` with a name for each row's client, in any of the types
    of the dataset ``npz``; ``test`` (default: 0.2) is the part of each client's rows (else of each
    class's) that is for the test, or a mask [n] of these; ``Samples`` say themselves which these
    are. With names the partition is natural, and all clients
    are there, unless the config or ``settings`` say otherwise.
    """

    def __init__(
        self,
        config: str | PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        model: torch.nn.Module | str | Mapping[str, Any] | None = None,
        data: Sequence[Any] | Samples | None = None,
        test: float | np.ndarray | None = None,
        **settings: Any,
    ) -> None:
        """Raises UserError for a config, model or data that do not fit."""
        raw, samples = said(config), None if data is None else _samples(data, test)
        added: dict[str, Any] = {}
        if isinstance(model, torch.nn.Module):
            added["model"] = {"name": "given", "sha256": _kept(model)}
        elif model is not None:
            settings["model"] = model
        if samples is not None:
            _require_one(settings)
            added["data.dataset"] = {"name": "given", "sha256": samples_sha256(samples)}
        if samples is not None and samples.owner is not None:
            clients = int(samples.owner.max()) + 1
            usual = {"data.partition": "natural", "data.clients": clients}
            added |= {key: value for key, value in usual.items() if not has(raw, key)}
        chosen = config_of(raw, **{**added, **settings})
        held = None
        if samples is not None:
            with blamed(chosen.plugins):
                held = FederatedData.build(chosen.data, chosen.seed, samples)
        with put_back():
            self.inner = Stepped(chosen, data=held)

    @property
    def config(self) -> Config:
        """With everything settled."""
        return self.inner.config

    @property
    def round(self) -> int:
        """Rounds done."""
        return self.inner.t

    def step(self) -> dict[str, float]:
        """Do a round, past the config's last one, too; returns its record. Raises UserError if the
        run has diverged.
        """
        with put_back():
            return dict(self.inner.step())

    def run(self, rounds: int | None = None) -> pd.DataFrame:
        """Do so many rounds (default: up to the config's last); returns :attr:`rounds`."""
        if rounds is not None and (not is_whole(rounds) or rounds < 0):
            raise UserError(f"rounds: give a whole number, 0 or more, not {rounds!r}")
        end = None if rounds is None else self.round + rounds
        while self.round < end if end is not None else not self.inner.finished:
            self.step()
        return self.rounds

    @property
    def rounds(self) -> pd.DataFrame:
        """A row a round done."""
        return pd.DataFrame(self.inner.records)

    @property
    def clients(self) -> pd.DataFrame:
        """A row a client and evaluated round."""
        return client_table(self.inner)

    @property
    def weights(self) -> Tensor:
        """The server's model as one vector [d]; a copy."""
        return self.inner.algorithm.model().clone()

    def weights_sha256(self) -> str:
        """Digest of the server's model and batch-norm statistics."""
        return self.inner.weights_sha256()

    def model(self) -> torch.nn.Module:
        """A network of its own with the server's weights, in evaluation mode."""
        inner = self.inner
        samples = inner.data.samples
        net = Net.of(inner.config.model, samples.shape, samples.outputs, inner.config.seed)
        w = inner.algorithm.model()
        net.bind(w, inner.algorithm.statistics())
        for tensor in (*net.params.values(), *net.buffers.values()):
            # each with memory of its own, as files of weights want it
            tensor.data = tensor.data.clone()
        net.module.eval()
        return net.to(w.device).module


def _kept(model: torch.nn.Module) -> str:
    """Digest of a module, of which this process keeps a copy; raises UserError for one that cannot
    be trained, or copied.
    """
    try:
        require_float32(model)
        return give(model)
    except ValueError as error:
        raise UserError(f"config: {error}") from error
    except Exception as error:  # whatever code of others may raise
        raise UserError(f"config: model: the module cannot be copied: {raised(error)}") from error


def _require_one(settings: Mapping[str, Any]) -> None:
    """Raises UserError for settings that name a dataset, beside the data that are given."""
    named = [key for key in settings if f"{key}.".startswith("data.dataset.")]
    if named:
        raise UserError(f"data: they are given, and {named[0]} names others; leave one of them out")


def _samples(data: Sequence[Any] | Samples, test: float | np.ndarray | None) -> Samples:
    if isinstance(data, Samples):
        if test is not None:
            raise UserError("test: fedorch.Samples say which rows are for the test (train)")
        return _own(checked(data, "data"))
    if not isinstance(data, list | tuple) or not 2 <= len(data) <= 3:
        raise UserError("data: give (x, y), (x, y, clients), or fedorch.Samples")
    x, y, *others = data
    whose = others[0] if others else None
    x, y = array_of(x, "data: x"), array_of(y, "data: y")
    clients = None if whose is None else array_of(whose, "data: clients")
    return checked(
        samples_from(x, y, clients, _tested(0.2 if test is None else test, len(x))), "data"
    )


def _own(samples: Samples) -> Samples:
    """With arrays that nobody else writes to; inputs that stay on the disk stay there."""
    arrays: dict[str, Any] = {
        field.name: value.copy()
        for field in fields(samples)
        if isinstance(value := getattr(samples, field.name), np.ndarray)
        and not isinstance(value, np.memmap)
    }
    return replace(samples, **arrays)


def _tested(test: float | np.ndarray, rows: int) -> float | np.ndarray:
    """A part between 0 and 1, or a mask [rows]; raises UserError for anything else."""
    if isinstance(test, float | np.floating) and 0 < test < 1:
        return float(test)
    mask = np.asarray(test)
    if mask.dtype == bool and mask.shape == (rows,):
        return mask
    raise UserError(
        f"test: give a part between 0 and 1, or a bool for each of the {rows} rows, and not "
        f"{mask.dtype} of shape {mask.shape}"
    )
