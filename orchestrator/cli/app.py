"""The ``fedorch`` command."""

from __future__ import annotations

import errno
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from algorithms.section import WHOLE
from orchestrator.cli.arguments import Commands, numbers, path, picture, within
from orchestrator.cli.faults import report
from orchestrator.cli.run_shown import RoundProgress, show_notes, show_plan, show_result
from orchestrator.cluster.waiting import leaving
from orchestrator.config import Config, load
from orchestrator.errors import UserError
from orchestrator.plugins import take_named
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.storage import is_remote
from orchestrator.terminal import console, errors, escaping, told

if TYPE_CHECKING:
    from orchestrator.training.world import World

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Federated-learning experiments on Ray.",
)
data_app = typer.Typer(no_args_is_help=True, help="Look at datasets and partitions.")
app.add_typer(data_app, name="data")
agent_app = typer.Typer(no_args_is_help=True, help="FedAA's reinforcement-learning agents.")
app.add_typer(agent_app, name="agent")


class Split(StrEnum):
    """Which rows of a dataset."""

    train = "train"
    test = "test"


ConfigArgument = Annotated[
    Path | None,
    typer.Argument(callback=path, help="YAML config; without one, the quick start"),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="override a key: --set local.lr=0.1 (repeatable)")
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

CpusOption = Annotated[
    int | None, typer.Option(callback=within(0, 10_000), help="CPUs of a local cluster")
]
GpusOption = Annotated[
    float | None,
    typer.Option(callback=within(0, 10_000), help="(logical) GPUs of a local cluster"),
]
RunsArgument = Annotated[
    list[str],
    typer.Argument(callback=path, help="folders (or s3://...) of finished runs"),
]


@leaving()
def _told(error: Exception) -> int:
    """Say why the command has ended; returns its exit code."""
    unwritten = (errno.ENOSPC, errno.EIO)
    if isinstance(error, UserError):
        told("fedorch", error, "red")
    elif isinstance(error, MemoryError):
        told("fedorch", "this machine's memory is too small for what was asked", "red")
    elif isinstance(error, OSError) and error.filename is None and error.errno in unwritten:
        # of help pages, which typer prints itself; files are told with their names
        told("fedorch", f"standard output cannot be written: {error.strerror}", "red")
        console.on_broken_pipe()
    else:
        told("fedorch", report(error), "red")
        return 1
    return 2


def main() -> None:
    """Run the command: one sentence and exit code 2 for everything that the user can mend; for a
    fault of ours one sentence, which says where its traceback is, and exit code 1.
    """
    escaping()
    try:
        app()
    except Exception as error:
        sys.exit(_told(error))
    except SystemExit as ended:
        if console.lost and not ended.code:
            told("fedorch", f"standard output cannot be written: {console.lost}", "red")
            sys.exit(2)
        raise


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
        typer.Option(callback=path, help="continue the run in this folder (or s3://...)"),
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
) -> None:
    """Run an experiment."""
    if detach and (in_process or address == "local"):
        raise UserError(
            "--detach needs a cluster that outlives this command; name one with --address"
        )
    folder, chosen = _folder(config, settings or [], plugin or [], out, resume)
    result: Result | None
    try:
        if in_process:
            result = _run_here(chosen, folder, resume is not None)
        else:
            result = _run_on_ray(
                chosen, folder, resume is not None, address, num_cpus, num_gpus, detach
            )
    finally:
        folder.forget_empty()  # of a run that could not begin
    if result is not None:
        show_result(result, folder.place)


def _folder(
    config: Path | None,
    settings: list[str],
    plugins: list[str],
    out: str | None,
    resume: str | None,
) -> tuple[RunFolder, Config]:
    if resume is not None:
        if config or settings or out or plugins:
            raise UserError(
                "--resume continues a run with its own config; give no config, --set, --plugin or "
                "--out beside it"
            )
        folder = RunFolder.existing(resume)
        return folder, folder.config()
    chosen = load(config, settings, plugins)
    return RunFolder.dated(chosen.name) if out is None else RunFolder.new(out), chosen


def _run_here(config: Config, folder: RunFolder, resuming: bool) -> Result:
    # imported here, as in all commands: the others need not wait for what only this one needs
    from orchestrator.clients.plane import InProcess
    from orchestrator.rounds.drive import begin, drive, held
    from orchestrator.rounds.experiment import Experiment
    from orchestrator.rounds.metrics import Record

    def plane(world: World) -> InProcess:
        return InProcess(world, config.resources.gpus_per_actor)

    interrupts: list[int] = []
    with held(folder, resuming):
        experiment = Experiment(config, plane)
        show_plan(begin(experiment, folder, resuming))
        with (
            RoundProgress(config.rounds, experiment.t) as progress,
            _on_interrupt(lambda: interrupts.append(1)),
        ):

            def tell(record: Record) -> None:
                progress.show(record)
                show_notes(experiment.alarm.news())

            return drive(experiment, folder, tell, lambda: bool(interrupts))


def _run_on_ray(
    config: Config,
    folder: RunFolder,
    resuming: bool,
    address: str,
    num_cpus: int | None,
    num_gpus: float | None,
    detach: bool,
) -> Result | None:
    from orchestrator.cluster.connection import connected
    from orchestrator.rounds.remote import answer_of, launch

    with connected(address, num_cpus, num_gpus):
        server = launch(config, folder.place, resuming, detach)
        prepared = answer_of(server.prepared.remote())
        show_plan(prepared)
        if detach:
            console.print(f"detached; results will be in {folder.place}", soft_wrap=True)
            return None
        _follow(server, config.rounds, prepared.done)
        return answer_of(server.outcome.remote())


def _follow(server: Any, rounds: int, done: int) -> None:
    """Show what a server does until its run has ended; pass an interrupt on to it."""
    from orchestrator.rounds.remote import answer_of

    seen, shown, life = done, 0, ""
    asked: list[Any] = []
    with (
        RoundProgress(rounds, done) as progress,
        _on_interrupt(lambda: asked.append(server.stop.remote())),
    ):
        while True:
            news = answer_of(server.watch.remote(seen))
            for record in news.records:
                progress.show(record)
            seen += len(news.records)
            if news.life != life:
                # a new process of the server's has notes of its own
                life, shown = news.life, 0
                if asked:  # the process that was told so has died
                    server.stop.remote()
            show_notes(news.notes[shown:])
            shown = len(news.notes)
            if news.ended:
                return


@contextmanager
def _on_interrupt(stop: Callable[[], Any]) -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the run after its round, with a checkpoint; the second at once."""

    def handler(number: int, frame: object) -> None:
        # the second signal is an ordinary KeyboardInterrupt
        for sign in before:
            signal.signal(sign, signal.default_int_handler)
        errors.print(
            "stopping after this round; a checkpoint is kept (Ctrl-C again to stop at once)"
        )
        stop()

    before = {sign: signal.signal(sign, handler) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, old in before.items():
            signal.signal(sign, old)


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="algorithms, datasets, models, partitioners, ...")
    ] = "",
    plugin: PluginOption = None,
) -> None:
    """List what a config can name."""
    from orchestrator.cli.catalogue import show_kind, show_kinds

    take_named(plugin or ())
    if kind:
        show_kind(kind)
    else:
        show_kinds()


@app.command()
def describe(
    name: Annotated[
        str, typer.Argument(help="a name from `fedorch list`, or a section of the config")
    ],
    plugin: PluginOption = None,
) -> None:
    """Every option of a part: type, default, meaning and the paper's symbol."""
    from orchestrator.cli.catalogue import show_part

    take_named(plugin or ())
    show_part(name)


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


@app.command()
def compare(
    runs: RunsArgument,
    plot: Annotated[
        Path | None,
        typer.Option(callback=picture, help="write the overlaid curves to this PNG"),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="column of rounds.parquet, all that begin with it if it ends in / (default: "
            "test_accuracy, or the first headline that there is)"
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help='count rounds and seconds until the metric reached this ("<= 0.1": fell to it)'
        ),
    ] = None,
) -> None:
    """Print runs side by side and overlay their curves."""
    from orchestrator.analysis.comparison import show_comparison
    from orchestrator.config.goal import target_goal

    show_comparison([RunFolder.viewed(r) for r in runs], plot, metric, target_goal(target))


@app.command()
def energy(
    runs: Annotated[
        list[str],
        typer.Argument(
            callback=path,
            help="folders (or s3://...) of finished runs that differ in local.steps, or in their "
            "seeds",
        ),
    ],
    target: Annotated[
        float, typer.Option(callback=within(0, 1), help="worst client accuracy to be reached")
    ] = 0.8,
    snr: Annotated[str, typer.Option(help="signal-to-noise ratios in dB")] = "0,5,10,15,20",
    bandwidth: Annotated[str, typer.Option(help="bandwidths in Hz")] = "1e5,2e5,5e5,1e6,2e6",
    plot: Annotated[
        Path | None,
        typer.Option(
            callback=picture, help="write the map to this PNG, and its data beside it as CSV"
        ),
    ] = None,
) -> None:
    """The number of local steps that reaches a target at the lowest energy, by channel (DRDM,
    Figure 4).
    """
    from orchestrator.analysis.energy import Channels, show_best_steps

    channels = Channels(target, numbers(snr, "--snr"), numbers(bandwidth, "--bandwidth"))
    show_best_steps([RunFolder.viewed(r) for r in runs], channels, plot)


@app.command()
def wallclock(
    runs: RunsArgument,
    step_ms: Annotated[
        float,
        typer.Option(
            callback=within(0, 1e9), help="milliseconds of a local step on the hardware in mind"
        ),
    ],
    link: Annotated[
        str, typer.Option(help="shared (one channel) or hypercube (interconnect)")
    ] = "shared",
    gbps: Annotated[
        float, typer.Option(callback=within(1e-9, 1e9), help="bandwidth in Gbit/s")
    ] = 0.5,
    metric: Annotated[
        str, typer.Option(help="metric that is to reach the target")
    ] = "test_accuracy",
    target: Annotated[
        str | None,
        typer.Option(help='count up to the round that reached this value ("<= 0.1": fell to it)'),
    ] = None,
) -> None:
    """Estimate the time that runs would take over a given link (FDA thesis, section 3.4.3)."""
    from orchestrator.analysis.wallclock import show_wallclock
    from orchestrator.config.goal import target_goal

    show_wallclock(
        [RunFolder.viewed(r) for r in runs], step_ms, link, gbps, metric, target_goal(target)
    )


@app.command()
def landscape(
    runs: Annotated[
        list[str],
        typer.Argument(
            callback=path,
            help="folders (or s3://...) of finished runs of the same model; those that differ in "
            "their seeds are one",
        ),
    ],
    dims: Annotated[int, typer.Option(callback=within(1, 2), help="1: curves, 2: contours")] = 1,
    points: Annotated[int, typer.Option(callback=within(2, 1000), help="points a direction")] = 21,
    radius: Annotated[
        float,
        typer.Option(
            callback=within(1e-9, 1e9), help="how far to go, in lengths of the model's filters"
        ),
    ] = 1.0,
    on: Annotated[Split, typer.Option(help="rows that the loss is taken over")] = Split.train,
    rows: Annotated[
        int, typer.Option(callback=within(1, WHOLE), help="at most so many of them")
    ] = 2000,
    rho: Annotated[
        float, typer.Option(callback=within(1e-9, 1e9), help="radius of the SAM-style sharpness")
    ] = 0.05,
    seed: Annotated[int, typer.Option(callback=within(0, WHOLE), help="of the directions")] = 0,
    plot: Annotated[
        Path,
        typer.Option(callback=picture, help="PNG to write; its data goes beside it as CSV"),
    ] = Path("landscape.png"),
) -> None:
    """Loss landscape and sharpness of runs' final models (FedDUAL, Figures 1 and 6)."""
    from orchestrator.analysis.landscape import Look, show_landscape

    look = Look(dims, points, radius, on.value, rows, rho, seed)
    show_landscape([RunFolder.viewed(r) for r in runs], plot, look)


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
    slots: Annotated[
        int, typer.Option(callback=within(1, 1000), help="clients that get a weight, K")
    ] = 10,
    participants: Annotated[
        int, typer.Option(callback=within(1, 1000), help="clients that K are selected from")
    ] = 10,
    attackers: Annotated[
        int,
        typer.Option(
            callback=within(0, 1000), help="largest number of malicious clients in an episode"
        ),
    ] = 3,
    rounds: Annotated[
        int, typer.Option(callback=within(1, 10_000_000), help="simulated rounds")
    ] = 2000,
    seed: Annotated[
        int, typer.Option(callback=within(0, WHOLE), help="of the agent and the simulation")
    ] = 0,
) -> None:
    """Train an agent in a simulated federation with RLlib's own loop."""
    from orchestrator.cli.pretraining import pretrain_agent

    options = {"participants": participants, "slots": slots, "attackers": attackers}
    pretrain_agent(agent, options, rounds, seed, out)


ClusterOption = Annotated[str, typer.Option(help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT")]
JobsOption = Annotated[
    str | None,
    typer.Option(
        help="the cluster's dashboard [default: RAY_API_SERVER_ADDRESS, or this machine's]"
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
    console.print(f"submitted {started}: `fedorch logs {started}`, `fedorch stop {started}`")


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
        return
    from orchestrator.cluster import jobs

    console.print(f"{name}: {jobs.stop(address, name).lower()}")


@app.command()
def doctor(address: Annotated[str, typer.Option(help="Ray cluster to check")] = "local") -> None:
    """Check Python, packages, data, GPUs and Ray on this machine."""
    from orchestrator.cli.doctor import examine

    if not examine(address):
        sys.exit(1)


if __name__ == "__main__":
    main()
