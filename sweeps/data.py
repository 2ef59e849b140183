"""Datasets in memory once a node: the driver reads them, trials see Ray's shared copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ray

from orchestrator.config import Config
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import Request, Samples

MOST = 8
"""Datasets that a driver reads in advance; trials read further ones themselves."""


class Shelf:
    """Samples by dataset, as references to Ray's object store; and the partitions made from them in
    this process.
    """

    def __init__(self, references: Mapping[str, ray.ObjectRef[Samples]]) -> None:
        self.references = dict(references)
        self.made: dict[str, FederatedData] = {}

    @classmethod
    def of(cls, configs: Iterable[Config]) -> Shelf:
        """Read what ``configs`` name; raises UserError if a dataset cannot be had."""
        references: dict[str, ray.ObjectRef[Samples]] = {}
        for config in configs:
            key = _name(config)
            if key not in references and len(references) < MOST:
                references[key] = ray.put(_load(config))
        return cls(references)

    def data(self, config: Config) -> FederatedData:
        """The federation's data of a trial; trials of one process that share it get the same
        object.
        """
        key = f"{config.data.model_dump_json()} {config.seed}"
        if key not in self.made:
            # a process' trials come in order; the partitions of one setting are enough
            self.made.clear()
            reference = self.references.get(_name(config))
            samples = ray.get(reference) if reference is not None else _load(config)
            self.made[key] = FederatedData.build(config.data, config.seed, samples)
        return self.made[key]


def _load(config: Config) -> Samples:
    return config.data.dataset.load(Request(config.seed, config.data.clients))


def _name(config: Config) -> str:
    """What the samples depend on."""
    dataset = config.data.dataset
    return dataset.model_dump_json() + (
        f" {config.seed} {config.data.clients}" if dataset.generated else ""
    )
