"""The runs that are compared: which of them are one column, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from algorithms.parts.attacks import NoAttack
from algorithms.parts.metrics import Metric
from orchestrator.analysis.judged import SOME, Judged, family_of
from orchestrator.analysis.left_out import DIVERGED, left_out_said
from orchestrator.analysis.names import (
    NO_MATTER,
    SEEDS,
    by_config,
    group_names,
    in_natural_order,
    names_of_data,
    relabelled,
    require_same_data,
    stopped_said,
    unsaid,
    ways_to_say,
    with_values,
    without_seeds,
)
from orchestrator.analysis.reached import Reached
from orchestrator.config import UNNAMED, Config
from orchestrator.config.goal import sound
from orchestrator.errors import UserError
from orchestrator.pages.bands import band, is_cut, points
from orchestrator.pages.figures import Drawing
from orchestrator.pages.sentence import in_common, in_particular
from orchestrator.results.contents import TRIAL
from orchestrator.results.members import PBT, has_pbt
from orchestrator.results.own_code import FILES
from orchestrator.results.provenance import of_which_code, seconds_said
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import is_of_all, is_of_its_own, more_is_better
from orchestrator.terminal import HEADLINES, told


@dataclass(frozen=True)
class Runs:
    """The runs that are compared, with what they have left."""

    folders: list[RunFolder]
    results: list[Result]
    rounds: list[pd.DataFrame]
    labels: Sequence[str] = ()
    """"NAME=TEXT": what a column is called instead."""
    grouped: Mapping[str, list[int]] | None = None
    """The columns, as of :attr:`columns`; None: as the runs' configs tell them apart."""

    @classmethod
    def read(cls, folders: list[RunFolder], labels: Sequence[str] = ()) -> Runs:
        """Raises UserError for none, one that failed, and one that had other data of the same
        name.
        """
        if not folders:
            raise UserError("there are no runs to compare")
        failed = [f for f in folders if f.ending()["status"] == "failed"]
        if failed:
            others = "name the others, and the table says that it has failed"
            if failed[0].holds(TRIAL):
                others = "fedorch table SWEEP has the other trials"
            raise UserError(
                f"the run in {failed[0].place} failed and has no metrics to compare; {others}"
            )
        results = [f.result() for f in folders]
        for folder in folders:
            folder.tell_if_behind()
        require_same_data(folders, results)
        return cls(folders, results, [f.rounds() for f in folders], labels)

    @property
    def names(self) -> list[str]:
        """As the runs' configs have them."""
        return [result["name"] for result in self.results]

    @property
    def seeds(self) -> list[int]:
        """What the runs of a column differ in."""
        return [result["seed"] for result in self.results]

    @cached_property
    def _named(self) -> tuple[dict[str, list[int]], str]:
        groups = by_config(self.folders)
        numbers = [[self.folders.index(one) for one in runs] for runs in groups]
        # a trial's name, and the order of trials, is a digest
        trials = any(folder.holds(TRIAL) for folder in self.folders)
        names = None if trials else [self.names[runs[0]] for runs in numbers]
        if names == [UNNAMED]:
            names = [self.configs[0].algorithm.name]
        named = group_names(groups, names)
        columns, seeds = dict(zip(named, numbers, strict=True)), ""
        if any(len(runs) > 1 for runs in numbers):
            columns, seeds = without_seeds(columns)
        return in_natural_order(columns) if trials else columns, seeds

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """Name -> the runs that differ in the seed alone, by number."""
        if self.grouped is not None:
            return dict(self.grouped)
        columns = self._named[0]
        return relabelled(columns, self.labels, self._places(columns))

    def called(self, name: str | None) -> str:
        """The column of that name, of that name without its label, or of that folder; without one
        the first. Raises UserError for another.
        """
        if name is None:
            return next(iter(self.columns))
        before = dict(zip(self._named[0], self.columns, strict=True))
        known = self._places(self.columns) | before | {one: one for one in self.columns}
        if name not in known:
            raise UserError(
                f"--against {name!r}: give a run's folder or one of: {'; '.join(self.columns)}"
            )
        return known[name]

    def _places(self, columns: Mapping[str, Sequence[int]]) -> dict[str, str]:
        """Folder of a run, as a user may say it -> its column."""
        return {
            place: name
            for name, runs in columns.items()
            for run in runs
            for place in ways_to_say(self.folders[run].place)
        }

    @property
    def seeds_said(self) -> str:
        """What the numbers of several seeds are, or ""."""
        if all(len(some) == 1 for some in self.columns.values()):
            several = len({*self.seeds}) > 1 and len(self.columns) > 1
            return "single runs of other seeds, in which they differ, too" if several else ""
        usual = self._named[1]
        if usual and any(map(SEEDS.search, self.columns)):
            usual += " where no others are named"
        # a label need not say what the name did
        own = [
            f"{found[1]} of {name}"
            for before, name in zip(self._named[0], self.columns, strict=True)
            if (found := SEEDS.search(before)) and not SEEDS.search(name)
        ]
        which = "; ".join(filter(None, [usual, *own]))
        return f"mean ± standard error over seeds {which}".removesuffix(" ")

    @cached_property
    def configs(self) -> list[Config]:
        """Of the runs, read once."""
        return [folder.config() for folder in self.folders]

    @property
    def data_said(self) -> str:
        """What the data are, where not all have had the same; or ""."""
        if all(self.same_data(0, run) for run in range(len(self.results))):
            return ""
        names = ", ".join(names_of_data(self.configs))
        return f"of different data, which are not tested against one another: {names}"

    @cached_property
    def judged(self) -> Judged:
        """The clients that the columns' numbers are over."""
        return Judged({
            name: {self.seeds[run]: self.folders[run] for run in some}
            for name, some in self.columns.items()
        })  # fmt: skip

    @cached_property
    def on_the_same(self) -> bool:
        """Whether all columns are of the same seeds and data."""
        seeds = {frozenset(self.seeds[run] for run in some) for some in self.columns.values()}
        return len(seeds) == 1 and not self.data_said

    def same_data(self, one: int, other: int) -> bool:
        """Whether two runs had the same samples, whatever these are called."""
        digests = [self.results[run].get("samples_sha256") for run in (one, other)]
        if None not in digests and digests[0] == digests[1]:
            return True
        datasets = [self.configs[run].data.dataset for run in (one, other)]
        return datasets[0] == datasets[1]

    @property
    def apart_said(self) -> str:
        """What groups differ in, where their names do not say it; or ""."""
        firsts = {name: self.configs[some[0]] for name, some in self.columns.items()}
        if not (keys := unsaid(firsts)):
            return ""
        each = in_particular(firsts, self._cut) if len(firsts) <= SOME else ""
        shown = ", ".join(with_values(keys, [*firsts.values()]))
        return "; ".join(filter(None, [each, f"they differ in {shown}"]))

    @property
    def common_said(self) -> str:
        """What was the same in all of several groups, or ""."""
        if len(self.columns) < 2:
            return ""
        common = in_common(self.configs, self._cut)
        return f"in all: {common}" if common else ""

    def planes_said(self, rows: Iterable[str]) -> str:
        """Why seconds do not compare, where some of the table's ``rows`` are seconds; or ""."""
        if not any("seconds" in row for row in rows):
            return ""
        return "; ".join(seconds_said(self.results))

    def unequal_said(self, metrics: Iterable[str], shown: Iterable[str]) -> Iterator[str]:
        """What some columns have had that others have not, beside their data: a sentence a kind, of
        runs by these ``metrics``, ``shown`` in rows of such names.
        """
        yield from filter(
            None,
            [
                self.heldout_said, self.honest_said, self.common_model_said(metrics),
                self.planes_said(shown), self.code_said,
            ],
        )  # fmt: skip

    @property
    def code_said(self) -> str:
        """Of which code, torch, number of threads and kind of processors the runs are, where not
        all are of the same, and whom they went on without; or "".
        """
        said = [f"runs are {said}" for said in of_which_code(self.results)]
        said += filter(None, [self._imports_said, self._files_said])
        threads = sorted({config.resources.threads for config in self.configs})
        if threads[1:]:
            said.append(f"runs had {' and '.join(map(str, threads))} threads, whose bits differ")
        if len({config.resources.gpus_per_actor > 0 for config in self.configs}) > 1:
            said.append("some runs were on GPUs, and others on CPUs, whose bits and seconds differ")
        pairs = {
            name: [(self.configs[run], self.rounds[run]) for run in some]
            for name, some in self.columns.items()
        }
        return "; ".join(said + left_out_said(pairs))

    @property
    def _imports_said(self) -> str:
        """Which version of modules that plugins import each column is of, where that differs; or
        "".
        """
        each = {
            name: code[:8]
            for name, some in self.columns.items()
            if (code := self.results[some[0]].get("imports_sha256", ""))
        }
        if len({*each.values()}) < 2:
            return ""
        named = ", ".join(f"{code} in {name}" for name, code in [*each.items()][:SOME])
        return f"plugins imported other modules: {named}"

    @property
    def _files_said(self) -> str:
        """Which columns are of configs that name the same files, in which was something else; or
        "".
        """
        known: dict[str, str] = {}
        others = []
        for name, some in self.columns.items():
            config = self.configs[some[0]].model_dump_json(exclude=set(NO_MATTER))
            found = str(self.results[some[0]].get(FILES, ""))
            # runs of before do not say it
            if found and found != known.setdefault(config, found):
                others.append(name)
        if not others:
            return ""
        named = ", ".join(others[:SOME])
        return f"other contents of the files that their configs name: {named}"

    def no_pairs_said(self, against: str) -> str:
        """Which columns of several seeds share fewer than two with ``against``; or ""."""
        seeds = {name: {self.seeds[run] for run in some} for name, some in self.columns.items()}
        few = [
            name
            for name, some in seeds.items()
            if len(some & seeds[against]) < 2 < len(some) + len(seeds[against])
        ]
        if not few:
            return ""
        return (
            f"{', '.join(few[:SOME])}: fewer than two seeds of {against}, and so no pairs to test"
        )

    @property
    def stopped_said(self) -> str:
        """As :func:`stopped_said` of the columns' runs."""
        return stopped_said({
            _with_seed(name, self.seeds[run]): self.folders[run]
            for name, some in self.columns.items()
            for run in some
        })  # fmt: skip

    @property
    def _cut(self) -> bool:
        """Whether the rounds that were planned are not those of all runs."""
        return bool(self.stopped_said)

    @property
    def pbt_said(self) -> str:
        """That runs have not had the settings that they are called by all the time; or ""."""
        trials = {one.path.parents[1] for one in self.folders if one.holds(TRIAL)}
        return PBT.format(what="a column") if any(map(has_pbt, trials)) else ""

    @property
    def honest_said(self) -> str:
        """Whose clients' means are, where attackers are among those of some groups; or ""."""
        attacked = {isinstance(config.attack, NoAttack) for config in self.configs}
        judged = any(family_of(key) for r in self.results for key in r["metrics"])
        some = "means over clients are over honest ones, which are fewer where there is an attack"
        return some if attacked == {True, False} and judged else ""

    def common_model_said(self, metrics: Iterable[str]) -> str:
        """Which columns' models for all need be no client's, where one of the ``metrics`` is
        of such; or "".
        """
        if not any(is_of_all(metric) for metric in metrics):
            return ""
        each = [
            f"{common} in {name}"
            for name, some in self.columns.items()
            if (common := self.configs[some[0]].algorithm.common)
        ]
        said = "test_... and client_... judge a model that need be no client's"
        return f"{said}: {'; '.join(each[:SOME])}" if each and len(self.columns) > 1 else ""

    @property
    def heldout_said(self) -> str:
        """Which columns' methods learn by labelled rows at the server, where others do not; or
        "".
        """
        learns = {
            name: self.configs[some[0]].learns_by_heldout for name, some in self.columns.items()
        }
        who = [name for name, does in learns.items() if does]
        some = f"{', '.join(who[:SOME])}{' ...' * (len(who) > SOME)}"
        told = f"labelled rows that the server holds out teach {some}, and not the others"
        return told if 0 < len(who) < len(learns) else ""

    @cached_property
    def early(self) -> list[bool]:
        """Of each run, whether ``stop`` has ended it before its last round."""
        return [
            result["status"] == "finished" and result["rounds"] < config.rounds
            for config, result in zip(self.configs, self.results, strict=True)
        ]

    @cached_property
    def reached(self) -> Reached:
        """Which of them have reached what they were to."""
        return Reached(self.configs, self.rounds, self.early, self.seeds, self.columns, self.judged)

    @cached_property
    def diverged(self) -> list[bool]:
        """Of each run, whether it has."""
        return [bool(result.get("diverged")) for result in self.results]

    @cached_property
    def survivors(self) -> dict[str, list[int]]:
        """The columns of which no run has diverged."""
        return {
            name: some
            for name, some in self.columns.items()
            if not any(self.diverged[run] for run in some)
        }

    @property
    def diverged_said(self) -> str:
        """How many runs of which columns have diverged; or ""."""
        each = [
            f"{sum(self.diverged[run] for run in some)} of {len(some)} of {name}"
            for name, some in self.columns.items()
            if name not in self.survivors
        ]
        return f"{DIVERGED}: {', '.join(each)}" if each else ""

    def unmeasured_said(self, numbers: Mapping[str, Sequence[float | None]]) -> str:
        """Which groups have runs that do not report a metric that is compared, and so is not tested
        there, or ""; ``numbers``: metric -> of each run, None where it does not.
        """
        silent = {
            metric: [
                name if len(without) == len(some) else f"{len(without)} of {len(some)} of {name}"
                for name, some in self.columns.items()
                if (without := [run for run in some if values[run] is None])
            ]
            for metric, values in numbers.items()
        }
        return "; ".join(
            f"{metric} is not reported by {', '.join(names[:SOME])}, and not tested there"
            for metric, names in silent.items()
            if names
        )

    def more_is_better(self, metric: str) -> bool | None:
        """Which way a metric is better, as the runs say that have declared it; of rows that were
        trained on, or by which some methods' servers learn, and of losses that each run weighs in
        its own way, nobody can say it.
        """
        return None if self.has_no_side(metric) else more_is_better(metric, self.declared)

    def has_no_side(self, metric: str) -> bool:
        """Whether it is one of those."""
        by_training = metric.startswith(("train_", "heldout_"))
        return by_training or is_of_its_own(metric, self.declared)

    @property
    def declared(self) -> list[Metric]:
        """The metrics that the runs have beside the usual ones."""
        return [one for config in self.configs for one in config.evaluation.metrics]

    def own_said(self, metrics: Sequence[str]) -> str:
        """Which metrics each run weighs in its own way; or ""."""
        own = [metric for metric in metrics if is_of_its_own(metric, self.declared)]
        many = len(self.columns) > 1
        return f"{', '.join(own)}: each run's by weights of its own" if own and many else ""

    def groups(self, column: str = "") -> dict[str, list[pd.DataFrame]]:
        """Name of a column -> the rounds of its runs, with what is :func:`sound` of one of their
        own columns.
        """
        rounds = [
            one.assign(**{column: sound(one, column)}) if column in one else one
            for one in self.rounds
        ]
        return {name: [rounds[i] for i in some] for name, some in self.columns.items()}

    def band(self, column: str) -> Drawing:
        """Of each group that differs in the seed alone the mean of ``column``, in a band; raises
        UserError where no group's runs share a round.
        """
        groups = self.groups(column)
        rows = points(groups, column)
        if not rows:
            raise UserError(f"{column}: in no group have all runs a number of one round")
        if cut := is_cut(groups, column):
            told(
                "note",
                f"{column}: runs of a group end at other rounds; its curve ends with the first",
            )
        return band(column, list(groups), rows, cut)

    def usual(self) -> str:
        """The first of the headlines that one of them reports."""
        found = (key for key in HEADLINES if any(key in table for table in self.rounds))
        return next(found, "test_accuracy")


def _with_seed(name: str, seed: int) -> str:
    """A column's name with one run's seed, which it may say itself."""
    said = f" (seed {seed})"
    return name if name.endswith(said) else f"{name}{said}"
