"""What a shell is offered: commands, names of parts and keys, those of plugins among them."""

from pathlib import Path

import pytest

from orchestrator.cli import app
from tests.orchestrator.test_cli import here
from tests.orchestrator.test_plugins import forget

CLIPPED = Path(__file__).parents[2] / "examples" / "plugins" / "clipped.py"
OFFERED = {
    "des": ["describe"],
    "describe local.lr": ["local.lr", "local.lr_decay"],
    "describe scaffo": ["scaffold"],
    "list agg": ["aggregators"],
    "run --set algorithm=fedd": ["algorithm=feddual", "algorithm=feddyn"],
    "run --set evaluation.every": ["evaluation.every=", "evaluation.every_steps="],
    "run --set local.lr=": [],
    f"describe --plugin {CLIPPED} clipped": ["clipped_fedavg"],
    "describe --plugin /nowhere.py scaffo": ["scaffold"],
}


@pytest.mark.parametrize("line", OFFERED)
def test_offered(line, monkeypatch, capsys):
    monkeypatch.setenv("COMP_WORDS", f"fedorch {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    monkeypatch.setenv("_FEDORCH_COMPLETE", "complete_bash")
    monkeypatch.setattr("sys.argv", ["fedorch"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == OFFERED[line]
    forget()


def test_the_script_asks_the_command():
    for shell in ("bash", "zsh", "fish"):
        code, text = here("completion", shell)
        assert code == 0
        assert "_FEDORCH_COMPLETE" in text
    code, text = here("completion", "tcsh")
    assert code == 2
    assert "not 'tcsh'" in text
