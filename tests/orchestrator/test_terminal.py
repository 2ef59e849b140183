"""What is printed comes from outside: it is text, and nothing else."""

import io
import sys
import threading
from dataclasses import replace

import pytest
from rich.table import Table

from orchestrator import terminal
from orchestrator.cli.run_shown import RoundProgress, quiet, show_result
from orchestrator.errors import UserError
from orchestrator.pages.sentence import goals_met, told
from orchestrator.results.pictures import write_picture
from orchestrator.results.plots import curves
from sweeps import tables
from tests.configs import small
from tests.sweeps.plans import REDUCED

HOSTILE = "[/red] [bold]b[/] :smile: \x1b[31mred\x07 \udcff"
SHOWN = "[/red] [bold]b[/] :smile: \\x1b[31mred\\x07 \\udcff"


class Utf8(io.TextIOWrapper):
    """What stdout is: it cannot take what is no text."""

    def getvalue(self):
        self.flush()
        return self.buffer.getvalue().decode()


@pytest.fixture
def printed(monkeypatch):
    file = Utf8(io.BytesIO(), encoding="utf-8")
    for console in (terminal.console, terminal.errors):
        monkeypatch.setattr(console, "_file", file)
        monkeypatch.setattr(console, "_width", 200)
    return file


def test_no_text_is_markup(printed):
    """``--out ".../[/red]"`` ended a finished run with rich's markup error; control characters
    went to the terminal, and bytes that are no text were a traceback."""
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    for thing in (HOSTILE, table, terminal.headed(HOSTILE, "bold", HOSTILE)):
        terminal.console.print(thing)
    terminal.told("note", HOSTILE)
    assert printed.getvalue().count(SHOWN) == 7
    assert "\x1b[31m" not in printed.getvalue()


def test_nor_is_that_of_a_bar(printed, monkeypatch):
    """Labels of trials and names of runs stand in it; only a terminal has one."""
    monkeypatch.setattr(terminal.console, "_force_terminal", True)
    with terminal.bar() as shown:
        shown.add_task(HOSTILE, total=1, note=HOSTILE)
    assert printed.getvalue().count(SHOWN) >= 2
    with RoundProgress(small(), 0) as progress:
        progress.show({"round": 1, "seconds": 0.1})


def test_parts_say_what_a_rounds_line_shows(printed):
    with RoundProgress(small("round_end={name: fda, theta: 1}", "local.steps=10"), 0) as progress:
        record = {"round": 1, "seconds": 0.1, "train_loss": 0.5}
        progress.show(record | {"round_steps": 7.0, "variance_estimate": 1.2345})
        progress.show(record | {"round_steps": 10.0})
    lines = printed.getvalue().splitlines()
    assert "training loss 0.500  steps 7  H 1.23 (" in lines[0]
    assert "training loss 0.500  steps 10 (" in lines[1]


def test_how_far_what_ends_a_run_has_come(printed):
    goals = ("stop={test_accuracy: 0.9, test_loss: '<= 0.1', steps_total: 400}",)
    with RoundProgress(small(*goals), 0) as progress:
        record = {"round": 1, "seconds": 0.1, "steps_total": 40.0}
        progress.show(record | {"test_accuracy": 0.5, "test_loss": 1.0})
        progress.show(record)
    first, second = printed.getvalue().splitlines()
    assert "test accuracy 0.5 of 0.9  test loss 1 of <= 0.1  steps total 40 of 400 (" in first
    assert second == "round 1/3: steps total 40 of 400 (0.10 s)"


def test_a_run_in_a_folder_with_marks(printed):
    result = {
        "name": HOSTILE, "status": "finished", "rounds": 1, "metrics": {}, "bytes_up": 1,
        "bytes_down": 1, "seconds": 1.0, "weights_sha256": "0" * 64,
    }  # fmt: skip
    show_result(result, HOSTILE, small())
    assert f"results: {SHOWN}" in printed.getvalue()


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_tables_hold_no_tags(form):
    """What --set has changed stands below a table, and went into a page as it was."""
    text = tables.render(replace(REDUCED, also=("name=<script>alert(1)</script>",)), {}, form)
    assert "&lt;script" in text
    assert "<script" not in text
    assert "</script" not in text


def test_names_with_dollars_are_drawn(tmp_path, finished_rounds):
    """``$x$`` is a formula to matplotlib, and half of one an error."""
    figure = curves({"a$^": finished_rounds}, {"test_accuracy": "$\\frac$"}, "$")
    write_picture(figure, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_a_picture_replaces_no_table_that_nobody_named(tmp_path, finished_rounds):
    """``--plot train.png`` wrote over the ``train.csv`` beside it."""
    figure, plot = curves({"a": finished_rounds}, {"test_accuracy": "a"}, "a"), tmp_path / "c.png"
    (tmp_path / "c.csv").write_text("label,text\n")
    with pytest.raises(UserError, match=r"c\.csv: it is there without"):
        write_picture(figure, plot, finished_rounds)
    assert [p.name for p in tmp_path.iterdir()] == ["c.csv"]
    write_picture(figure, plot)
    write_picture(figure, plot, finished_rounds)
    assert (tmp_path / "c.csv").read_text().startswith("round,test_accuracy")


def test_a_picture_and_its_table_are_written_both_or_neither(tmp_path, finished_rounds):
    """The picture stayed although the command had failed."""
    figure, plot = curves({"a": finished_rounds}, {"test_accuracy": "a"}, "a"), tmp_path / "c.png"
    plot.write_bytes(b"of before")
    (tmp_path / "c.csv").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*c\.csv"):
        write_picture(figure, plot, finished_rounds)
    assert plot.read_bytes() == b"of before"


@pytest.fixture
def finished_rounds():
    import pandas as pd

    return pd.DataFrame({"round": [1, 2], "test_accuracy": [0.1, 0.2]})


def test_rich_draws_in_any_encoding(monkeypatch):
    """Its ellipsis in a narrow column ended ``LC_ALL=C fedorch describe drdm`` with a fault."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    terminal.escaping()
    table = Table("word")
    table.add_row("word" * 50)
    table.columns[0].no_wrap = True
    terminal.Terminal().print(table, width=20)
    assert "wordword" in Utf8.getvalue(sys.stdout)
    assert "\\u2026" in Utf8.getvalue(sys.stdout)


def test_a_thread_that_is_silent_silences_no_other():
    """Two that overlapped left the process silent for good."""
    console, shown, turns = terminal.console, io.StringIO(), threading.Barrier(2)

    def first():
        with quiet():
            turns.wait()  # both are silent
            turns.wait()
        turns.wait()  # it has ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_file", shown)
        thread = threading.Thread(target=first)
        thread.start()
        console.print("one")
        with quiet():
            turns.wait()
            turns.wait()
            turns.wait()
            console.print("none")
        thread.join()
        console.print("two")
    assert shown.getvalue().split() == ["one", "two"]


@pytest.mark.parametrize("lost", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left")])
def test_work_goes_on_when_nobody_can_be_told(lost):
    """The reader of a pipe has gone, or the disk of a log is full."""

    class Gone(io.StringIO):
        def write(self, text):
            raise lost

    console = terminal.Terminal()
    console.file = Gone()
    console.print("one")
    console.print("two")
    assert console.quiet
    assert console.lost == ("" if isinstance(lost, BrokenPipeError) else "No space left")


@pytest.mark.parametrize(
    ("goals", "why"),
    [
        ("{test_accuracy: 0.5}", ", as test_accuracy reached 0.5"),
        ('{test_loss: "<= 1", test_accuracy: 0.9}', ", as test_loss fell to 1"),
        ('{test_loss: "<= 1", test_accuracy: 0.5}',
         ", as test_loss fell to 1 and test_accuracy reached 0.5"),
        ("{validation_accuracy: 0.5}", ""),
    ],
)  # fmt: skip
def test_what_ended_a_run_early_is_said(goals, why):
    config = small("rounds=9", f"stop={goals}")
    result = {
        "status": "finished", "rounds": 4, "seconds": 1.0, "bytes_up": 1, "bytes_down": 1,
        "metrics": {"test_accuracy": 0.6, "test_loss": 0.9, "validation_accuracy": None},
    }  # fmt: skip
    assert goals_met(config, result) == why
    assert f"It finished after 4 of 9 rounds{why}, with" in told(config, result, 10)[1]
    for other in ({"rounds": 9}, {"status": "stopped"}):
        assert goals_met(config, result | other) == ""
