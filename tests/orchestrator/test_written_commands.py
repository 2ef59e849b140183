"""Every ``fedorch run`` of the documentation is a config that is accepted as it is written."""

import re
import shlex
from pathlib import Path

import pytest

from orchestrator.config import load
from tests.orchestrator.test_cli import here

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OPEN = re.compile(r"\b(CONFIG|DIR|FOLDER|RUN)\b|--resume|--plugin|policy/|\$")
"""What a reader is to fill in, or what an earlier command has left."""


def commands(page):
    """The runs in its blocks of shell commands, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["fedorch", "run"] and not OPEN.search(" ".join(words)):
                yield words[2:]


RUNS = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:80]}")
    for page in PAGES
    for words in commands(page)
]


@pytest.mark.parametrize("words", RUNS)
def test_it_is_a_config(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    path = next((word for word in words if word.endswith(".yaml")), None)
    assert load(None if path is None else Path(path), settings).rounds


def test_there_are_some():
    assert len(RUNS) > 20


@pytest.mark.slow
def test_the_tour_s_comparison_is_what_its_commands_print(tmp_path):
    """Its column of SCAFFOLD, and so its verdicts, were of other code."""
    part = (ROOT / "docs" / "tour.md").read_text().partition("## 2. ")[2]
    printed = re.findall(r"^[│ ] .*", part.split("```")[3], re.MULTILINE)
    work = ("--set", "rounds=30", "--set", "local.steps=8", "--seeds", "0-2", "--in-process")
    folders = [tmp_path / name for name in ("fedavg", "scaffold", "drdm")]
    for folder in folders:
        assert here("run", "--set", f"algorithm={folder.name}", *work, "--out", folder)[0] == 0
    metric = ("--metric", "client_accuracy_worst10", "--format", "markdown")
    lines = {_words(line) for line in here("compare", *folders, *metric)[1].splitlines()}
    told = [_words(line) for line in printed if "±" in line or "MB" in line or "+0." in line]
    assert len(told) == 5
    assert {*told} <= lines


def _words(line):
    """The cells of a row, however it is drawn."""
    return tuple(cell.strip() for cell in re.split(r"[│|]|\s{2,}", line.strip()) if cell.strip())
