"""Commands that begin something: a run, the quick start, a look at data, an agent's training."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from algorithms.section import WHOLE
from orchestrator.cli.arguments import Panel, path, picture, within
from orchestrator.cli.options import (
    AddressOption,
    ConfigArgument,
    CpusOption,
    GpusOption,
    PluginOption,
    SetOption,
)
from orchestrator.cli.run_shown import interrupted, show_result
from orchestrator.cli.running import (
    Series,
    require_files,
    run_here,
    run_on_ray,
    seed_folders,
    seeds_of,
)
from orchestrator.cluster.connection import connected
from orchestrator.config import Config, load
from orchestrator.errors import UserError
from orchestrator.results.contents import CONFIG
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

commands = Panel("Experiments")
data = commands.group("data", "Look at datasets and partitions.")
agent = commands.group("agent", "FedAA's reinforcement-learning agents.")


@commands.command()
def run(
    config: ConfigArgument = None,
    settings: SetOption = None,
    plugin: PluginOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            callback=path, help="folder (or s3://...) for the results (default: runs/NAME-TIME)"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            callback=path,
            help="continue the run in this folder (or s3://...); further with --set rounds=N",
        ),
    ] = None,
    address: AddressOption = "local",
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    detach: Annotated[
        bool, typer.Option(help="return at once; the server actor goes on, on the cluster")
    ] = False,
    in_process: Annotated[
        bool, typer.Option(help="run everything in this process, without Ray")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="run it with each of these seeds (0-4, or 0,3,7), in folders seed-N of --out; the "
            "same command again goes on where it was stopped"
        ),
    ] = None,
) -> None:
    """Run an experiment."""
    if detach and (in_process or address == "local"):
        raise UserError(
            "--detach needs a cluster that outlives this command; name one with --address"
        )
    if seeds is not None and (detach or resume):
        raise UserError(
            "--seeds runs here, one seed after the other; --resume and --detach do not go with it "
            "(the same command again goes on where it was)"
        )
    cluster = (address, num_cpus, num_gpus)
    plane = _without_ray(*cluster) if in_process else connected(*cluster)
    run_one = run_here if in_process else partial(run_on_ray, detach=detach)
    if seeds is not None:
        series = _series(config, settings or [], plugin or [], out, seeds_of(seeds))
        require_files(next(iter(series.configs.values())), address)
        with plane:
            finished = series.run(run_one)
        _show_series(finished, series)
        return
    folder, chosen = _folder(config, settings or [], plugin or [], out, resume)
    with _left_behind(folder):
        require_files(chosen, address)
        with plane:
            result = run_one(chosen, folder, resume is not None)
    if result is None:
        _show_detached(folder, address)
    else:
        _show_end(result, folder, chosen)


def _without_ray(
    address: str, num_cpus: int | None, num_gpus: float | None
) -> AbstractContextManager[None]:
    """What stands in the place of a connection; raises UserError where one was described."""
    if (address, num_cpus, num_gpus) != ("local", None, None):
        raise UserError(
            "--in-process runs without Ray; --address, --num-cpus and --num-gpus do not go with it"
        )
    return nullcontext()


def _show_detached(folder: RunFolder, address: str) -> None:
    """How to go on with a run that goes on by itself."""
    where, there = shlex.quote(folder.place), shlex.quote(address)
    console.print(f"detached; results will be in {folder.place}", soft_wrap=True)
    console.print(
        f"to watch it: fedorch top --address {there}; to end it after its round: fedorch stop "
        f"{where} --address {there}",
        soft_wrap=True,
    )


@contextmanager
def _left_behind(folder: RunFolder) -> Iterator[None]:
    """What becomes of the folder of a run that cannot begin, or is stopped at once."""
    try:
        yield
    except KeyboardInterrupt:  # the second one, or before its first round
        if folder.holds(CONFIG):
            interrupted(f"fedorch run --resume {shlex.quote(folder.place)}")
        raise
    finally:
        folder.forget_empty()


def _show_end(result: Result, folder: RunFolder, config: Config) -> None:
    """The final table, and how to go on with a run that was stopped."""
    show_result(result, folder.place, config)
    if result["status"] == "stopped":
        interrupted(f"fedorch run --resume {shlex.quote(folder.place)}")


@commands.command()
def quickstart(
    out: Annotated[
        str | None,
        typer.Option(callback=path, help="folder for the runs (default: runs/quickstart-TIME)"),
    ] = None,
    in_process: Annotated[
        bool, typer.Option(help="run everything in this process, without Ray")
    ] = False,
) -> None:
    """Train two methods from the same start on embedded images, and compare what clients get."""
    from orchestrator.cli.quickstart import show_quickstart

    show_quickstart(out, in_process)


def _folder(
    config: Path | None,
    settings: list[str],
    plugins: list[str],
    out: str | None,
    resume: str | None,
) -> tuple[RunFolder, Config]:
    if resume is not None:
        if config or out:
            raise UserError(
                "--resume continues a run with its own config, in its folder; give no config or "
                "--out beside it (--set rounds=... goes further)"
            )
        folder = RunFolder.existing(resume)
        return folder, folder.config(plugins, settings)
    chosen = load(config, settings, plugins)
    return RunFolder.dated(chosen.name) if out is None else RunFolder.new(out), chosen


def _series(
    config: Path | None, settings: list[str], plugins: list[str], out: str | None, seeds: list[int]
) -> Series:
    if any(one.partition("=")[0].strip() == "seed" for one in settings):
        raise UserError("--set seed: --seeds says which; leave one of them out")
    configs = {seed: load(config, [*settings, f"seed={seed}"], plugins) for seed in seeds}
    place = out or RunFolder.dated(configs[seeds[0]].name).place
    return Series(seed_folders(configs), place)


def _show_series(finished: list[RunFolder], series: Series) -> None:
    """The finished runs' metrics, mean ± standard error."""
    from orchestrator.analysis.comparison import show_comparison

    if finished:
        show_comparison([RunFolder.viewed(folder.place) for folder in finished], None)
    place = shlex.quote(series.place)
    console.print(
        f"{len(finished)} seeds finished: {series.place}; beside another folder of seeds: fedorch "
        f"compare {place} OTHER",
        soft_wrap=True,
    )
    try:
        series.require_whole(finished)
    except KeyboardInterrupt:
        left = len(series.configs) - len(finished)
        interrupted(f"the same command with --out {place}, for {left} seeds")


@data.command("show")
def data_show(
    config: ConfigArgument = None,
    settings: SetOption = None,
    plugin: PluginOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(callback=picture, help="also write the client x label map to this PNG"),
    ] = None,
) -> None:
    """Print and plot which client holds how many rows of each label."""
    from orchestrator.cli.holdings import show_data

    show_data(load(config, settings or [], plugin or ()), plot)


@agent.command("pretrain")
def agent_pretrain(
    out: Annotated[
        Path,
        typer.Argument(
            callback=path,
            help="folder for the policy; start from it with algorithm.agent.policy",
        ),
    ],
    agent: Annotated[
        str, typer.Option(help="ddpg or td3, with options in YAML")
    ] = "{name: td3, preset: robust}",
    config: Annotated[
        Path | None,
        typer.Option(
            "--for",
            callback=path,
            help="config that the policy is for: its slots, participants and attackers",
        ),
    ] = None,
    settings: SetOption = None,
    slots: Annotated[
        int | None,
        typer.Option(callback=within(1, 1000), help="clients that get a weight, K [default: 10]"),
    ] = None,
    participants: Annotated[
        int | None,
        typer.Option(
            callback=within(1, 1000), help="clients that K are selected from [default: 10]"
        ),
    ] = None,
    attackers: Annotated[
        int | None,
        typer.Option(
            callback=within(0, 1000),
            help="largest number of malicious clients in an episode [default: 3]",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(callback=within(1, 10_000_000), help="simulated rounds")
    ] = 2000,
    seed: Annotated[
        int, typer.Option(callback=within(0, WHOLE), help="of the agent and the simulation")
    ] = 0,
) -> None:
    """Train an agent in a simulated federation with RLlib's own loop."""
    from orchestrator.cli.pretraining import federation_of, pretrain_agent

    given = {"participants": participants, "slots": slots, "attackers": attackers}
    options = federation_of(config, settings or []) if config or settings else {}
    options |= {name: number for name, number in given.items() if number is not None}
    pretrain_agent(agent, options, rounds, seed, out)
