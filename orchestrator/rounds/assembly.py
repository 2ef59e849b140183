"""The parts that a config names become those of one run: its algorithm, its world, its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from algorithms.algorithm import Algorithm
from algorithms.setting import Setting
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.books import Books, Terms
from orchestrator.clients.federation import Federation
from orchestrator.clients.ledger import Ledger
from orchestrator.clients.mailroom import Mailroom
from orchestrator.clients.plane import Plane
from orchestrator.config import Config
from orchestrator.data.federated import FederatedData
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.plugins.imports import imports_of
from orchestrator.rounds.judge import keeps_personal_models
from orchestrator.training.world import World


@contextmanager
def of_config(where: str = "") -> Iterator[None]:
    """A ValueError of the parts that the config names is the config's."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"config: {where}{error}") from error


def algorithm_of(config: Config, net: Net, data: FederatedData) -> Algorithm:
    """The server's side, at the network's initial weights; ValueError if it cannot be."""
    setting = Setting(
        config.seed, data.train.sizes, net.spec, config.composition(),
        len(data.heldout_rows), net.buffer_spec, data.histogram().argmax(1),
    )  # fmt: skip
    made = config.algorithm.start(setting, net.initial.clone(), net.initial_buffers.clone())
    if not hasattr(made, "past"):
        raise ValueError(f"the __init__ of {type(made).__name__} must call super().__init__")
    return made


def world_of(config: Config, net: Net, data: FederatedData, adversary: Adversary) -> World:
    """What every client's process knows."""
    return World(
        data=data,
        model=config.model,
        local=config.local,
        buffers=config.buffers,
        seed=config.seed,
        threads=config.resources.threads,
        mislabelled=adversary.mislabelled,
        forgers=adversary.forgers,
        uplink=config.compression.uplink,
        loss=config.loss,
        augment=config.data.augment,
        outputs=bool(config.evaluation.metrics),
        gradient_norms=config.evaluation.gradient_norms,
        draws=net.may_draw,
        plugins=config.plugins,
        imports=imports_of(config.plugins),
    )


def federation_of(
    config: Config,
    net: Net,
    data: FederatedData,
    adversary: Adversary,
    algorithm: Algorithm,
    plane: Plane,
) -> Federation:
    """The clients as the ``algorithm`` meets them, run by the ``plane``."""
    ledger = Ledger(data.clients)
    terms = Terms(
        local=config.local,
        samples=data.holdings.sizes,
        block=config.local.block or 1,
        vectorized=config.local.execution == "vectorized",
        adversary=adversary,
        non_finite=config.non_finite,
        judge_local=config.evaluation.local_models and not keeps_personal_models(algorithm),
        buffers=config.buffers,
        initial_buffers=net.initial_buffers,
        uplink=config.compression.uplink,
        seed=config.seed,
        minimum_cohort=config.resources.minimum_cohort,
    )
    mailroom = Mailroom(ledger, config.compression.downlink, config.buffers, config.seed)
    return Federation(plane, data, terms, Books(ledger), mailroom)
