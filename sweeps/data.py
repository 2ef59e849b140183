"""Datasets in memory once a node: the driver reads them, trials see Ray's shared copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ray

from orchestrator.config import Config
from orchestrator.data.federated import FederatedData, samples_sha256
from orchestrator.data.samples import Request, Samples
from orchestrator.data.sources import located
from orchestrator.errors import UserError
from orchestrator.files import digest_of_all, read_sealed, said
from orchestrator.plugins.imports import digest_of, require_as_imported, require_imports
from orchestrator.plugins.plugin import Plugin
from orchestrator.results.run_folder import RunFolder

FILE = "data.json"
IMPORTS = "modules that plugins import"
MOST = 8
"""Datasets that a driver reads in advance; trials read further ones themselves."""


class Shelf:
    """Samples by dataset, as references to Ray's object store; and the partitions made from them in
    this process.
    """

    def __init__(
        self,
        references: Mapping[str, ray.ObjectRef[Samples]],
        digests: Mapping[str, str] | None = None,
        imports: Mapping[str, str] | None = None,
    ) -> None:
        self.references, self.digests = dict(references), dict(digests or {})
        self.imports = dict(imports or {})
        """What the trials' plugins import, as the sweep was begun."""
        self.made: dict[str, FederatedData] = {}

    @classmethod
    def of(cls, configs: Iterable[Config]) -> Shelf:
        """Read what ``configs`` name; raises UserError if a dataset cannot be had."""
        references: dict[str, ray.ObjectRef[Samples]] = {}
        digests: dict[str, str] = {}
        plugins: dict[str, Plugin] = {}
        for config in configs:
            key = _name(config)
            plugins |= {plugin.module: plugin for plugin in config.plugins}
            for name in config.named_files():
                if name not in digests and (digest := _digest_of(name)) is not None:
                    digests[name] = digest
            if key not in references and len(references) < MOST:
                samples = _load(config)
                references[key], digests[key] = ray.put(samples), samples_sha256(samples)
        imports = require_as_imported(plugins.values())
        if plugins:
            digests[IMPORTS] = digest_of(imports)
        return cls(references, digests, imports)

    def leave(self, folder: RunFolder) -> None:
        """Say in the sweep's folder which data it was begun with."""
        folder.write_sealed(FILE, self.digests)

    def require_unchanged(self, folder: RunFolder) -> None:
        """Raise UserError if what these and the sweep in ``folder`` both have is not the same: a
        table is tuned and made on the same data.
        """
        known = read_sealed(folder.path / FILE, dict[str, str])
        both = {name: digest for name, digest in self.digests.items() if name in known}
        _require_same(both, known, folder)

    def require_known(self, folder: RunFolder) -> None:
        """Raise UserError unless these are the data, and the files that configs name (partitions,
        policies, weights), that the sweep in ``folder`` was begun with.
        """
        _require_same(self.digests, read_sealed(folder.path / FILE, dict[str, str]), folder)

    def require_code(self, config: Config) -> None:
        """Raise OtherCode if what a trial's plugins import is not what the sweep was begun with."""
        require_imports(config.plugins, self.imports)

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


def _require_same(now: Mapping[str, str], known: Mapping[str, str], folder: RunFolder) -> None:
    for name, digest in now.items():
        if name == IMPORTS and known.get(name, "") != digest:
            raise UserError(
                f"{folder.place}: {IMPORTS} are not those that the sweep was begun with; put them "
                "back"
            )
        if name != IMPORTS and known.get(name) != digest:
            raise UserError(
                f"{folder.place}: {name} is not what the sweep was begun with; put the data back"
            )


def _digest_of(name: str) -> str | None:
    """Of the file or folder that an option names; None if it names none."""
    with said(f"cannot read {name[:200]}"):
        file = located(name)
        return None if file is None else digest_of_all(file)


def _load(config: Config) -> Samples:
    return config.data.dataset.load(Request(config.seed, config.data.clients))


def _name(config: Config) -> str:
    """What the samples depend on."""
    dataset = config.data.dataset
    return dataset.model_dump_json() + (
        f" {config.seed} {config.data.clients}" if dataset.generated else ""
    )
