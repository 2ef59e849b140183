"""Commands on runs that have ended: side by side, by energy and time, as landscapes; and what their
models say.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from algorithms.section import WHOLE
from orchestrator.cli.arguments import Panel, new, numbers, page, path, picture, within, written
from orchestrator.errors import UserError
from orchestrator.files import write_text
from orchestrator.results.contents import REPORT
from orchestrator.results.members import members
from orchestrator.results.places import is_remote
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console, errors

commands = Panel("Results")


class CompareForm(StrEnum):
    """How a comparison is written."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    html = "html"
    csv = "csv"
    json = "json"


class Listing(StrEnum):
    """How numbers are written."""

    terminal = "terminal"
    json = "json"


class Split(StrEnum):
    """Which rows of a dataset."""

    train = "train"
    test = "test"


LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        help="NAME=TEXT: what a run, or a group of seeds, is called; NAME is its folder, or its "
        "name without this (repeatable)",
    ),
]
RunsArgument = Annotated[
    list[str],
    typer.Argument(
        callback=path, help="folders (or s3://...) of finished runs, or of their seed-N"
    ),
]


@commands.command()
def compare(
    runs: RunsArgument,
    plot: Annotated[
        Path | None,
        typer.Option(
            callback=picture,
            help="write the curves as a picture (.pdf, .svg, .png), and their data as .csv",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="column of rounds.parquet that is tested, all that begin with it if it ends in / "
            "(repeatable; default: test_accuracy, or the first headline that there is)"
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help='count rounds and seconds until the metric reached this ("<= 0.1": fell to it)'
        ),
    ] = None,
    form: Annotated[
        CompareForm, typer.Option("--format", help="how to write it")
    ] = CompareForm.terminal,
    file: Annotated[Path | None, typer.Option(callback=written, help="write to this file")] = None,
    report: Annotated[
        Path | None,
        typer.Option(callback=page, help="also write a page (.html) with all curves"),
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", help="only this row of the table (repeatable)")
    ] = None,
    label: LabelOption = None,
    against: Annotated[
        str | None,
        typer.Option(help="the group that the others are tested against (default: the first)"),
    ] = None,
) -> None:
    """Put runs side by side, means over those that differ in the seed alone, and overlay their
    curves. A folder of seeds or of a sweep is all runs in it.
    """
    from orchestrator.analysis.comparison import show_comparison

    outputs = [plot, plot and plot.with_suffix(".csv"), file, report]
    names = [one.resolve() for one in outputs if one is not None]
    if len({*names}) < len(names):
        raise UserError("two of --plot, its .csv beside it, --file and --report are one file")
    folders = _all_of(runs)
    # what a terminal has is printed, and no text
    to_file = file is not None and form is CompareForm.terminal
    how = CompareForm.markdown if to_file else form
    text = show_comparison(
        folders, plot, metric or (), target, how.value, report, only=row or (), labels=label or (),
        against=against,
    )  # fmt: skip
    _give(text, file)


def _all_of(runs: list[str]) -> list[RunFolder]:
    """Runs, and those in folders of seeds and of sweeps."""
    return [RunFolder.viewed(one) for run in runs for one in members(run)]


def _give(text: str, file: Path | None) -> None:
    """Write a text to a file, or print it."""
    if file is not None:
        write_text(file, text)
        errors.print(f"wrote {file}", soft_wrap=True)
    elif text:
        console.print(text, soft_wrap=True, end="" if text.endswith("\n") else "\n")


@commands.command()
def report(
    run: Annotated[str, typer.Argument(callback=path, help="folder (or URI) of a run")],
    out: Annotated[
        Path | None,
        typer.Option(callback=page, help="file to write (default: report.html in the folder)"),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="serve it to a browser here while the run goes on")
    ] = False,
    port: Annotated[
        int, typer.Option(callback=within(0, 65_535), help="of --live; 0: any that is free")
    ] = 0,
) -> None:
    """Write the page about a run: anew, or for a trial of a sweep, which has none; or show it while
    the run goes on.
    """
    from orchestrator.pages.report import report_of

    if live:
        from orchestrator.cli.live import serve

        serve(run, port)
        return
    folder = RunFolder.viewed(run)
    text = report_of(folder, folder.config())
    if out is not None:
        write_text(out, text)
    elif is_remote(run):
        raise UserError("report: what lies in storage stays as it is; name a file with --out")
    else:
        folder.write_report(text)
    console.print(f"wrote {out or folder.path / REPORT}", soft_wrap=True)


@commands.command()
def plot(
    runs: RunsArgument,
    figure: Annotated[
        str,
        typer.Option(help="which; without --out all that there are are listed, with meanings"),
    ] = "accuracy",
    out: Annotated[
        Path | None,
        typer.Option(callback=written, help="picture to write: .pdf, .svg or .png"),
    ] = None,
    over: Annotated[
        str, typer.Option(help="round, mb, seconds or steps (default: as in the report)")
    ] = "",
    width: Annotated[
        float, typer.Option(callback=within(0.5, 40), help="inches of the plane: 3 fits a column")
    ] = 3.0,
    height: Annotated[float, typer.Option(callback=within(0.5, 40), help="its inches")] = 1.9,
    label: LabelOption = None,
) -> None:
    """Draw a figure of a run's report, or a column of several runs, in the size of a paper. Runs
    that differ in the seed alone are one curve, their mean, in a band of one standard error.
    """
    from orchestrator.cli.plotting import draw, show_figures

    folders = _all_of(runs)
    if out is None:
        show_figures(folders)
    else:
        draw(folders, figure, over, out, (width, height), label or ())


@commands.command()
def predict(
    run: Annotated[str, typer.Argument(callback=path, help="folder (or URI) of a run")],
    files: Annotated[
        list[Path],
        typer.Argument(
            callback=path, help="images or folders of them, tables (.csv, .parquet), .npy, .npz (x)"
        ),
    ],
    file: Annotated[
        Path | None, typer.Option(callback=written, help="write the table to this CSV file")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="the probability of each class, a column each")
    ] = False,
) -> None:
    """What a run's model says of other data: prepared as those that it was trained on."""
    from orchestrator.cli.predicting import predictions

    if file is not None and any(
        file.exists() and file.samefile(one) for one in files if one.exists()
    ):
        raise UserError(f"--file {file}: it is one of the files that are asked about")
    _give(predictions(run, files, each).to_csv(index=False), file)


@commands.command()
def evaluate(
    run: Annotated[str, typer.Argument(callback=path, help="folder (or URI) of a run")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="other data: --set data.dataset.path=new.csv, or evaluation.metrics=..."
        ),
    ] = None,
    form: Annotated[
        Listing, typer.Option("--format", help="how to write it: terminal or json")
    ] = Listing.terminal,
    every: Annotated[
        bool, typer.Option("--all-rows", help="of other data: by all rows, not by test rows alone")
    ] = False,
) -> None:
    """Judge a run's final model once more, on its own data or on others, whose inputs are made as
    in training.
    """
    from orchestrator.cli.evaluating import show_evaluation

    show_evaluation(RunFolder.viewed(run), settings or [], form is Listing.json, every)


@commands.command()
def export(
    run: Annotated[str, typer.Argument(callback=path, help="folder (or URI) of a run")],
    out: Annotated[
        Path,
        typer.Argument(
            callback=new,
            help="file to write: .onnx, .pt2 (torch.export), .torchscript, .pt (state dict) or "
            ".safetensors; or a new folder, as Hugging Face's hub has them",
        ),
    ],
    license_: Annotated[
        str, typer.Option("--license", help="of the model, for its card (an SPDX name)")
    ] = "unknown",
) -> None:
    """Write a run's final model for others, with what its inputs need, and a model card."""
    from orchestrator.cli.exporting import write_model

    write_model(RunFolder.viewed(run), out, license_)


@commands.command()
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
    show_best_steps(_all_of(runs), channels, plot)


@commands.command()
def wallclock(
    runs: RunsArgument,
    step_ms: Annotated[
        float | None,
        typer.Option(
            callback=within(0, 1e9),
            help="milliseconds of a local step on the hardware in mind (default: as each run's "
            "clients took)",
        ),
    ] = None,
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

    folders = _all_of(runs)
    declared = [one for folder in folders for one in folder.config().evaluation.metrics]
    goal = target_goal(target, metric, declared)
    show_wallclock(folders, step_ms, link, gbps, metric, goal)


@commands.command()
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
    show_landscape(_all_of(runs), plot, look)
