"""Every number and text of a config has limits, which stand in the schema."""

import typing

import pytest
from pydantic import Field, ValidationError

from algorithms.fda import Thresholded
from algorithms.part import Part, variants
from algorithms.section import Section
from orchestrator.cli.catalogue import KINDS
from orchestrator.config import Config, build
from orchestrator.config.goal import Goal
from orchestrator.config.sentences import sections_of
from orchestrator.errors import UserError
from sweeps.plan import Cell, Scheduler, Sweep
from sweeps.spaces import Axis

MODELS = [
    Config, Sweep, Cell, Scheduler, Axis,
    *(model for _, model in sections_of(Config)),
    *{part for _, base in KINDS.values() for part in variants(base).values()},
]  # fmt: skip
BEYOND = (10**40, -(10**40), 1e300, -1e300, float("inf"), float("-inf"), float("nan"), True)


def kinds(annotation):
    """The scalar types in an annotation."""
    inner = typing.get_args(annotation)
    return set().union(*map(kinds, inner)) if inner else {annotation}


def options():
    """(model, key) of every field without a bool or a free value that a number could be."""
    for model in MODELS:
        for key, field in model.model_fields.items():
            found = kinds(field.annotation)
            if found & {int, float} and not found & {bool, object} and not _free(model, key):
                yield model, key, field


def _free(model, key):
    """A threshold is only compared: a large one means never."""
    return issubclass(model, Thresholded) and key == "theta"


def accepted(model, key, value):
    """The value of ``key`` if only it is given; whatever else is missing does not matter."""
    try:
        return getattr(model.model_validate({key: value}), key)
    except ValidationError as error:
        where = {problem["loc"][:1] for problem in error.errors()}
        return None if (key,) in where or () in where else value


def test_every_model_of_a_config_has_the_limits():
    assert all(issubclass(model, Section) for model in MODELS)
    assert not [m for m in _below(Part) if not issubclass(m, Section)]


def _below(model):
    yield model
    for sub in model.__subclasses__():
        yield from _below(sub)


@pytest.mark.parametrize("value", BEYOND, ids=str)
def test_no_number_is_beyond_all_bounds(value):
    """Integers beyond int64, floats beyond float32, infinities, NaN and bools reached libraries:
    ``server_optimizer.lr: 1e40``, ``partition.alpha: .inf``, ``client_test.least: 10^22``, and
    ``cohort: true``, which was 1."""
    let = [(m.__name__, k) for m, k, _ in options() if accepted(m, k, value) is not None]
    inside = [(m.__name__, k) for m, k, _ in options() if accepted(m, k, [value]) is not None]
    assert let == inside == []


def test_the_options_are_all_there():
    """The test above looks at what it should."""
    seen = {(model.__name__, key) for model, key, _ in options()}
    assert len(seen) > 150
    assert {
        ("ServerAdam", "lr"),
        ("Energy", "snr_db"),
        ("Mlp", "hidden"),
        ("HeldOut", "per_class"),
    } <= seen


def test_bounds_of_their_own():
    """Threads that the system has not end the process; a pattern is compiled when it is run."""
    for raw, message in (
        ({"resources": {"threads": 100_000}}, "resources.threads: must be less than"),
        ({"algorithm": {"name": "fedpvr", "layers": "("}}, "algorithm.layers: is not a regular"),
        ({"algorithm": {"name": "fedaa", "layers": "a{99999999999}"}}, "is not a regular"),
        ({"aggregator": {"name": "barycenter", "layers": "[z-a]"}}, "is not a regular"),
        ({"algorithm": {"name": "drdm", "radius": 0}}, "algorithm.radius: must be greater than 0"),
        (
            {"server_optimizer": {"lr": 1e40}},
            "server_optimizer.lr: must be less than or equal to 1e+38",
        ),
        ({"energy": {"snr_db": [1, float("nan")]}}, "energy.snr_db.1: must be a finite number"),
        ({"energy": {"snr_db": -400}}, "energy.snr_db: must be greater than or equal to -100"),
        ({"data": {"partition": {"name": "file", "file": "a\0"}}}, "without control characters"),
        ({"name": "a" * 51}, "name: String should have at most 50"),
        ({"stop": {"test_accuracy": "nan"}}, "is not a number that is reached"),
        # any loss is at least that after the first round
        ({"stop": {"test_mae": 0.2}}, 'stop: test_mae is to fall: say "<= 0.2"'),
        ({"stop": {"client_rmse_worst": 0.2}}, "client_rmse_worst is to fall"),
        ({"stop": {"test_loss": 0.1}}, 'stop: test_loss is to fall: say "<= 0.1", or ">= 0.1" if'),
        (
            {"round_end": {"name": "fda", "theta": float("inf")}},
            "round_end.theta: must be a finite",
        ),
        ({"round_end": {"name": "fda", "theta": "1e999 d"}}, "round_end.theta: must be a number"),
    ):
        with pytest.raises(UserError) as caught:
            build(raw)
        assert message in str(caught.value), caught.value
    with pytest.raises(ValueError, match="is not a number"):
        Goal.read("<= inf")


def test_a_field_may_ask_for_infinity():
    """Also in a model inside another, whose schema is asked for twice."""

    class Inner(Section):
        free: float = Field(1.0, allow_inf_nan=True)
        other: float = 1.0

    class Outer(Section):
        inner: Inner = Inner()

    assert Outer.model_validate({"inner": {"free": float("inf")}}).inner.free == float("inf")
    with pytest.raises(ValidationError, match="finite"):
        Outer.model_validate({"inner": {"other": float("inf")}})
