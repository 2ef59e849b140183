"""The schema of an experiment: typed, validated, read from YAML and written back fully resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator

import algorithms
import rl.weighers  # noqa: F401  FedAA's agents join the parts that a config can name
from algorithms.algorithm import AlgorithmOptions, Composition
from algorithms.fedavg import FedAvg
from algorithms.part import Part, chosen_from, nearest, variants
from algorithms.parts.aggregators import Aggregator, Mean
from algorithms.parts.attacks import Attack, NoAttack
from algorithms.parts.compressors import Compressor, NoCompression
from algorithms.parts.round_ends import Fixed, RoundEnd
from algorithms.parts.samplers import Sampler, Uniform
from algorithms.parts.server_optimizers import ServerOptimizer, ServerSgd
from orchestrator.data.federated import DataConfig
from orchestrator.errors import UserError
from orchestrator.goal import Goal
from orchestrator.ledger import Energy
from orchestrator.models import Model
from orchestrator.models.images import LeNet5
from orchestrator.training.local_config import LocalConfig

assert algorithms.Algorithm.registry, "importing the package registers the algorithms"


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CompressionConfig(Section):
    """Section ``compression``: what is sent in place of the vectors (batch-norm statistics are always sent whole)."""

    uplink: Annotated[SerializeAsAny[Compressor], chosen_from(Compressor)] = NoCompression()
    downlink: Annotated[SerializeAsAny[Compressor], chosen_from(Compressor)] = NoCompression()


class EvaluationConfig(Section):
    """Section ``evaluation``."""

    every: int = Field(1, ge=1, description="evaluate after every n-th round (and always after the last)")
    clients: bool = Field(True, description="evaluate the model on every client's own test rows")
    personal: bool = Field(True, description="evaluate personal models, where the algorithm keeps them")
    local_models: bool = Field(
        False,
        description="where it keeps none: evaluate each model that was trained in the round on its client's test rows",
    )
    gradient_norms: bool = Field(
        False, description="record the norm of the mini-batch gradients of each layer, mean over steps and clients"
    )


class CheckpointConfig(Section):
    """Section ``checkpoint``."""

    every: int = Field(10, ge=0, description="write a checkpoint after every n-th round; 0: only when stopped")
    keep: int = Field(2, ge=1, description="checkpoints kept")


class ResourcesConfig(Section):
    """Section ``resources``: what runs where.

    The result depends on ``threads``, and on whether ``clients_per_actor`` is set (blocks are then one client each).
    """

    actors: int | None = Field(None, ge=1, description="client actors; unset: as many as the cluster allows")
    clients_per_actor: int | None = Field(
        None, ge=1, description="fixed home of each client: N/clients_per_actor actors; 1 gives one actor per client"
    )
    cpus_per_actor: float = Field(1.0, ge=0, description="CPUs that each client actor is pinned to")
    gpus_per_actor: float = Field(
        0.0, ge=0, description="GPUs (a fraction below 1) that each client actor is pinned to"
    )
    threads: int = Field(1, ge=1, description="torch threads of a trainer (part of the result's bits)")
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        "PACK", description="Ray's placement of the client actors over nodes"
    )
    boot_timeout: float = Field(
        300.0, gt=0, allow_inf_nan=False, description="seconds to wait for actors before giving up"
    )
    client_timeout: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a block of clients may take before its actor is ended; unset: no limit",
    )
    on_timeout: Literal["redo", "drop"] = Field(
        "redo", description="what becomes of such clients: tried on another actor, or left out of the round"
    )
    minimum_cohort: int = Field(1, ge=1, description="with on_timeout drop: the fewest clients a round may end with")

    @model_validator(mode="after")
    def _whole_gpus(self) -> ResourcesConfig:
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


class Config(Section):
    """One experiment."""

    name: str = Field("quickstart", pattern=r"^[\w][\w.-]*$", description="name of the run (letters, digits, . _ -)")
    seed: int = Field(0, ge=0, lt=2**31, description="every random draw is a function of it")
    rounds: int = Field(40, ge=1, description="communication rounds T")
    stop: dict[str, Annotated[float | str, AfterValidator(_goal)]] = Field(
        default_factory=dict,
        description='end before the last round when one of these metrics is at least its value (or "<= 0.1": at most)',
    )
    data: DataConfig = DataConfig()
    model: Annotated[SerializeAsAny[Model], chosen_from(Model)] = LeNet5()
    algorithm: Annotated[SerializeAsAny[AlgorithmOptions], chosen_from(AlgorithmOptions)] = FedAvg.Options()
    local: LocalConfig = LocalConfig()
    cohort: int | float = Field(10, gt=0, description="clients a round m: a number, or a fraction of N (1.0: all)")
    sampler: Annotated[SerializeAsAny[Sampler], chosen_from(Sampler)] = Uniform()
    round_end: Annotated[SerializeAsAny[RoundEnd], chosen_from(RoundEnd)] = Fixed()
    aggregator: Annotated[SerializeAsAny[Aggregator], chosen_from(Aggregator)] = Mean()
    server_optimizer: Annotated[SerializeAsAny[ServerOptimizer], chosen_from(ServerOptimizer)] = ServerSgd()
    attack: Annotated[SerializeAsAny[Attack], chosen_from(Attack)] = NoAttack()
    compression: CompressionConfig = CompressionConfig()
    buffers: Literal["aggregate", "local", "exclude"] = Field(
        "aggregate",
        description="batch-norm statistics: sent and averaged; kept by the clients, averaged only to evaluate; "
        "or kept by the clients while the server's stay as initialised",
    )
    non_finite: Literal["fail", "drop", "keep"] = Field("fail", description="what to do with a NaN or infinite update")
    energy: Energy = Energy()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    resources: ResourcesConfig = ResourcesConfig()

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
            local_optimizer=self.local.optimizer,
            local_steps=self.local.steps,
            local_epochs=self.local.epochs,
            local_lr=self.local.lr,
            batch_size=self.local.batch_size,
            drop_last=self.local.drop_last,
            optimizer_state=self.local.optimizer_state,
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if isinstance(self.cohort, float) and self.cohort > 1:
            raise ValueError(f"cohort as a fraction must be at most 1.0, not {self.cohort}")
        if self.cohort_size > self.data.clients:
            raise ValueError(f"cohort {self.cohort_size} is larger than the {self.data.clients} clients")
        problem = self.energy.check(self.data.clients)
        if problem:
            raise ValueError(problem)
        if self.non_finite == "drop" and self.algorithm.needs_whole_cohort:
            raise ValueError(
                f"{self.algorithm.name} cannot go on without a dropped client; set non_finite to fail or keep"
            )
        rows = self.algorithm.needs_rows or self.aggregator.weights(np.ones(1), np.ones(1)) is None
        if self.local.optimizer_state == "average" and rows:
            raise ValueError("local.optimizer_state average would go past the chosen aggregation; use reset or keep")
        if not isinstance(self.compression.downlink, NoCompression) and not self.algorithm.one_broadcast:
            raise ValueError(
                f"{self.algorithm.name} sends different models to its clients; leave compression.downlink at none"
            )
        for way, one in (("uplink", self.compression.uplink), ("downlink", self.compression.downlink)):
            if not one.contracts and (way == "downlink" or one.feeds_back):
                raise ValueError(
                    f"compression.{way}: {one.name} as set here loses more than it sends, which must not be fed back; "
                    "set scale to false, use a smaller bucket or more levels, or (uplink) set error_feedback to false"
                )
        if self.algorithm.sends_differences and self.compression.uplink.feeds_back:
            raise ValueError(
                f"{self.algorithm.name} makes up for what compression leaves out by itself; "
                "set compression.uplink.error_feedback to false"
            )
        if self.resources.on_timeout == "drop" and self.algorithm.needs_whole_cohort:
            raise ValueError(f"{self.algorithm.name} cannot go on without a dropped client; set on_timeout to redo")
        refusal = self.algorithm.refuses(self.composition()) or self.aggregator.refuses(self.cohort_size)
        if refusal:
            raise ValueError(refusal)
        return self

    def dump(self) -> str:
        """The config as YAML, every key written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load(path: Path | None = None, settings: Sequence[str] = ()) -> Config:
    """Read a YAML file (None: the quick start) and apply ``a.b=value`` settings; raises UserError."""
    raw = {} if path is None else _mapping(path, "config")
    for setting in settings:
        apply(raw, setting)
    return build(raw)


def read_whole(path: Path, what: str = "config") -> dict[str, Any]:
    """The mapping in a YAML file, with the file that it names as its ``base`` in place of that name.

    ``what`` the file is, for the sentence of the UserError that is raised if it is none.
    """
    raw = _mapping(path, what)
    if isinstance(raw.get("base"), str):
        try:
            raw["base"] = _mapping(path.parent / raw["base"], "config")
        except UserError as error:
            raise UserError(f"base: {error}") from error
    return raw


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML's own loader takes the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.MarkedYAMLError(problem=f"the key {name!r} is there twice", problem_mark=key.start_mark)
            seen.add(name)
        return node


def _mapping(path: Path, what: str) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict | None):
        raise UserError(f"{path}: a {what} is a mapping of keys to values, not {type(raw).__name__}")
    return raw or {}


def apply(raw: dict[str, Any], setting: str) -> None:
    """Put one ``a.b=value`` (the value in YAML) into a raw config."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting!r}: write key=value, for example local.lr=0.1")
    try:
        put(raw, key.strip(), yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"--set {setting!r}: the value is not YAML") from error


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path; a part given by its bare name on the way becomes a mapping."""
    *parents, last = path.split(".")
    for key in parents:
        below = raw.get(key)
        if isinstance(below, str):
            below = {"name": below}
        raw[key] = dict(below) if isinstance(below, Mapping) else {}
        raw = raw[key]
    raw[last] = value


def has(raw: Mapping[str, Any], path: str) -> bool:
    """Whether a dotted path is set."""
    for key in path.split("."):
        if not isinstance(raw, Mapping) or key not in raw:
            return False
        raw = raw[key]
    return True


def build(raw: Mapping[str, Any]) -> Config:
    """Validate a raw config, with the algorithm's own defaults where it is silent; raises UserError."""
    filled = _with_defaults(raw)
    try:
        return Config.model_validate(filled)
    except ValidationError as error:
        raise UserError(sentence(error, filled)) from error


def _with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = _deep_copy(raw)
    chosen = filled.get("algorithm", FedAvg.Options().name)
    name = chosen.get("name") if isinstance(chosen, Mapping) else chosen
    options = variants(AlgorithmOptions).get(str(name))
    defaults = dict(options.defaults) if options else {}
    if options and options.presets:
        given = chosen.get(options.presets_by) if isinstance(chosen, Mapping) else None
        preset = options.model_fields[options.presets_by].default if given is None else given
        defaults |= options.presets.get(str(preset), {})
    for given, other in (("local.epochs", "local.steps"), ("local.steps", "local.epochs")):
        if has(filled, given):
            defaults.pop(other, None)
    defaults.setdefault("cohort", _usual_cohort(filled))
    for path, value in defaults.items():
        if not has(filled, path):
            put(filled, path, value)
        elif isinstance(value, BaseModel | dict):
            _complete(filled, path, value)
    return _named(filled, Config)


def _complete(filled: dict[str, Any], path: str, default: BaseModel | dict[str, Any]) -> None:
    """Where the user names the same part, or only some of its options, keep the default's other options."""
    given: Any = filled
    for key in path.split("."):
        given = given[key]
    put(filled, path, _merged(_written(default) if isinstance(default, BaseModel) else default, given))


def _merged(whole: Any, given: Any) -> Any:
    """``given`` over the options ``whole`` of a part, at every depth, unless it names another part."""
    given = {"name": given} if isinstance(given, str) and isinstance(whole, dict) and "name" in whole else given
    if not isinstance(given, Mapping) or not isinstance(whole, dict):
        return given
    if given.get("name", whole.get("name")) != whole.get("name"):
        return given
    return {**whole, **{k: _merged(whole.get(k), v) for k, v in given.items()}}


def _written(part: BaseModel) -> dict[str, Any]:
    """The name of a part and the options that were given to it, at every depth."""
    given = {n: v for n, v in part if n == "name" or n in part.model_fields_set}
    return {n: _written(v) if isinstance(v, BaseModel) else v for n, v in given.items()}


def _usual_cohort(raw: Mapping[str, Any]) -> int:
    """The default cohort, or everyone where there are fewer clients."""
    data = raw.get("data")
    clients = data.get("clients") if isinstance(data, Mapping) else None
    usual: int = Config.model_fields["cohort"].default
    return min(usual, clients) if isinstance(clients, int) and clients > 0 else usual


def _named(given: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Options without a name belong to the default part: ``partition: {alpha: 1}`` is a Dirichlet's alpha."""
    for key, value in given.items():
        field = model.model_fields.get(key)
        if not isinstance(value, dict) or field is None:
            continue
        if isinstance(field.default, Part):
            value.setdefault("name", field.default.name)
        elif isinstance(field.default, BaseModel):
            _named(value, type(field.default))
    return given


def _deep_copy(value: Any) -> Any:
    return {k: _deep_copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def sentence(
    error: ValidationError, raw: Mapping[str, Any], model: type[BaseModel] = Config, what: str = "config"
) -> str:
    """The first problem of a config (or of another ``model``'s mapping) in one sentence: key, problem, value."""
    first = error.errors()[0]
    where = ".".join(str(p) if str(p).isprintable() else repr(p) for p in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"there is no such key; {nearest(str(first['loc'][-1]), _keys_beside(first['loc'], raw, model))}"
        return f"{what}: {where}: {message}"
    if not where or first["type"] in ("unknown_name", "no_name"):
        return f"{what}: {where + ': ' if where else ''}{message}"
    message = message.replace("Input should be", "must be")
    return f"{what}: {where}: {message} (got {_short(first['input'])})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _keys_beside(loc: tuple[int | str, ...], raw: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """The valid keys at the place of an unknown one."""
    here: Any = raw
    for key in loc[:-1]:
        family = _family(model, str(key))
        here = here.get(key) if isinstance(here, Mapping) else None
        if family is None:
            return []
        name = here.get("name") if isinstance(here, Mapping) else None
        model = variants(family).get(str(name), family) if issubclass(family, Part) else family
    return list(model.model_fields)


def _family(model: type[BaseModel], key: str) -> Any:
    field = model.model_fields.get(key)
    annotation = getattr(field, "annotation", None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
