"""The papers' tables and figures as data: complete, consistent, and able to run."""

import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.terminal import console
from sweeps import tables
from sweeps.choice import Choice
from sweeps.claims import verdicts
from sweeps.cli import cli, main  # noqa: F401  registers the commands
from sweeps.papers import PAPERS, SOURCES, entries, entry, of_paper
from sweeps.reproduction import Reproduction
from sweeps.results import by_trial
from sweeps.targets import Running, resolve
from tests.full_data import needs_data
from tests.sweeps.trials import trials_here

ENTRIES = entries()
BUDGETS = ("smoke", "reduced", "full")


def numbered(kind, numbers):
    return {f"{kind}{n}" for n in numbers}


INDEX = {  # what a reader finds in the papers; drawings of methods and lists of datasets are left out
    "drdm": numbered("table", range(1, 7))
    | numbered("figure", range(1, 7))
    | {"dual"},  # our own: what the dual step adds at equal rates
    "feddual": numbered("table", range(1, 6))
    | numbered("figure", range(1, 15))
    | {"readings"},  # our own: its readings at equal rates
    "fedaa": numbered("table", [n for n in range(1, 13) if n != 5])
    | numbered("figure", range(1, 6))
    | {"agent"},  # our own: what the weights add
    "fda": {"table3.2", "table4.2", "table4.4"}
    | numbered("figure3.", range(3, 18))
    | numbered("figureA.", range(1, 12))
    | numbered("figure4.", [2, 3, 4, 5, 6, *range(9, 18)]),
}


def test_every_table_and_figure_is_there(monkeypatch):
    found = {paper: set() for paper in INDEX}
    for name in ENTRIES:
        paper, rest = name.split("/")
        found[paper].add(rest.split("-")[0])
    assert found == INDEX
    monkeypatch.setattr(console, "_width", 400)  # pytest's workers have a narrow terminal
    assert {*PAPERS} == {*SOURCES}
    cited = CliRunner().invoke(cli.app, ["sweep", "feddual", "--list"]).output
    assert "P. Sahoo" in cited
    listed = CliRunner().invoke(cli.app, ["sweep", "--list"])
    assert listed.exit_code == 0, listed.output
    assert [name for name in ENTRIES if name not in listed.output] == []


def all_or_none_are_numbers(one, panel):
    """An axis is of numbers, which then have a name, or of words."""
    points = [column.x for column in one.columns.values() if column.panel == panel]
    numbers = [isinstance(x, int | float) for x in points]
    return not any(numbers) or (all(numbers) and one.along)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_agrees_with_itself(name):
    one = ENTRIES[name]
    assert one.id == name
    assert set(one.budgets) == set(BUDGETS)
    assert not one.budgets["full"].settings
    for row, column in one.published:
        assert row in one.rows
        assert column in one.columns
    assert set(one.strategies) <= set(one.rows)
    for panel in {column.panel for column in one.columns.values()}:
        assert one.figure != "axis" or all_or_none_are_numbers(one, panel)
    if one.figure == "clouds":
        assert all(len(Reproduction(one, budget).columns) % 2 == 0 for budget in one.budgets)
    assert len(verdicts(one, {})) == len(one.claims)
    for claim in one.claims:
        assert {claim.better, *claim.worse} <= set(one.rows)
        assert set(claim.columns) <= set(one.columns)
    for budget in one.budgets.values():
        assert set(budget.rows) <= set(one.rows)
        assert set(budget.columns) <= set(one.columns)
    for column in one.columns.values():
        assert column.statistic.endswith("_to") == (column.target is not None)
        assert not (column.statistic.endswith("_to") and column.better == "high")
    assert all(p.value is None or math.isfinite(p.value) for p in one.published.values())


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_claimed_can_be_tested_and_full_is_no_less_than_reduced(name):
    one = ENTRIES[name]
    seeds = {size: budget.seeds for size, budget in one.budgets.items()}
    assert set(seeds["reduced"]) <= set(seeds["full"])
    assert not one.claims or len(seeds["full"]) >= 3
    assert one.tuning is None or not set(one.tuning.seeds) & set(seeds["full"])


@pytest.mark.parametrize("name", ENTRIES)
def test_its_trials_are_configs(name):
    """All of smoke and of the first stage; of the larger budgets every row and every column
    once."""
    one = ENTRIES[name]
    list(Reproduction(one, "smoke").final_sweep().configs())
    for budget in ("reduced", "full"):
        reproduction = Reproduction(one, budget)
        rows, columns = reproduction.rows, reproduction.columns
        pairs = {
            *zip(rows, itertools.cycle(columns), strict=False),
            *zip(itertools.cycle(rows), columns, strict=False),
        }
        for row, column in pairs:
            load(
                None,
                [
                    *one.base,
                    *one.budgets[budget].settings,
                    *one.rows[row],
                    *one.columns[column].settings,
                ],
            )
        planned = len(reproduction.final_sweep().planned())
        if reproduction.tuning is not None:
            tuning = reproduction.tuning_sweep(reproduction.candidates())
            planned += len(tuning.planned())
            tried = Counter(cell.label.split(" / ")[0] for cell in tuning.cells)
            assert len({*tried.values()}) == 1
            load(None, [*tuning.set, *tuning.cells[0].settings])
            load(None, [*tuning.set, *tuning.cells[-1].settings])
        assert reproduction.trials == planned


@pytest.mark.parametrize("budget", ["reduced", "full"])
def test_fedaa_s_defences_do_equal_work_with_one_setting_for_all_columns(budget):
    """But for the row that says so; whoever is told the attackers' share, the table's row says."""
    one = Reproduction(ENTRIES["fedaa/agent-mnist"], budget)
    sweep, found = one.final_sweep(), {}
    base = sweep.raw()
    for trial in [t for t in sweep.planned() if t.seed == sweep.seeds[0]]:
        config = Choice(trial).config(base)
        models = 2 if config.algorithm.name == "ditto" else 1
        found.setdefault(trial.label.split(" / ")[0], set()).add(
            (models * config.local.epochs, getattr(config.aggregator, "byzantine", None))
        )
    assert all(len(settings) == 1 for settings in found.values())
    work = {row: next(iter(settings))[0] for row, settings in found.items()}
    usual = work.pop("uniform weights")
    assert {row for row, steps in work.items() if steps != usual} <= {"Ditto, all steps twice"}


def test_fedaa_s_agents_are_compared_on_as_many_clients_and_by_the_server_s_model():
    one, config = ENTRIES["fedaa/agent-mnist"], {}
    for row in ("multi-Krum, f = 40 %", "uniform weights, M = 60 %"):
        config[row] = load(None, [*one.base, *one.rows[row]])
    krum, uniform = config.values()
    assert krum.aggregator.keep is None  # m − f
    taken = round((1 - krum.aggregator.byzantine) * krum.data.clients)
    assert taken == round(uniform.algorithm.select * uniform.data.clients) == 60
    against = {claim.worse for claim in one.claims if claim.better.startswith("multi-Krum")}
    assert against == {("uniform weights, M = 60 %",)}
    metrics = {one.columns[c].metric for claim in one.claims for c in claim.columns}
    assert metrics == {"client_accuracy_weighted", "personal_accuracy_weighted"}
    assert len(one.budgets["reduced"].seeds) >= 5
    seconds = {"exponentiated gradient": 80, "greedy selection": 80}
    reduced = Reproduction(one, "reduced").final_sweep().planned()
    assert sum(seconds.get(t.label.split(" / ")[0], 35) for t in reduced) / 2 <= 3600  # two cores


PRINTED = [
    line.split("\t") for line in (Path(__file__).parent / "printed.tsv").read_text().splitlines()
]
"""The papers' tables, transcribed from their texts by another hand than the entries': entry, row,
which columns (a regular expression), the numbers from left to right (``value``, ``value±spread``;
``*``: the paper has a star)."""


def as_number(printed):
    value, _, spread = printed.partition("±")
    return (None, None) if value == "*" else (float(value), float(spread) if spread else None)


@pytest.mark.parametrize("name", dict.fromkeys(line[0] for line in PRINTED))
def test_every_published_number_is_the_papers(name):
    one = ENTRIES[name]
    for _, row, which, numbers in (line for line in PRINTED if line[0] == name):
        expected = [as_number(printed) for printed in numbers.split()]
        cells = [(row, c) for c in one.columns if re.search(which, c)]
        found = [one.published[cell] for cell in cells if cell in one.published]
        # beside the printed columns are those that say them again: stand-ins, the global model's
        at_hand = [(n.value, n.spread) for n in found[: len(expected)]]
        assert at_hand == expected, f"{name}, {row}"


def test_the_transcription_leaves_no_table_out():
    """All that print numbers of their own; FDA's other tables are of its authors' logs."""
    tables = {
        name for name, one in ENTRIES.items()
        if "/table" in name and not name.startswith("fda/")
        and any(p.value is not None for p in one.published.values())
    }  # fmt: skip
    again = {name for name in tables if name.endswith("-again")}
    assert len(again) == 2
    for name in again:
        assert ENTRIES[name].published == ENTRIES[name.removesuffix("-again")].published
    assert tables - again <= {line[0] for line in PRINTED}
    assert sum(len(line[3].split()) for line in PRINTED) == 1331


@pytest.mark.parametrize(
    ("wrong", "right"), [("drdm/tabel1", "drdm/table1"), ("fedual/table1", "feddual/table1")]
)
def test_an_unknown_entry_gets_the_nearest_name(wrong, right):
    with pytest.raises(UserError, match=f"did you mean '{re.escape(right)}'"):
        entry(wrong)


def test_a_papers_own_list():
    listed = CliRunner().invoke(cli.app, ["sweep", "feddual", "--list", "--json"])
    ids = [one["id"] for one in json.loads(listed.output)]
    assert ids == [name for name in ENTRIES if name.startswith("feddual/")]
    with pytest.raises(UserError, match="did you mean 'feddual'"):
        of_paper("fedual")


def test_progress_is_told_in_the_tables_statistic():
    plan = Reproduction(entry("feddual/readings"), "reduced").final_sweep()
    assert plan.how == "mean of the last 5 values"


def test_costs_are_low_where_the_metric_is_high():
    plan = Reproduction(entry("fda/table3.2"), "reduced").final_sweep()
    assert (plan.metric, plan.mode) == ("test_accuracy", "max")


def test_an_unknown_budget():
    with pytest.raises(UserError, match="drdm/table1 has smoke, reduced, full"):
        resolve("drdm/table1", "huge")


def test_a_table_says_on_which_data_it_was_run():
    """A table called KMNIST's, with the paper's numbers, was of Fashion-MNIST."""
    smoke, reduced, full = (
        Reproduction(ENTRIES["drdm/table1"], size) for size in ("smoke", "reduced", "full")
    )
    assert (smoke.stand_in, full.stand_in) == ("fashion_mnist_10k in place of kmnist", "")
    assert (smoke.elsewhere, reduced.elsewhere, full.elsewhere) == (True, True, False)
    values = {("DRDM", column): {0: 1.0} for column in reduced.columns}
    text = tables.render(reduced, values, "markdown")
    assert "run on fashion_mnist in place of kmnist" in text
    assert "(published)" not in text
    assert "(published)" in tables.render(full, values, "markdown")
    # rows of the same data
    assert not Reproduction(ENTRIES["feddual/table1"], "reduced").elsewhere


def test_sums_over_fewer_rounds_stand_beside_no_published_ones():
    """Seconds of four rounds had the paper's of 200 in parentheses."""
    reduced, full = (
        Reproduction(ENTRIES["fedaa/table1-mnist"], size) for size in ("reduced", "full")
    )
    values = {("FedAA(AL 64)", column): {0: 50.0} for column in reduced.columns}
    short, whole = (tables.render(one, values, "markdown") for one in (reduced, full))
    assert "| FedAA(AL 64) | 50 | 50.000 (0.978) |" in short
    assert "left out of sums over other rounds or work: runtime" in short
    assert "| FedAA(AL 64) | 50 (5103) |" in whole
    assert "left out" not in whole


def test_a_table_without_results(tmp_path):
    with pytest.raises(UserError, match="run `fedorch sweep drdm/table1 --budget smoke` first"):
        resolve("drdm/table1", "smoke").show(tmp_path, "terminal", None)


SAMPLE = ["drdm/table3", "feddual/figure2", "fedaa/table1-mnist", "fda/table4.2-mrpc"]


def assert_it_runs(name, folder):
    target = resolve(name, "smoke")
    target.run(str(folder), Running(at_once=2))
    found = by_trial(folder)
    assert len(found) == len(Reproduction(ENTRIES[name], "smoke").final_sweep().planned())
    assert {r.status for r in found.values()} == {"finished"}, [
        r.error for r in found.values() if r.error
    ]
    target.show(folder, "markdown", folder / "table.md")
    assert (folder / "table.md").read_text().count("|") > 10


SOME = [*SAMPLE[:2], *[pytest.param(n, marks=needs_data) for n in SAMPLE[2:]]]


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", SOME)
def test_a_sample_runs_at_its_smoke_budget_here(name, tmp_path):
    with trials_here():
        assert_it_runs(name, tmp_path / "s")


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", SOME)
def test_a_sample_runs_at_its_smoke_budget(name, tmp_path):
    assert_it_runs(name, tmp_path / "s")


@needs_data
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in SAMPLE])
def test_every_entry_runs_at_its_smoke_budget(name, tmp_path):
    assert_it_runs(name, tmp_path / "s")
