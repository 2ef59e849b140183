"""The notebooks of examples/, cell by cell, in an empty folder."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def executed(path):
    """What the cells leave behind, and what each would show."""
    book, names, shown = json.loads(path.read_text(encoding="utf-8")), {}, []
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
    return names, shown


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, shown = executed(path)
    for value in shown:
        assert value is not None
        getattr(value, "_repr_html_", lambda value=value: repr(value))()
    if path.stem == "compare":
        assert names["accuracy"] == pytest.approx(names["one"].summary["test_accuracy"])
        groups = names["comparison"].table().columns.get_level_values(0)
        assert {*groups} == {"fedavg", "scaffold"}
    else:
        assert names["rounds"]["test_accuracy"].iloc[-1] > 0.8
        assert names["robust"].config.aggregator.name == "without_largest"


def test_there_are_two():
    assert len(NOTEBOOKS) == 2
