"""The schema of an experiment: typed, validated, read from YAML and written back fully resolved."""

from __future__ import annotations

from typing import Annotated, Literal

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

import algorithms  # noqa: F401  a config can name what has been imported
import orchestrator.training  # noqa: F401  losses and metrics of one's own join them, too
import rl.weighers  # noqa: F401  FedAA's agents join the parts that a config can name
from algorithms.algorithm import AlgorithmOptions
from algorithms.fedavg import FedAvg
from algorithms.local_config import LocalConfig
from algorithms.part import SEVERAL, chosen_from, nearest
from algorithms.parts.aggregators import Aggregator, Mean
from algorithms.parts.attacks import Attack, NoAttack
from algorithms.parts.compressors import Compressor, NoCompression
from algorithms.parts.iterates import Last, Output
from algorithms.parts.losses import CrossEntropy, Loss
from algorithms.parts.metrics import Metric, nameable
from algorithms.parts.round_ends import Fixed, RoundEnd
from algorithms.parts.samplers import Sampler, Uniform
from algorithms.parts.server_optimizers import ServerOptimizer, ServerSgd
from algorithms.section import Section
from algorithms.setting import Composition
from orchestrator.config.energy import Energy
from orchestrator.config.goal import Goal, goal_of
from orchestrator.data.federated import DataConfig
from orchestrator.models import Model
from orchestrator.models.images import LeNet5
from orchestrator.plugins.own import Own
from orchestrator.plugins.plugin import Plugin
from orchestrator.tracking import TensorBoard, Tracker


class CompressionConfig(Section):
    """Section ``compression``: what is sent in place of the vectors (batch-norm statistics are
    always sent whole).
    """

    uplink: Annotated[SerializeAsAny[Compressor], chosen_from(Compressor)] = NoCompression()
    downlink: Annotated[SerializeAsAny[Compressor], chosen_from(Compressor)] = NoCompression()

    @field_validator("downlink")
    @classmethod
    def _feeds_back(cls, downlink: Compressor) -> Compressor:
        """The server always sends what the clients' copy of the model has not got yet, so what a
        message leaves out is in the next: said so in every config.
        """
        fed = {"error_feedback": True} if "error_feedback" in type(downlink).model_fields else {}
        return downlink.model_copy(update=fed)

    @property
    def lossy(self) -> bool:
        """Whether anything is compressed on its way."""
        ways = self.uplink, self.downlink
        return not all(isinstance(way, NoCompression) for way in ways)


TAKEN = {
    "accuracy", "loss", "malicious", "round", "client", "test_rows", "steps", "joules",
    "bytes_up", "bytes_down", "dual", "weight",
}  # fmt: skip
"""Columns of a client that no metric may take the place of."""


class EvaluationConfig(Section):
    """Section ``evaluation``."""

    every: int = Field(
        1, ge=1, description="evaluate after every n-th round (and always after the last)"
    )
    every_steps: Annotated[int, Field(ge=1)] | Literal["epoch"] | None = Field(
        None,
        description="in place of every: evaluate at each multiple of so many local steps (of the "
        "longest client; epoch: its mini-batches in one pass), which is the same clock however "
        "long rounds are. Where a round only averages, and all clients do equally many steps "
        "(local.steps, or a round end that counts them), the mean of the local models is evaluated "
        "in the middle of it, as after a synchronisation that nobody pays; else the model after "
        "the first round that has passed the multiple. evaluated_steps says when",
    )
    clients: bool = Field(True, description="evaluate the model on every client's own test rows")
    metrics: Annotated[
        tuple[Annotated[SerializeAsAny[Metric], chosen_from(Metric)], ...], SEVERAL
    ] = Field(
        (),
        max_length=50,
        description="recorded beside accuracy and loss, of the same rows: names, or "
        "./FILE.py:FUNCTION of one's own",
    )
    personal: bool = Field(
        True, description="evaluate personal models, where the algorithm keeps them"
    )
    local_models: bool = Field(
        False,
        description="where it keeps none: evaluate each model that was trained in the round on its "
        "client's test rows",
    )
    gradient_norms: bool = Field(
        False,
        description="record the norm of the mini-batch gradients of each layer, mean over steps "
        "and clients",
    )

    @model_validator(mode="after")
    def _one_clock(self) -> EvaluationConfig:
        if self.every_steps is not None and self.every != 1:
            raise ValueError("give either every (rounds) or every_steps, not both")
        return self

    @model_validator(mode="after")
    def _each_once(self) -> EvaluationConfig:
        names = [metric.called for metric in self.metrics]
        if strange := [name for name in names if not nameable(name)]:
            raise ValueError(
                f"metrics: {str(strange[0])[:50]!r} is no name (called: a text of one line)"
            )
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"metrics names {twice[0]!r} twice")
        taken = [n for n in names if n in TAKEN or n.startswith(("personal_", "validation_"))]
        if taken or any(n.endswith("_validation") for n in names):
            raise ValueError(
                f"metrics: {(taken or names)[0]!r} is a name of what is recorded anyway"
            )
        return self


class CheckpointConfig(Section):
    """Section ``checkpoint``."""

    every: int = Field(
        10,
        ge=0,
        description="write a checkpoint after every n-th round, and the last one; 0: only when "
        "stopped",
    )
    keep: int = Field(2, ge=1, description="checkpoints kept")


class ResourcesConfig(Section):
    """Section ``resources``: what runs where.

    The result depends on ``threads``, on whether ``clients_per_actor`` is set (blocks are then one
    client each), and on whether clients compute on a GPU; a client that ``on_timeout`` drops is the
    clock's doing.
    """

    actors: int | None = Field(
        None, ge=1, le=100_000, description="client actors; unset: as many as the cluster allows"
    )
    clients_per_actor: int | None = Field(
        None,
        ge=1,
        description="fixed home of each client: N/clients_per_actor actors; 1 gives one actor per "
        "client (blocks are then of one client, which other bits come from than with unset)",
    )
    cpus_per_actor: float = Field(
        1.0, ge=0, le=10_000, description="CPUs that each client actor is pinned to"
    )
    gpus_per_actor: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="GPUs (a fraction below 1) that each client actor is pinned to",
    )
    threads: int = Field(
        1, ge=1, le=256, description="torch threads of a trainer (part of the result's bits)"
    )
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        "PACK", description="Ray's placement of the client actors over nodes"
    )
    boot_timeout: float = Field(
        300.0, gt=0, le=1e6, description="seconds to wait for actors before giving up"
    )
    client_timeout: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="seconds that a block of clients may take before its actor is ended; unset: no "
        "limit",
    )
    on_timeout: Literal["redo", "drop"] = Field(
        "redo",
        description="what becomes of such clients: tried on another actor, or left out of the "
        "round",
    )
    minimum_cohort: int = Field(
        1, ge=1, description="with on_timeout drop: the fewest clients a round may end with"
    )

    @model_validator(mode="after")
    def _whole_gpus(self) -> ResourcesConfig:
        # Ray knows fractions of one GPU only
        if self.gpus_per_actor > 1 and self.gpus_per_actor % 1:
            raise ValueError(f"gpus_per_actor above 1 must be whole, not {self.gpus_per_actor}")
        if self.actors is not None and self.clients_per_actor is not None:
            raise ValueError("give either actors or clients_per_actor, not both")
        if self.on_timeout == "drop" and self.client_timeout is None:
            raise ValueError("on_timeout: drop needs a client_timeout")
        return self


def _goal(text: float | str) -> float | str:
    Goal.read(text)
    return text


HOW_MUCH = ("rounds", "stop", "evaluation", "resources", "checkpoint", "energy", "track")
"""Sections that say how much is done, where, and what is seen of it, and not what a round
computes."""


class Config(Section):
    """One experiment."""

    name: str = Field(
        "run",
        pattern=r"^[\w][\w.-]*$",
        max_length=50,
        description="name of the run (letters, digits, . _ -)",
    )
    plugins: tuple[Plugin, ...] = Field(
        (),
        max_length=20,
        description="files (./mine.py) and installed modules (package.module) of one's own, whose "
        "parts can be named below",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="every random draw is a function of it")
    rounds: int = Field(40, ge=1, description="communication rounds T")
    stop: Annotated[
        dict[str, Annotated[float | str, AfterValidator(_goal)]],
        BeforeValidator(lambda given: {} if given is None else given),
    ] = Field(
        default_factory=dict,
        max_length=100,
        description="end before the last round when one of these metrics of a round is at least "
        'its value (or "<= 0.1": at most, which a loss needs); steps_total adds up each round\'s '
        "longest client",
    )
    data: DataConfig = DataConfig()
    model: Annotated[SerializeAsAny[Model], chosen_from(Model)] = LeNet5()
    algorithm: Annotated[SerializeAsAny[AlgorithmOptions], chosen_from(AlgorithmOptions)] = (
        FedAvg.Options()
    )
    loss: Annotated[SerializeAsAny[Loss], chosen_from(Loss)] = Field(
        CrossEntropy(),
        description="what local training minimises; ./FILE.py:FUNCTION of one's own",
    )
    local: LocalConfig = LocalConfig()
    cohort: int | float = Field(
        10, gt=0, description="clients a round m: a number, or a fraction of N (1.0: all)"
    )
    sampler: Annotated[SerializeAsAny[Sampler], chosen_from(Sampler)] = Uniform()
    round_end: Annotated[SerializeAsAny[RoundEnd], chosen_from(RoundEnd)] = Fixed()
    aggregator: Annotated[SerializeAsAny[Aggregator], chosen_from(Aggregator)] = Mean()
    server_optimizer: Annotated[SerializeAsAny[ServerOptimizer], chosen_from(ServerOptimizer)] = (
        ServerSgd()
    )
    output: Annotated[SerializeAsAny[Output], chosen_from(Output)] = Field(
        Last(), description="the model judged and saved: the last one, or a mean over rounds"
    )
    attack: Annotated[SerializeAsAny[Attack], chosen_from(Attack)] = NoAttack()
    compression: CompressionConfig = CompressionConfig()
    buffers: Literal["aggregate", "local", "exclude"] = Field(
        "aggregate",
        description="batch-norm statistics: sent and averaged; kept by the clients, averaged only "
        "to evaluate; "
        "or kept by the clients while the server's stay as initialised",
    )
    non_finite: Literal["fail", "drop", "keep"] = Field(
        "fail",
        description="what to do with a NaN or infinite update: end the run (as when the server's "
        "step makes its model so), leave the update out, or count it",
    )
    energy: Energy = Energy()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    resources: ResourcesConfig = ResourcesConfig()
    track: Annotated[
        tuple[Annotated[SerializeAsAny[Tracker], chosen_from(Tracker)], ...], SEVERAL
    ] = Field(
        (TensorBoard(),),
        max_length=20,
        description="where rounds are passed on to beside the run's own files, while it goes",
    )

    @field_validator("track")
    @classmethod
    def _each_tracker_once(cls, track: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
        names = [one.name for one in track]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"names {twice[0]!r} twice")
        return track

    @property
    def cohort_size(self) -> int:
        """m, the number of clients drawn each round."""
        if isinstance(self.cohort, float):
            return max(1, round(self.cohort * self.data.clients))
        return self.cohort

    def composition(self) -> Composition:
        """The parts around the algorithm."""
        return Composition(
            clients=self.data.clients,
            cohort=self.cohort_size,
            sampler=self.sampler,
            round_end=self.round_end,
            aggregator=self.aggregator,
            server_optimizer=self.server_optimizer,
            local=self.local,
            output=self.output,
            compressed=self.compression.lossy,
            compressed_down=not isinstance(self.compression.downlink, NoCompression),
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        problems = (
            self._own_problem(),
            self._cohort_problem() or self.energy.check(self.data.clients),
            self._dropping_problem("non_finite", self.non_finite, "fail or keep"),
            self._moments_problem(),
            self._repeats_problem(),
            self._statistics_problem(),
            self._personal_problem(),
            self._output_problem(),
            self._compression_problem(),
            self._dropping_problem("on_timeout", self.resources.on_timeout, "redo"),
            self._lateness_problem(),
            self.algorithm.refuses(self.composition()),
            self.aggregator.refuses(self.cohort_size),
        )
        for problem in problems:
            if problem:
                raise ValueError(problem)
        return self

    def _own_problem(self) -> str | None:
        """What is of one's own is a plugin's, and nothing else that could be called."""
        known = [plugin.reference for plugin in self.plugins]
        for key, part in (
            ("model", self.model),
            ("loss", self.loss),
            ("data.partition", self.data.partition),
            *(("data.augment", augmentation) for augmentation in self.data.augment),
            *(("evaluation.metrics", metric) for metric in self.evaluation.metrics),
        ):
            if isinstance(part, Own):
                name = part.of.partition(":")[0]
                if name not in known:
                    hint = nearest(name, known)
                    return f"{key}: {part.of!r}: there is no plugin {name!r}; {hint}"
        return None

    def new_problem(self) -> str | None:
        """Why no run may begin so; those that have are read."""
        return self.goal_problem() or self.model.forgets() or self.metrics_problem()

    def metrics_problem(self) -> str | None:
        """Why nobody may ask for such metrics; of a model that was asked for them it is read."""
        found = (one.refuses_loss(self.loss) for one in self.evaluation.metrics)
        return next((f"evaluation.metrics: {why}" for why in found if why), None)

    @property
    def learns_by_heldout(self) -> bool:
        """Whether its model depends on the labelled rows that the server holds out."""
        return self.algorithm.uses_heldout or self.aggregator.needs_reference

    def goal_problem(self) -> str | None:
        """Why a run may not begin with such goals: a number of what is to fall, or may be, is above
        it in the first round. Of runs that have begun it is their goal.
        """
        for metric, text in self.stop.items():
            try:
                goal_of(metric, text, self.evaluation.metrics)
            except ValueError as error:
                return f"stop: {error}"
        return None

    def _cohort_problem(self) -> str | None:
        if isinstance(self.cohort, float) and self.cohort > 1:
            return f"cohort as a fraction must be at most 1.0, not {self.cohort}"
        if self.cohort_size > self.data.clients:
            return f"cohort {self.cohort_size} is larger than the {self.data.clients} clients"
        if self.resources.minimum_cohort > self.cohort_size:
            return (
                f"resources.minimum_cohort {self.resources.minimum_cohort} is more than the "
                f"{self.cohort_size} clients of a round"
            )
        return None

    def _dropping_problem(self, key: str, chosen: str, others: str) -> str | None:
        if chosen != "drop" or not self.algorithm.needs_whole_cohort:
            return None
        name = self.algorithm.name
        return f"{name} cannot go on without a dropped client; set {key} to {others}"

    def _lateness_problem(self) -> str | None:
        """A round end that asks some clients at a time keeps count of all that it began with."""
        if self.resources.on_timeout != "drop" or self.round_end.lock_step:
            return None
        return (
            f"{self.round_end.name} keeps the last state of every client of the round, and cannot "
            "go on without one that is dropped; set resources.on_timeout to redo"
        )

    def _moments_problem(self) -> str | None:
        """Averages of optimiser moments are sums, which the chosen aggregation may not be."""
        rows = self.algorithm.needs_rows or self.aggregator.needs_rows
        if self.local.optimizer_state != "average" or not rows:
            return None
        return (
            "local.optimizer_state average would go past the chosen aggregation; use reset or keep"
        )

    def _repeats_problem(self) -> str | None:
        """An aggregator that looks at rows knows of each client only one."""
        if self.sampler.distinct or not self.aggregator.needs_rows:
            return None
        return (
            f"aggregator {self.aggregator.name} counts a client once, and sampler "
            f"{self.sampler.name} as set here may draw it more often; draw distinct clients"
        )

    def _statistics_problem(self) -> str | None:
        """Statistics of models that stay with the clients are nobody else's."""
        if self.buffers != "aggregate" or not self.algorithm.keeps_models:
            return None
        return (
            f"{self.algorithm.name} leaves every model with its client, and so its batch-norm "
            "statistics; leave buffers at local"
        )

    def _personal_problem(self) -> str | None:
        """Something is to be judged."""
        if self.algorithm.makes_common or self.evaluation.personal:
            return None
        return (
            f"{self.algorithm.name} makes no model but the clients' own, and nothing would be "
            "judged; leave evaluation.personal on"
        )

    def _output_problem(self) -> str | None:
        """A mean over rounds is of one model."""
        if not self.algorithm.keeps_models or not self.output.is_a_mean:
            return None
        return f"{self.algorithm.name} has no common model to take a mean of; leave output at last"

    def _compression_problem(self) -> str | None:
        uplink, downlink = self.compression.uplink, self.compression.downlink
        name = self.algorithm.name
        if not isinstance(downlink, NoCompression) and not self.algorithm.one_broadcast:
            return (
                f"{name} sends different models to its clients; leave compression.downlink at none"
            )
        # the downlink always sends what the last message has left out
        for way, one, fed_back in (
            ("uplink", uplink, uplink.feeds_back),
            ("downlink", downlink, True),
        ):
            if fed_back and not one.contracts:
                return (
                    f"compression.{way}: {one.name} as set here loses more than it sends, which "
                    "must not be fed back; set scale to false, use a smaller bucket or more "
                    "levels, or (uplink) set error_feedback to false"
                )
        if self.algorithm.sends_differences and uplink.feeds_back:
            return (
                f"{name} makes up for what compression leaves out by itself; "
                "set compression.uplink.error_feedback to false"
            )
        return None

    def dump(self) -> str:
        """The config as YAML, every key written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


UNNAMED: str = Config.model_fields["name"].default
"""What a run is called that nobody has given a name."""
