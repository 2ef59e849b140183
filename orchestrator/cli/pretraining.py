"""``fedorch agent pretrain``: checks what was asked for, runs ``rl.pretrain`` on a local Ray."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml
from pydantic import TypeAdapter, ValidationError

from algorithms.fedaa import FedAA
from algorithms.part import chosen_from
from algorithms.parts.weighers import Weigher
from orchestrator.cluster.connection import connected
from orchestrator.config import load
from orchestrator.config.parsing import parse
from orchestrator.errors import UserError
from orchestrator.files import said
from orchestrator.terminal import console, told
from rl.weighers import Ddpg

if TYPE_CHECKING:
    from rl.env import Simulation

READ: TypeAdapter[Weigher] = TypeAdapter(Annotated[Weigher, chosen_from(Weigher)])


def federation_of(path: Path | None, settings: Sequence[str]) -> dict[str, int]:
    """Options of rl.env.Simulation: how many clients a config's FedAA selects, from how many, and
    how many of them are malicious at most. Raises UserError for a config of another algorithm, and
    for ``settings`` of its agent, which is not the one that is trained.
    """
    if any(one.partition("=")[0].strip().startswith("algorithm.agent") for one in settings):
        raise UserError("--set algorithm.agent: the agent that is trained is that of --agent")
    config = load(path, settings)
    options, cohort = config.algorithm, config.cohort_size
    if not isinstance(options, FedAA.Options):
        who = f"--for {path}: its" if path else "--for is not given, and the default config's"
        raise UserError(f"{who} algorithm is {options.name}; policies are fedaa's")
    if options.accuracy_in_state:
        raise UserError(
            "algorithm.accuracy_in_state: the simulation has no accuracies, so that no policy can "
            "be trained for such states; set it to false"
        )
    participants = options.participants(cohort)
    malicious = len(config.attack.malicious(config.seed, config.data.clients))
    return {
        "participants": participants,
        "slots": options.slots(cohort),
        "attackers": min(malicious, participants - 1),
    }


def pretrain_agent(
    agent: str, options: Mapping[str, int], rounds: int, seed: int, out: Path
) -> None:
    """Train the agent described by the YAML text ``agent`` in a simulation of ``options`` (names
    and values of rl.env.Simulation) and write its policy to ``out``; raises UserError.
    """
    if out.exists():
        raise UserError(f"{out} exists already; name a new folder")
    weigher = _weigher(agent)
    from rl.env import Simulation  # brings torch

    try:
        simulation = Simulation(**options)
    except ValueError as error:
        numbers = ", ".join(f"{name} {number}" for name, number in options.items())
        raise UserError(f"{error} ({numbers})") from error
    with said(f"{out}: cannot be created"):  # before the work, not after it
        out.mkdir(parents=True)
    try:
        _train(weigher, simulation, rounds, seed, out)
    except KeyboardInterrupt:
        if not any(out.iterdir()):
            told("fedorch", "stopped; no policy has been written")
        raise
    finally:
        with contextlib.suppress(OSError):
            out.rmdir()  # of a training that has left nothing


def _train(weigher: Ddpg, simulation: Simulation, rounds: int, seed: int, out: Path) -> None:
    with connected("local", 1, 0):
        # only now: it brings RLlib, and what is wrong with the options is said at once
        from rl.pretrain import pretrain

        def tell(done: int, value: float) -> None:
            console.print(f"round {done}/{rounds}: return {value:.2f}")

        try:
            with said(f"cannot write the policy to {out}"):
                scores = pretrain(weigher, simulation, rounds, seed, out, tell)
        except ValueError as error:
            raise UserError(str(error)) from error
    gained, episodes = float(scores.gains.mean()), len(scores.gains)
    console.print(
        f"mean return of an episode: {scores.before.mean():.2f} before, "
        f"{scores.after.mean():.2f} after, {scores.uniform.mean():.2f} with uniform weights; wrote "
        f"{out}",
        soft_wrap=True,
    )
    spread = float(scores.gains.std(ddof=1)) / math.sqrt(episodes)
    if gained > 0:
        console.print(
            f"a gain of {gained:.2f} ± {spread:.2f} (standard error over the same {episodes} "
            "episodes) over the better of what it began with and uniform",
            soft_wrap=True,
        )
    chosen = yaml.safe_dump(_beginning(weigher, out), default_flow_style=True, width=10**6).strip()
    console.print(
        "to begin with it, where as many clients are selected: --set "
        f"{shlex.quote(f'algorithm.agent={chosen}')}",
        soft_wrap=True,
    )
    if scores.rounds < rounds:
        console.print(f"stopped after round {scores.rounds} of {rounds}")
        raise KeyboardInterrupt
    if gained <= 2 * spread:
        told_apart = "that is told from chance " if gained > 0 else ""
        console.print(
            f"that is no gain {told_apart}over the policy before, or over uniform weights: more "
            "--rounds, another --seed, or other options of the agent may find one",
            soft_wrap=True,
        )


def _beginning(weigher: Ddpg, out: Path) -> dict[str, object]:
    """How a config names the agent that begins with the policy in ``out``, with the options that it
    was trained with.
    """
    begun = {"name": weigher.name, "preset": weigher.preset}
    usual = READ.validate_python(begun).model_dump(mode="json")
    given = {k: v for k, v in weigher.model_dump(mode="json").items() if v != usual[k]}
    return {**begun, **given, "policy": str(out)}


def _weigher(agent: str) -> Ddpg:
    try:
        weigher = READ.validate_python(parse(agent, f"--agent {agent!r}"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"--agent: {where + ': ' if where else ''}{first['msg']}") from error
    if not isinstance(weigher, Ddpg):
        raise UserError(f"--agent: {agent} cannot be pre-trained; use ddpg or td3")
    return weigher
