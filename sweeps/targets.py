"""What ``fedorch sweep`` and ``fedorch table`` are about: a sweep's file, or a paper's table or
figure.
"""

from __future__ import annotations

import itertools
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from orchestrator.analysis.names import alike
from orchestrator.config.reading import YAML
from orchestrator.config.schema import HOW_MUCH
from orchestrator.errors import UserError
from orchestrator.files import write_text
from orchestrator.results.contents import CONFIG
from orchestrator.results.pictures import (
    require_no_data,
    require_unused_beside,
    write_picture,
)
from orchestrator.results.places import is_remote, join
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.trials import STATUS
from orchestrator.rounds.metrics import is_budget, on_test
from orchestrator.terminal import console, told
from sweeps import costs, efforts, tables
from sweeps.apart import differing, key_of, leaves, under
from sweeps.cells import Cells
from sweeps.entry import Values
from sweeps.home import TUNING, Home
from sweeps.own_table import cells_as, show_cells
from sweeps.papers import entries, entry
from sweeps.plan import Sweep, read_sweep
from sweeps.reproduction import Reproduction
from sweeps.results import no_sweep, plan_of, require_plan, stored
from sweeps.reuse import NOTHING, Finished
from sweeps.status import Status
from sweeps.tuning import EXTENSIONS, Candidate, Tuned
from sweeps.tuning import FILE as TUNED


@dataclass(frozen=True)
class Running:
    """How a sweep is run."""

    resume: bool = False
    """Go on with the one that is there; else there must be none."""
    settings: tuple[str, ...] = ()
    """Of --set: win over all but the axes."""
    at_once: int | None = None
    """Most trials at the same time; None: as the sweep says."""
    finished: Finished = NOTHING
    """Trials of other sweeps, which are not run again."""

    def changed(self, plan: Sweep) -> Sweep:
        """``plan`` as it is to be run; raises UserError for a seed among the settings."""
        return plan.changed(self.settings, self.at_once)


class Target(ABC):
    """What the user has named."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of its sweep, and of its folder where the user names none."""

    @abstractmethod
    def check(self) -> None:
        """Raise UserError if it cannot be run, before Ray is started."""

    def require_place(self, place: str, resume: bool) -> None:
        """Raise UserError if it cannot begin at ``place``, or go on there."""
        home = Home(place)
        if not resume:
            home.folder.require_empty()
        elif not (home.holds("sweep.json") or home.stage().holds("sweep.json")):
            raise no_sweep(home.place)

    def shows_end(self, place: str, how: Running) -> bool:
        """Whether it has ended there already, and all that is left is to show it, which is done:
        who resumes that need not wait for Ray.
        """
        return False

    @abstractmethod
    def plans(self, how: Running) -> list[Sweep]:
        """The sweeps that it is before any has chosen anything: to tell what they take."""

    def note(self, seconds: float) -> None:
        """Remember what a trial takes here, for who lists what there is."""

    @abstractmethod
    def run(self, place: str, how: Running) -> None:
        """Run it (Ray must be connected) with its results at ``place``, and print its table."""

    @abstractmethod
    def show(self, folder: Path, form: tables.Format, file: Path | None) -> None:
        """Print or write what has been measured so far."""

    def place(self, out: str | None) -> str:
        """Where its results are: ``out``, a path or a URI, or a folder here with its name."""
        if out is not None and is_remote(out):
            return out
        return str(Path(out or Path("runs") / "sweeps" / self.name).resolve())


def resolve(target: str, budget: str, columns: Sequence[str] = ()) -> Target:
    """What ``target`` names: the path of a YAML file, or an entry at that budget; raises UserError
    if there is no such entry, budget or column.
    """
    if target.endswith(YAML):
        return SweepFile(Path(target), tuple(columns))
    return PaperTarget(Reproduction(entry(target), budget, tuple(columns)))


def of_folder(folder: Path, columns: Sequence[str] = ()) -> Target:
    """What the sweep in ``folder`` was of; raises UserError if there is none."""
    plan = plan_of(folder)
    labels = {cell.label for cell in plan.cells}
    for one in entries().values():
        for size in one.budgets:
            paper = Reproduction(one, size)
            # a sweep of one's own may have the name
            if paper.name == plan.name and labels & {*paper.labels.values()}:
                return PaperTarget(replace(paper, only=tuple(columns)))
    return SweepFile(folder, tuple(columns))


@dataclass(frozen=True)
class SweepFile(Target):
    """A sweep of the user's own."""

    path: Path
    """The YAML file, or where its results are."""
    columns: tuple[str, ...] = ()
    """Of --column, which a file does not have: they are refused."""
    called: str = ""
    """What its mistakes name it, where the user knows no file."""

    @cached_property
    def plan(self) -> Sweep:
        """What the file says; raises UserError with one sentence."""
        return plan_of(self.path) if self.path.is_dir() else read_sweep(self.path, self.called)

    @property
    def name(self) -> str:
        return self.plan.name

    def check(self) -> None:
        if self.columns:
            raise UserError("--column chooses among a paper's columns; a sweep's file has none")
        list(self.plan.configs())
        plan = self.plan
        said = {key for cell in plan.cells for key, _ in leaves(cell.settings)}
        for key in plan.axes:
            if won := under(key.removesuffix(".name"), said):
                raise UserError(
                    f"{self.called or self.path}: axes.{key} would win over what cells say of "
                    f"{won}; leave one of them out"
                )

    def _require_free(self, settings: Sequence[str]) -> None:
        """Raise UserError for a --set of what cells differ in, and of an axis, which wins."""
        apart = differing(cell.settings for cell in self.plan.cells)
        axes = {axis.removesuffix(".name") for axis in self.plan.axes}
        for key in map(key_of, settings):
            if won := under(key, apart):
                raise UserError(
                    f"--set {key}: the cells of {self.name} differ in {won}, and would go by "
                    "names that they are not; change it in the file"
                )
            if won := under(key, axes):
                raise UserError(
                    f"--set {key}: {won} is an axis of {self.name}, which varies it; change it in "
                    "the file"
                )

    def shows_end(self, place: str, how: Running) -> bool:
        folder = Path(place)
        if not how.resume or is_remote(place) or not (folder / STATUS).is_file():
            return False
        status = Status.read(folder)
        if (
            status.failed
            or status.ended < status.total
            or plan_of(folder) != how.changed(self.plan)
        ):
            return False
        console.print(f"all {status.total} trials have ended already")
        self._show_end(Home(place))
        return True

    def plans(self, how: Running) -> list[Sweep]:
        self._require_free(how.settings)
        return [how.changed(self.plan)]

    def run(self, place: str, how: Running) -> None:
        home = Home(place)
        self._require_free(how.settings)
        _run(self.plan, home, how, how.resume)
        self._show_end(home)

    def _show_end(self, home: Home) -> None:
        show_cells(home.path)
        _require_some(home)
        show_next(home)

    def show(self, folder: Path, form: tables.Format, file: Path | None) -> None:
        if self.columns:
            raise UserError("--column chooses among a paper's columns; a sweep's file has none")
        _require(folder, self.name)
        if form == "terminal" and file is None:
            show_cells(folder)
            return
        text = cells_as(folder, "markdown" if form == "terminal" else form)
        if file is None:
            console.print(text, soft_wrap=True, end="")
        else:
            write_text(file, text)
            console.print(f"wrote {file}", soft_wrap=True)


def _require_some(home: Home) -> None:
    """Raise UserError if no trial has come to anything."""
    results = stored(home.path)[1]
    if results and all(result.status == "failed" for result in results):
        raise UserError(f"{home.place}: all {len(results)} trials failed: {results[0].error}")


def _require(folder: Path, name: str) -> None:
    """Raise UserError unless ``folder`` holds the sweep of that name."""
    there = plan_of(folder).name
    if there != name:
        raise UserError(
            f"{folder} holds the sweep {there!r}, and not {name!r}; choose another --out"
        )


def _show_place(home: Home) -> None:
    where = shlex.quote(home.place)
    console.print(f"results: {home.place}; as a table: fedorch table {where}", soft_wrap=True)


def show_next(home: Home) -> None:
    """Where the results are, and how to go on with them."""
    _show_place(home)
    cells = Cells.read(home.path)
    if cells.plan.choose_on == "nothing" or cells.runs is None or not cells.data["count"].any():
        return
    if cells.overshot:
        return  # nobody knows which is better
    first = next(n for n in itertools.count(100, 5) if not {*range(n, n + 5)} & {*cells.plan.seeds})
    if not (leading := _leading(cells)):
        return  # all that have ended have diverged
    name = shlex.quote(cells.plan.name)
    places = [f"runs/{name}-{which}" for which, _ in zip(("best", "second"), leading, strict=False)]
    several = "two settings" if len(places) > 1 else "setting"
    stop = leading[0].config().stop
    kept = any(on_test(name) is not None for name in stop)
    rows = "" if kept else " (on all training rows: with --set 'data.validation={}')"
    console.print(f"to run the best {several} on new seeds{rows}:", soft_wrap=True)
    for place, folder in zip(places, leading, strict=True):
        there = join(home.place, "trials", folder.path.name, CONFIG)
        # a config is a file, of which there is a copy here
        config = str(folder.path / CONFIG) if is_remote(home.place) else there
        console.print(
            f"  fedorch run {shlex.quote(config)} --seeds {first}-{first + 4} --out {place}",
            soft_wrap=True,
        )
    if len(places) > 1:
        metric = on_test(cells.plan.metric) or cells.plan.metric
        by = "" if metric == cells.runs.usual() else f" --metric {metric}"
        console.print(f"  fedorch compare {' '.join(places)}{by}", soft_wrap=True)


def _leading(cells: Cells) -> list[RunFolder]:
    """A trial of the best setting, and of the second on the same problem, of those that have ended
    in a model.
    """
    found: dict[str, RunFolder] = {}
    lines = next(iter(cells.problems.values()))
    alike_tried = {one.folder.path for line in lines for one in cells.groups[line]}
    sound = [
        one
        for one in cells.results
        if one.folder.path in alike_tried and one.status != "failed" and not one.diverged
    ]
    # in the order of the table
    sound.sort(key=lambda one: (cells.place(one), one.seed))
    for folder in (one.folder for one in sound):
        found.setdefault(alike(folder), folder)
        if len(found) == 2:
            break
    return [*found.values()]


def _run(plan: Sweep, home: Home, how: Running, resume: bool) -> None:
    # Ray Tune, which takes seconds to import: who only looks at results need not wait for it
    from sweeps.runner import run_sweep

    run_sweep(how.changed(plan), home, resume, how.finished)


def _run_stage(plan: Sweep, home: Home, how: Running) -> None:
    """One of the sweeps that an entry is, from where it was left."""
    _run(plan, home, how, how.resume and home.holds("sweep.json"))


@dataclass(frozen=True)
class PaperTarget(Target):
    """A paper's table or figure."""

    one: Reproduction

    @property
    def name(self) -> str:
        return self.one.name

    def check(self) -> None:
        """An entry's settings are known to be configs; what can be wrong is said by ``resolve``."""

    def plans(self, how: Running) -> list[Sweep]:
        self._require_free(how.settings)
        tried = self.one.candidates()
        stages = [self.one.tuning_sweep(tried)] if tried else []
        return [how.changed(plan) for plan in (*stages, self.one.final_sweep())]

    def note(self, seconds: float) -> None:
        costs.note(self.one, seconds)

    def run(self, place: str, how: Running) -> None:
        self._require_free(how.settings)
        self.require_place(place, how.resume)  # what the second of two stages would refuse
        home = Home(place)
        tuned = self._tune(home.stage(), how) if self.one.tuning else Tuned()
        _run_stage(self.one.final_sweep(tuned), home, how)
        if not how.settings:  # which may have made the trials other ones
            costs.note_measured(self.one, home.path)
        self.show(home.path, "terminal", None)
        home.send()
        self._show_next(home)

    def _show_next(self, home: Home) -> None:
        """Where the results are, and which budget comes after this one."""
        _show_place(home)
        entry, sizes = self.one.entry, [*self.one.entry.budgets]
        for size in sizes[sizes.index(self.one.size) + 1 :][:1]:
            trials = Reproduction(entry, size).trials
            console.print(
                f"the next budget: fedorch sweep {entry.id} --budget {size} ({trials:,} trials; "
                f"its grids: fedorch sweep {entry.id} --list)",
                soft_wrap=True,
            )

    def _require_free(self, settings: Sequence[str]) -> None:
        """Raise UserError for a --set of what is tuned, or of what rows or columns are told apart
        by: it would win over that in every trial; and of a goal, which has trials end where each
        happened to overshoot it.
        """
        for key, _ in leaves([one for one in settings if key_of(one).startswith("stop")]):
            metric = key.removeprefix("stop").removeprefix(".")
            if metric and not is_budget(metric):
                raise UserError(
                    f"--set stop: {metric} would end each trial where it happened to overshoot "
                    f"that, and {self.one.entry.id} compares what they come to; a budget is free "
                    "(stop.round, stop.steps_total), or use a sweep of your own"
                )
        tuning, entry = self.one.tuning, self.one.entry
        tuned = {key for grid in tuning.grids.values() for key in grid} if tuning else set()
        for key in map(key_of, settings):
            if won := under(key, tuned):
                raise UserError(
                    f"--set {key}: {entry.id} tunes {won} for each method, and would "
                    "try one value under many names; use --budget smoke, or a sweep of your own"
                )
            # less of it is said in the table's head
            free = key.partition(".")[0] in HOW_MUCH or key == "data.limit"
            if (not free or entry.alike_without(key)) and (won := under(key, entry.apart)):
                raise UserError(
                    f"--set {key}: the rows or columns of {entry.id} differ in {won}, and would "
                    "go by names that they are not; use a sweep of your own"
                )

    def _tune(self, home: Home, how: Running) -> Tuned:
        """The first stage of two: every method's grid; returns the settings that it chose."""
        if how.resume and home.holds(TUNED):
            home.collect()
            asked = how.changed(self.one.tuning_sweep(self.one.candidates()))
            require_plan(home.path, asked, home.place)
        else:
            self._search(home, how)
            home.send()
        tuned = Tuned.read(home.path)
        for one in tuned.chosen:
            console.print(f"tuned {one.place}: {', '.join(one.settings) or 'nothing to tune'}")
        return tuned

    def _search(self, home: Home, how: Running) -> None:
        """Try the grids, and what lies beyond their edges where the best is there; choose."""
        candidates = self.one.candidates()
        tried: dict[Candidate, Path] = {}
        for extension in range(EXTENSIONS + 1):
            stage = home.extension(extension) if extension else home
            _run_stage(self.one.tuning_sweep(candidates), stage, how)
            tried |= dict.fromkeys(candidates, stage.path)
            searches = self.one.searches(tried)
            candidates = self.one.further(searches)
            if not candidates:
                break
        self.one.choose(searches, home.path)

    def _is_here(self, size: str) -> bool:
        """Whether it was run at that budget, into its usual folder."""
        place = PaperTarget(replace(self.one, size=size)).place(None)
        return (Path(place) / "sweep.json").is_file()

    def show(self, folder: Path, form: tables.Format, file: Path | None) -> None:
        if not (folder / "sweep.json").is_file():
            target = self.one.entry.id
            others = [size for size in self.one.entry.budgets if self._is_here(size)]
            hint = f" (there are some at --budget {', '.join(others)})" if others else ""
            raise UserError(
                f"{folder} holds no results of {target}; run `fedorch sweep {target} --budget "
                f"{self.one.size}` first{hint}"
            )
        _require(folder, self.name)
        # what is claimed is claimed of all columns, whichever are shown
        values = self.one.whole.measured(folder)
        draws = self.one.entry.picture and form not in tables.FOR_PROGRAMS
        if self.one.entry.picture and file is not None:
            (require_unused_beside if draws else require_no_data)(file)
        self._show_table(folder, values, form, file)
        if draws:
            try:
                self._draw(folder, values, file or folder / "figure.png")
            except UserError as error:
                if file is not None:
                    raise
                told("note", f"no picture: {error}")  # for which nobody has asked

    def _draw(self, folder: Path, values: Values, beside: Path) -> None:
        from sweeps import figures

        figure, data = figures.draw(self.one, values, folder)
        write_picture(figure, beside.with_suffix(".png"), data)

    def _show_table(
        self, folder: Path, values: Values, form: tables.Format, file: Path | None
    ) -> None:
        one = replace(self.one, also=plan_of(folder).also)
        about = tables.About(self.one.diverged(folder), _how(one, folder))
        text = tables.render(one, values, form, about)
        if file is not None:
            # the terminal's form is printed, so a file of it has the Markdown instead
            written = text or tables.render(one, values, "markdown", about)
            write_text(file, written)
            console.print(f"wrote {file}", soft_wrap=True)
        elif text:
            console.print(text, soft_wrap=True)


def _how(one: Reproduction, folder: Path) -> tuple[str, ...]:
    """How the rows were tuned, and what they spent."""
    tuning, stage = one.tuning, folder / TUNING
    if tuning is None:
        said = [
            "nothing was tuned in this sweep: every method has the settings of the entry",
            *efforts.given(one),
        ]
    else:
        tuned = Tuned.read(stage) if (stage / TUNED).is_file() else Tuned()
        said = tuned.sentences(tuning)
    return (*said, *efforts.sentences(one, folder))
