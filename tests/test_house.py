"""The house: no circle, no arrow up, every room says what it is for, and functions stay small."""

import ast
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("algorithms", "rl", "orchestrator", "sweeps", "fedorch")
"""From the ground up: each may know those before it."""
ROOMS = (
    "credentials", "errors", "extras", "files", "terminal", "plugins", "noted", "models", "data", "training", "tracking", "config", "cluster",
    "clients", "results", "pages",
    "monitoring", "rounds", "analysis", "conformance", "cli",
)  # fmt: skip
"""Of the orchestrator, from the ground up."""
OF_RL = {"rl.weighers", "rl.env", "rl.pretrain"}
"""All that the orchestrator knows of rl: a config names an agent, a command trains one."""
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.BoolOp)


def modules():
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imported(name):
    """The modules of the house that a module names, wherever in it: a type is knowledge, too."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= whole or {node.module}
    return (found & set(MODULES)) - {name}


GRAPH = {name: imported(name) for name in MODULES}


def reached(name):
    seen, todo = set(), [name]
    while todo:
        new = GRAPH[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_there_is_no_circle():
    inner = [name for name, path in MODULES.items() if path.name != "__init__.py"]
    assert [name for name in inner if name in reached(name)] == []


def test_packages_know_only_those_below():
    for name, known in GRAPH.items():
        floor = PACKAGES.index(name.split(".")[0])
        above = {other for other in known if PACKAGES.index(other.split(".")[0]) > floor}
        assert not above, f"{name} knows {above}"


def test_the_science_knows_no_ray_and_no_files():
    for name, tree in TREES.items():
        if name.split(".")[0] == "algorithms":
            names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
            names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
            assert not {"ray", "pathlib", "os", "time", "io"} & {
                str(n).split(".")[0] for n in names
            }


def test_rooms_know_only_those_below():
    for name, known in GRAPH.items():
        if not name.startswith("orchestrator."):
            continue
        floor = ROOMS.index(name.split(".")[1])
        rooms = {other.split(".")[1] for other in known if other.startswith("orchestrator.")}
        assert {room for room in rooms if ROOMS.index(room) > floor} == set(), name
        assert {other for other in known if other.split(".")[0] == "rl"} <= OF_RL, name


def test_the_contract_is_below_the_parts():
    ground = ("section", "account", "figure", "part", "draws", "flat", "local", "contract")
    for name in [n for n in GRAPH if n in {f"algorithms.{g}" for g in ground}]:
        assert {k.split(".")[1] for k in GRAPH[name]} <= set(ground), name


@pytest.mark.parametrize("name", [n for n, p in MODULES.items() if p.name == "__init__.py"])
def test_every_room_says_what_it_is_for(name):
    assert len(ast.get_docstring(TREES[name]) or "") > 40


def functions():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.lineno} {node.name}", node


def test_functions_are_short_and_plain():
    lengths = []
    for where, node in functions():
        branches = 1 + sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
        assert branches <= 15, f"{where} has {branches} branches"
        doc = ast.get_docstring(node, clean=False) is not None
        body = node.body[doc:]
        lengths.append(node.end_lineno - body[0].lineno + 1 if body else 0)
    assert statistics.median(lengths) <= 6


def test_the_picture_of_the_house_is_true():
    """docs/architecture.md names every room, and every file that it names is there."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    there = {path.name for path in ROOT.rglob("*.py")}
    assert set(re.findall(r"\w+\.py\b", text)) <= there
    for room in [name for name in ROOMS if (ROOT / "orchestrator" / name).is_dir()]:
        assert f"{room}/" in text, f"docs/architecture.md does not show orchestrator/{room}/"
