"""What was run, and how it ended, in a sentence; what sets a run apart, in a few words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from algorithms.part import Part
from algorithms.parts.attacks import NoAttack
from algorithms.parts.compressors import NoCompression
from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.results.result import Result

WAYS = ("uplink", "downlink")


def conditions(config: Config) -> Iterator[tuple[str, str]]:
    """What sets the run apart from plain training, (what, which): attack, aggregator, compression,
    round end, judged model; none where all is as usual.
    """
    fields = Config.model_fields
    if not isinstance(config.attack, NoAttack):
        many = len(config.attack.malicious(config.seed, config.data.clients))
        yield "attack", f"{named(config.attack)} by {many} of {config.data.clients} clients"
    if config.aggregator.name != fields["aggregator"].default.name:
        yield "aggregator", named(config.aggregator)
    for way in WAYS:
        compressor = getattr(config.compression, way)
        if not isinstance(compressor, NoCompression):
            yield f"{way} compressed by", named(compressor)
    for key, words in (("round_end", "round end"), ("output", "judged model")):
        chosen = getattr(config, key)
        if chosen.name != fields[key].default.name:
            yield words, named(chosen)


def named(part: Part) -> str:
    """Its name, and in brackets its symbols' values where there are any: ``fda (Θ 0.001)``."""
    said = []
    for key, field in type(part).model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        value = getattr(part, key)
        if isinstance(value, Part):
            said.append(f"{key} {value.name}")
        elif extra.get("symbol") and isinstance(value, int | float | str):
            shown = f"{value:g}" if isinstance(value, int | float) else value
            said.append(f"{extra['symbol']} {shown}")
    return f"{part.name} ({', '.join(said)})" if said else part.name


def about(config: Config, parameters: int | None = None) -> str:
    """What is trained, on what, under which conditions; without a full stop."""
    data = config.data
    apart = "; ".join(" ".join(pair) for pair in conditions(config))
    under = f", with {apart}" if apart else ""
    size = "" if parameters is None else f" ({parameters:,} parameters)"
    return (
        f"{named(config.algorithm)} trains {config.model.name}{size} on {data.dataset.name}, which "
        f"{data.clients} clients hold ({_split(config)}), {config.cohort_size} of them in a round"
        f"{under}"
    )


def in_common(configs: Sequence[Config], cut: bool = False) -> str:
    """What was the same in all of some runs: data, clients, network, work and conditions; ``cut``:
    not all came to their last round.
    """
    first, *others = ([*_facts(config, cut)] for config in configs)
    return ", ".join(fact[0] for fact in first if all(fact in facts for facts in others))


def in_particular(configs: Mapping[str, Config], cut: bool = False) -> str:
    """What some runs, by their names, have each for itself, as far as a name does not say it; or
    "". ``cut`` as above.
    """
    facts = {name: [fact[0] for fact in _facts(config, cut)] for name, config in configs.items()}
    apart = {
        name: ", ".join(f for f in own if not all(f in other for other in facts.values()))
        for name, own in facts.items()
    }
    more = {name: said for name, said in apart.items() if said.casefold() != name.casefold()}
    if all(said.partition(" ")[0].casefold() == name.casefold() for name, said in more.items()):
        return ""
    return "; ".join(f"{name}: {said}" for name, said in more.items() if said)


def _facts(config: Config, cut: bool = False) -> Iterator[tuple[str, object]]:
    """What is said of it, and all that it stands for."""
    data, local, many = config.data, config.local, config.data.clients
    yield named(config.algorithm), config.algorithm
    yield f"model {config.model.name}", config.model
    yield data.dataset.name, data.model_dump(exclude={"clients", "partition", "heldout"})
    yield f"{many} clients ({_split(config)})", data.partition
    yield f"cohorts of {config.cohort_size}", config.sampler
    ends = [f"{metric} {goal}" for metric, goal in config.stop.items()]
    rounds = f"{config.rounds} round{'s' if config.rounds != 1 else ''}"
    until = f", until {' or '.join(ends)}" if ends else ""
    yield f"at most {rounds}{until}" if ends or cut else rounds, ()
    amount, of = (local.epochs, "epoch") if local.steps is None else (local.steps, "step")
    yield f"{amount} local {of}{'s' if amount != 1 else ''}", ()
    yield f"batches of {local.batch_size}", ()
    yield f"learning rate {local.lr:g}", (local.lr, local.lr_decay, local.schedule, local.optimizer)
    ways = {f"{way} compressed by": getattr(config.compression, way) for way in WAYS}
    parts = {"round end": config.round_end, "judged model": config.output} | ways
    for what, which in conditions(config):
        yield f"{what} {which}", parts.get(what) or getattr(config, what)


def _split(config: Config) -> str:
    """How the data are dealt out: the partition, with the first of its numbers."""
    partition = config.data.partition
    options = partition.model_dump(mode="json", exclude={"name"})
    numbers = ((key, value) for key, value in options.items() if type(value) in (int, float))
    return ", ".join([partition.name, *(f"{key} {value:g}" for key, value in [*numbers][:1])])


def told(config: Config, result: Result, parameters: int) -> list[str]:
    """Two sentences about a run: what it was, and how it ended."""
    return [f"{about(config, parameters)}.", _ending(config, result)]


ENDED = (
    ("test_accuracy", "a test accuracy of {:.4f}"),
    ("test_loss", "a test loss of {:.4g}"),
    ("client_accuracy_worst", "{:.4f} on the worst client's own rows"),
    ("personal_accuracy_mean", "{:.4f} of the personal models, on average"),
    ("personal_accuracy_worst", "{:.4f} of the worst client's"),
)


def _ending(config: Config, result: Result) -> str:
    rounds = result["rounds"]
    how = "diverged" if result.get("diverged") else result["status"]
    metrics = result["metrics"]
    known = [words.format(metrics[key]) for key, words in ENDED if key in metrics]
    if "test_accuracy" in metrics:  # which says what one wants to know of it
        known = [words for words in known if "test loss" not in words]
    found = f", with {' and '.join(known[:2])}" if known else ""
    of = f" of {config.rounds}" if rounds != config.rounds else ""
    why = goals_met(config, result)
    sent = (result["bytes_up"] + result["bytes_down"]) / 1e6
    words = measured_earlier(result)
    earlier = f" {words[0].upper()}{words[1:]}." if words else ""
    return (
        f"It {how} after {rounds}{of} round{'s' if rounds != 1 or of else ''}{why}{found}."
        f"{earlier} It took {result['seconds']:,.1f} s and {sent:,.4g} MB, both ways."
    )


def goals_met(config: Config, result: Result) -> str:
    """Which goals ended a run before its last round, behind a comma; or ""."""
    if result["status"] != "finished" or result["rounds"] >= config.rounds:
        return ""
    met = []
    for metric, text in config.stop.items():
        goal, value = Goal.read(text), result["metrics"].get(metric)
        if value is not None and goal.met(value):
            met.append(f"{metric} {'fell to' if goal.falling else 'reached'} {goal.limit:g}")
    return f", as {' and '.join(met)}" if met else ""


def measured_earlier(result: Result) -> str:
    """That the last metrics are not of the weights that are kept, where a goal was met within a
    round; or "".
    """
    metrics = result["metrics"]
    steps = metrics.get("steps_total", math.nan)
    then = metrics.get("evaluated_steps", steps)
    if not then < steps:
        return ""
    return (
        f"the goal was met within a round: the metrics are of the model after {then:,.0f} local "
        f"steps, the weights those after {steps:,.0f}, at the round's end"
    )
