"""Command lines: what cannot be meant is told when the command starts, in one sentence."""

import pytest
import typer

from orchestrator.cli import arguments
from orchestrator.errors import LONGEST
from orchestrator.results.contents import run_that_writes
from sweeps import cli
from tests.orchestrator.test_cli import here

COMMANDS = typer.main.get_command(cli.cli.app).commands
PATHS = {"config", "out", "resume", "plot", "runs", "grafana", "folder", "file"}
"""Names of options and arguments that are paths."""


def every_parameter():
    for name, command in COMMANDS.items():
        for sub, leaf in getattr(command, "commands", {"": command}).items():
            for param in leaf.params:
                yield f"{name} {sub}".strip(), leaf, param


def words(command, leaf, param, value):
    """A command line with the value, and with something for what else it needs."""
    needed = [
        [p.opts[0], "1"] if p.param_type_name == "option" else ["x"]
        for p in leaf.params
        if p.required and p is not param
    ]
    own = [f"{param.opts[0]}={value}"]
    return [*command.split(), *own, *(word for one in needed for word in one)]


def test_every_number_has_bounds():
    """``wallclock --step-ms nan`` printed nan and ended with 0; no option had any bound."""
    numbers = [
        (c, leaf, p) for c, leaf, p in every_parameter() if p.callback and _is_number(p)
    ]  # fmt: skip
    assert len(numbers) >= 15
    for command, leaf, param in numbers:
        for value in ("nan", "inf", "-1e300", str(10**22), "9" * 5000):
            code, text = here(*words(command, leaf, param, value))
            assert (code, param.opts[0] in text) == (2, True), (command, param.name, value, text)
            assert len(text) < LONGEST + 20


def _is_number(param):
    return param.type_descriptor.annotation in (int, float)


def test_no_number_or_path_is_unchecked():
    """A new option must say what it takes."""
    for command, _, param in every_parameter():
        flag = param.type_descriptor.annotation is bool
        if _is_number(param) or (param.name in PATHS and not flag):
            assert param.callback is not None, (command, param.name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a" * 300, "too long"),
        ("a/" * 3000, "too long"),
        ("a\x1b[31m", "control characters"),
        ("a\udcff", "is not UTF-8"),
        ("loop/x", "a link that leads to itself"),
    ],
)
def test_paths_are_checked_first(given, message, tmp_path, monkeypatch):
    """They were tracebacks, some of them after the run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for line in (
        ["run", "--out", given], ["run", given], ["compare", given],
        ["run", "--resume", given], ["sweep", "--out", given, "x"],
        ["agent", "pretrain", given], ["stop", given],
    ):  # fmt: skip
        code, text = here(*line)
        assert (code, message in text) == (2, True), text
        assert "\n" not in text.strip()


@pytest.mark.parametrize("plot", ["c.xyz", "c", "nowhere/c.png", ".", "c.csv"])
def test_pictures_are_checked_first(plot, tmp_path, monkeypatch):
    """A format that there is not was told by a traceback, after all had been read."""
    monkeypatch.chdir(tmp_path)
    assert here("data", "show", "--plot", plot)[0] == 2


@pytest.mark.parametrize("name", [
    "config.yaml", "result.json", "manifest.sha256", "model.safetensors", "rounds.parquet", ".lock",
    "report.html", "plugins/mine.py", "checkpoints/round-1/state.json", "metrics.jsonl",
])  # fmt: skip
def test_no_file_of_a_run_is_written_over(name, tmp_path, monkeypatch):
    """A comparison took the place of the config of one of the runs that it compared."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a" / name
    place.parent.mkdir(parents=True)
    (tmp_path / "there").symlink_to("a")
    (tmp_path / "a" / "config.yaml").write_text("{}")
    (tmp_path / "a" / "manifest.sha256").write_text("")
    for line in (
        ["compare", "a", "--file"], ["compare", "a", "--report"], ["report", "a", "--out"],
        ["predict", "a", "x", "--file"], ["export", "a"], ["table", "x", "--file"],
    ):  # fmt: skip
        for file in (place, f"there/{name}"):
            code, text = here(*line, file)
            assert (code, f"is a file of the run in {tmp_path}/a" in text) == (2, True), text


def test_other_files_may_be_in_a_run_s_folder(tmp_path):
    (tmp_path / "manifest.sha256").write_text("")
    # a manifest alone is of no run, and a config alone may be anybody's
    assert run_that_writes(tmp_path / "config.yaml") is None
    (tmp_path / "config.yaml").write_text("{}")
    assert run_that_writes(tmp_path / "config.yaml") == tmp_path
    assert run_that_writes(tmp_path / "page.html") is None
    assert run_that_writes(tmp_path / "plots" / "config.yaml") is None


@pytest.mark.parametrize("line", [["--foo"], ["foo"], ["run", "--foo"], ["compare"], ["[/red]"]])
def test_mistakes_in_use_are_sentences(line):
    """They were boxes of five lines."""
    code, text = here(*line)
    assert (code, text.startswith("fedorch: "), text.count("\n")) == (2, True, 1)


def test_lists_of_numbers():
    assert arguments.numbers("1,2.5", "--snr") == [1.0, 2.5]
    for text in ("1,x", "nan", "inf,1", ""):
        with pytest.raises(arguments.UserError, match="--snr"):
            arguments.numbers(text, "--snr")
