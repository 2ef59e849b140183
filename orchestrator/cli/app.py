"""The ``fedorch`` command."""

from __future__ import annotations

import errno
import keyword
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from algorithms.part import nearest
from algorithms.section import WHOLE
from orchestrator.cli import completion, finished
from orchestrator.cli.arguments import Commands, path, picture, within
from orchestrator.cli.faults import report
from orchestrator.cli.listing import Facts, listed
from orchestrator.cli.run_shown import INTERRUPTED, interrupted, show_result
from orchestrator.cli.running import (
    Series,
    require_files,
    run_here,
    run_on_ray,
    seed_folders,
    seeds_of,
)
from orchestrator.cli.templates import TEMPLATES
from orchestrator.cli.templates import written as written_part
from orchestrator.cluster.connection import connected
from orchestrator.cluster.waiting import leaving
from orchestrator.config import Config, load
from orchestrator.errors import Interrupted, UserError
from orchestrator.extras import named_if_missing
from orchestrator.files import require_working_folder, write_text
from orchestrator.plugins import NAME, take_named
from orchestrator.results.places import is_remote
from orchestrator.results.result import Result
from orchestrator.results.run_folder import CONFIG, RunFolder
from orchestrator.terminal import console, escaping, told

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Federated-learning experiments on Ray.",
)
data_app = typer.Typer(no_args_is_help=True, help="Look at datasets and partitions.")
app.add_typer(finished.commands)
app.add_typer(data_app, name="data")
agent_app = typer.Typer(no_args_is_help=True, help="FedAA's reinforcement-learning agents.")
app.add_typer(agent_app, name="agent")


ConfigArgument = Annotated[
    Path | None,
    typer.Argument(callback=path, help="YAML config; without one, the quick start"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="override a key: --set local.lr=0.1 (repeatable)",
        autocompletion=completion.settings,
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE|MODULE",
        callback=path,
        help="a .py file or an installed module with parts of one's own (repeatable)",
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="print it as JSON, for programs")]
CpusOption = Annotated[
    int | None, typer.Option(callback=within(0, 10_000), help="CPUs of a local cluster")
]
GpusOption = Annotated[
    float | None,
    typer.Option(callback=within(0, 10_000), help="(logical) GPUs of a local cluster"),
]


def _for_want_of_memory(error: BaseException) -> bool:
    """Whether a library could not be loaded into what the process may have."""
    no_room = ("failed to map segment", "cannot allocate memory")
    return isinstance(error, ImportError) and any(said in str(error) for said in no_room)


def _told(error: BaseException) -> int:
    """Say why the command has ended; returns its exit code."""
    unwritten = (errno.ENOSPC, errno.EIO)
    if isinstance(error, UserError):
        told("fedorch", error, "red")
    elif isinstance(error, MemoryError) or _for_want_of_memory(error):
        told("fedorch", "this machine's memory is too small for what was asked", "red")
    elif isinstance(error, OSError) and error.filename is None and error.errno in unwritten:
        # of help pages, which typer prints itself; files are told with their names
        told("fedorch", f"standard output cannot be written: {error.strerror}", "red")
        console.on_broken_pipe()
    else:
        told("fedorch", report(error), "red")
        return 1
    return INTERRUPTED if isinstance(error, Interrupted) else 2


@leaving()
def main() -> None:
    """Run the command: one sentence and exit code 2 for everything that the user can mend; for a
    fault of ours one sentence, which says where its traceback is, and exit code 1.
    """
    escaping()
    completion.prepare()
    try:
        require_working_folder()
        with named_if_missing():
            app(prog_name="fedorch")
    except SystemExit as ended:
        if console.lost and not ended.code:
            told("fedorch", f"standard output cannot be written: {console.lost}", "red")
            sys.exit(2)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise what it likes
        sys.exit(_told(error))


@app.command()
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
    address: Annotated[
        str, typer.Option(help="Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT")
    ] = "local",
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


@app.command()
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
    configs = {seed: load(config, [*settings, f"seed={seed}"], plugins) for seed in seeds}
    place = out or RunFolder.dated(configs[seeds[0]].name).place
    return Series(seed_folders(configs), place)


def _show_series(finished: list[RunFolder], series: Series) -> None:
    """The finished runs' metrics, mean ± standard error."""
    from orchestrator.analysis.comparison import show_comparison

    if finished:
        show_comparison([RunFolder.viewed(folder.place) for folder in finished], None)
    stopped = len(series.configs) - len(finished)
    place = shlex.quote(series.place)
    console.print(
        f"{len(finished)} seeds finished: {series.place}; beside another folder of seeds: fedorch "
        f"compare {place} OTHER",
        soft_wrap=True,
    )
    if stopped:
        interrupted(f"the same command with --out {place}, for {stopped} seeds")


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, datasets, models, partitioners, ...", autocompletion=completion.kinds
        ),
    ] = "",
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what a config can name."""
    from orchestrator.cli.catalogue import show_kind, show_kinds

    take_named(plugin or ())
    with listed(as_json):
        if kind:
            show_kind(kind)
        else:
            show_kinds()


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="a name from `fedorch list`, a section or key of the config, or: columns",
            autocompletion=completion.names,
        ),
    ],
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a part, a key of the config, or a column of a run's tables is: options, types, defaults,
    meanings, the paper's symbols.
    """
    from orchestrator.cli.catalogue import show_part

    take_named(plugin or ())
    with listed(as_json):
        show_part(name)


@app.command("completion")
def completion_(
    shell: Annotated[str, typer.Argument(help="bash, zsh, fish or powershell")],
) -> None:
    """Print what makes a shell complete commands, names of parts and keys: eval "$(fedorch
    completion bash)".
    """
    console.print(completion.script(shell), soft_wrap=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="of the part, and of its file: letters, digits, _")],
    kind: Annotated[str, typer.Option(help=f"what it is: {', '.join(TEMPLATES)}")] = "algorithm",
) -> None:
    """Write the file of a part of one's own, commented, which runs at once."""
    if kind not in TEMPLATES:
        raise UserError(f"--kind: {nearest(kind, [*TEMPLATES])}")
    if not NAME.fullmatch(name) or name != name.lower() or keyword.iskeyword(name):
        raise UserError(f"new: {name[:80]!r} is no name: use small letters, digits and _")
    file = Path(f"{name}.py")
    if file.exists():
        raise UserError(f"new: {file} is there already")
    text = written_part(kind, name, file.name)
    write_text(file, text)
    console.print(f"{file}: try it", soft_wrap=True)
    console.print("\n".join(text.splitlines()[2:4]), soft_wrap=True)


@app.command()
def check(
    plugin: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE", callback=path, help="a .py file or an installed module"
        ),
    ],
) -> None:
    """Try the parts of a file as our own are tried: bits, resuming, lost actors, bytes, and what
    its family asks.
    """
    from orchestrator.cli.checked import show_checks

    show_checks(plugin)


@data_app.command("show")
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


@agent_app.command("pretrain")
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


ClusterOption = Annotated[str, typer.Option(help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT")]
JobsOption = Annotated[
    str | None,
    typer.Option(
        help="the cluster: its dashboard (http://HOST:8265), auto, HOST:PORT or ray://HOST:PORT "
        "[default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or this machine's]"
    ),
]


@app.command()
def top(
    address: ClusterOption = "auto",
    once: Annotated[bool, typer.Option("--once", help="print the table and end")] = False,
) -> None:
    """Watch the runs and trials under way on a cluster."""
    from orchestrator.cluster.connection import connected
    from orchestrator.monitoring.top import show_top

    with connected(address):
        try:
            show_top(once)
        except KeyboardInterrupt:
            return


@app.command()
def dashboard(
    address: ClusterOption = "auto",
    grafana: Annotated[
        Path | None, typer.Option(callback=path, help="folder for the Grafana dashboard")
    ] = None,
) -> None:
    """Where to look at a cluster's runs in a browser, and at what."""
    from orchestrator.cluster.connection import connected
    from orchestrator.monitoring.guide import show_guide

    with connected(address) as url:
        show_guide(url, grafana)


@app.command(context_settings={"ignore_unknown_options": True})
def submit(
    words: Annotated[
        list[str], typer.Argument(help="run or sweep, with their arguments and options")
    ],
    address: JobsOption = None,
    name: Annotated[
        str | None, typer.Option("--id", help="name of the job (default: of the time)")
    ] = None,
) -> None:
    """Run or sweep as a job on a cluster; it goes on when this terminal is closed."""
    from orchestrator.cluster import jobs

    started = jobs.submit(address, words, name or f"fedorch-{time.strftime('%Y%m%d-%H%M%S')}")
    there = "" if address is None else f" --address {address}"
    follow = (f"`fedorch {command} {started}{there}`" for command in ("logs", "stop"))
    console.print(f"submitted {started}: {', '.join(follow)}", soft_wrap=True)
    if (place := jobs.results(words, started)) is not None:
        console.print(f"results: {place} on the head node", soft_wrap=True)


@app.command("jobs")
def jobs_listed(address: JobsOption = None, as_json: JsonOption = False) -> None:
    """The jobs of a cluster: ids, how they are doing, commands."""
    from orchestrator.cluster import jobs

    with listed(as_json):
        table = Facts(id="id", status="status", started="started", command="command")
        for job in jobs.listed(address):
            table.add(**job)
        console.print(table)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="id of the job")],
    address: JobsOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="go on until the job ends")] = False,
) -> None:
    """What a job has printed."""
    from orchestrator.cluster import jobs

    for text in jobs.logs(address, name, follow):
        console.print(text, end="", soft_wrap=True)


@app.command()
def stop(
    name: Annotated[
        str,
        typer.Argument(
            callback=path,
            help="id of a job, or folder (or s3://...) of a run started with --detach",
        ),
    ],
    address: Annotated[
        str | None,
        typer.Option(help="a job's: the cluster's dashboard; a run's: as of `fedorch run`"),
    ] = None,
) -> None:
    """End a job, or a detached run after its round; continue it later with --resume."""
    if is_remote(name) or RunFolder(Path(name)).begun:
        from orchestrator.cluster.connection import connected
        from orchestrator.rounds.remote import halt

        folder = RunFolder.at(name)
        with connected(address or "auto"):
            halt(folder.place)
        status = RunFolder.viewed(name).result()["status"]
        console.print(f"{folder.place}: {status}", soft_wrap=True)
        if status == "stopped":
            where = shlex.quote(folder.place)
            console.print(
                f"to go on: fedorch run --resume {where} --address {address or 'auto'}",
                soft_wrap=True,
            )
        return
    from orchestrator.cluster import jobs

    ended, how = jobs.stop(address, name)
    console.print(f"{name}: {ended.lower()}")
    if ended == "STOPPED" and how:
        console.print(f"to go on: {how}", soft_wrap=True)
    elif ended == "FAILED":
        console.print(f"why: fedorch logs {name}", soft_wrap=True)


@app.command()
def doctor(address: Annotated[str, typer.Option(help="Ray cluster to check")] = "local") -> None:
    """Check Python, packages, data, GPUs and Ray on this machine."""
    from orchestrator.cli.doctor import examine

    if not examine(address):
        sys.exit(1)


if __name__ == "__main__":
    main()
