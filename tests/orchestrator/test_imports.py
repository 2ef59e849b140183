"""What plugins import is a part of the run: seen without running it, told where it has changed."""

import importlib
import py_compile
import sys
import zipfile
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import fedorch
from orchestrator.cli.running import Series, run_here, run_on_ray, seed_folders
from orchestrator.clients.actor import ClientActor
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.plugins.imports import (
    NOTED,
    digest_of,
    imports_of,
    is_installed,
    require_as_imported,
    require_imports,
)
from orchestrator.results import usage
from orchestrator.results.own_code import other
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import trainable
from sweeps.data import IMPORTS, Shelf
from sweeps.results import by_trial
from tests.running import run_into
from tests.sweeps.plans import SMALL, sweep
from tests.sweeps.trials import Here
from tests.sweeps.trials import run_here as sweep_here

SCALED = """
import fedorch
from factor_of_mine import FACTOR

class Scaled(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        '''FedAvg, scaled.'''

        name: str = "scaled"

    options: Options
"""


def test_what_is_of_a_plugin_s_imports(tmp_path, monkeypatch):
    """Files, those that they import, packages above, of modules, too; not what is installed."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pack_a").mkdir()
    for name, text in {
        "pack_a/__init__.py": "", "pack_a/parts.py": "from . import inner\nimport numpy\n",
        "pack_a/inner.py": "def late():\n    import lone_b\n", "lone_b.py": "V = 1\n",
        "broken_c.py": "print 1\n",
        "named_d.py": "from pack_a.inner import late\ntry:\n    import broken_c\nexcept SyntaxError:\n    pass\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    plugins = {
        "file": load(None, [f"plugins=[{tmp_path}/named_d.py]"]).plugins,
        "module": load(None, ["plugins=[pack_a.parts]"]).plugins,
    }
    before = {kind: digest_of(imports_of(one)) for kind, one in plugins.items()}
    assert all(before.values())
    importlib.import_module("lone_b")  # as the function would
    require_as_imported(plugins["file"])
    (tmp_path / "lone_b.py").write_text("V = 2\n")
    assert {kind: digest_of(imports_of(one)) for kind, one in plugins.items()} == before
    (tmp_path / "lone_b.py").write_text("V = 1\n")
    for name in ("pack_a/__init__.py", "pack_a/inner.py", "lone_b.py"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(f"{text}\n# other\n")
        NOTED.clear()  # as in another process
        now = {kind: digest_of(imports_of(one)) for kind, one in plugins.items()}
        assert all(now[kind] != before[kind] for kind in now), name
        (tmp_path / name).write_text(text)
        NOTED.clear()
    assert {kind: digest_of(imports_of(one)) for kind, one in plugins.items()} == before


def test_what_an_import_of_all_brings_and_who_has_two_names(tmp_path, monkeypatch):
    """``import *`` was taken for nothing, and a second name for another content."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "pack_e")
    (tmp_path / "pack_e").mkdir()
    for name, text in {
        "pack_e/__init__.py": "__all__ = ['deep_f']\n", "pack_e/deep_f.py": "V = 1\n",
        "all_g.py": "from pack_e import *\n", "one_h.py": "import deep_f\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    every, alone = (
        load(None, [f"plugins=[{tmp_path}/{n}.py]"]).plugins for n in ("all_g", "one_h")
    )
    assert "pack_e.deep_f" in imports_of(every)
    assert [*imports_of(alone)] == ["deep_f"]
    require_as_imported([*every, *alone])
    require_as_imported([*alone, *every])
    before = digest_of(imports_of(every))
    (tmp_path / "pack_e" / "deep_f.py").write_text("V = 2\n")
    with pytest.raises(UserError, match=r"deep_f\.py, which they import, was changed since"):
        require_as_imported(every)
    NOTED.clear()
    assert digest_of(imports_of(every)) != before


def test_libraries_are_nobody_s_own_code(tmp_path, monkeypatch):
    """A plugin that imports torch took minutes where torch lay in a folder of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("site-packages/lib_i.py", "lib_j.py", "lib_j-1.dist-info/METADATA"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert is_installed(str(tmp_path / "site-packages" / "lib_i.py"))
    assert is_installed(str(tmp_path / "lib_j.py"))
    assert is_installed(pd.__file__)
    assert not is_installed(str(Path(__file__)))


def test_a_sweep_goes_on_by_what_its_plugins_import(tmp_path):
    """Trials by one version of a module stood in one table with those by another."""
    folder = RunFolder(tmp_path)
    Shelf({}, {IMPORTS: "a"}).leave(folder)
    with pytest.raises(UserError, match="plugins import are not those that the sweep was begun"):
        Shelf({}, {IMPORTS: "b"}).require_known(folder)
    Shelf({}, {IMPORTS: "a"}).require_known(folder)
    Shelf({}).leave(folder)
    with pytest.raises(UserError, match="plugins import are not those that the sweep was begun"):
        Shelf({}, {IMPORTS: "b"}).require_known(folder)  # it has found a module that was not there


def test_a_sweep_whose_modules_change_ends_and_goes_on(tmp_path, monkeypatch, ray_session):
    """Trials by what a file had become, or had been, stood in one table."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trainable, "REPORT_SECONDS", 0.0)
    factor, run = tmp_path / "factor_of_all.py", Here._run
    factor.write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled_all.py").write_text(
        SCALED.replace("_mine", "_all").replace("scaled", "all")
    )
    base = {"plugins": [f"{tmp_path}/scaled_all.py"], "algorithm": "all"}
    plan = sweep(axes={"local.lr": [0.1, 0.2, 0.3]}, base=base)

    def edited(self, trial, trials):
        run(self, trial, trials)
        factor.write_text("FACTOR = 2.0\n")

    with monkeypatch.context() as patch:
        patch.setattr(Here, "_run", edited)
        with pytest.raises(UserError, match=r"was changed since .*; 2 of 3 trials are to go: its"):
            sweep_here(plan, tmp_path / "s")
    factor.write_text("FACTOR = 1.0\n")
    sweep_here(plan, tmp_path / "s", resume=True)
    assert [one.status for one in by_trial(tmp_path / "s").values()] == 3 * ["finished"]


def test_a_process_with_other_imports_is_of_no_use(tmp_path, monkeypatch, ray_session):
    """A client actor that took a dead one's place, or a trial's process, ran what a file had become."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_ours.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled_too.py").write_text(
        SCALED.replace("_mine", "_ours").replace("scaled", "two")
    )
    config = load(None, [*SMALL, f"plugins=[{tmp_path}/scaled_too.py]", "algorithm=two"])
    shelf = Shelf.of([config])
    world = Experiment(config).world
    shelf.require_code(config)
    assert ClientActor(world, "run", 0, 0.0).ready().device == "cpu"
    (tmp_path / "factor_of_ours.py").write_text("FACTOR = 3.0\n")
    NOTED.clear()
    for there in (ClientActor(world, "run", 0, 0.0).ready, partial(shelf.require_code, config)):
        with pytest.raises(
            UserError, match=r"module factor_of_ours, .* is not what the run was begun with"
        ):
            there()
    NOTED.clear()
    with pytest.raises(UserError, match="module factor_of_ours"):
        require_imports(config.plugins, {})  # where the run was begun, it was not found


def test_what_a_plugin_imports_is_a_part_of_the_run(tmp_path, monkeypatch, capsys):
    """A run went on by other code, or was one of several seeds of it, without a word."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_mine.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled.py").write_text(SCALED)

    def series(*seeds):
        settings = [*SMALL, f"plugins=[{tmp_path}/scaled.py]", "algorithm=scaled"]
        configs = {seed: load(None, [*settings, f"seed={seed}"]) for seed in seeds}
        return Series(seed_folders(configs), str(tmp_path / "s")).run(run_here)

    (first,) = series(0)
    assert "imports_sha256" in first.result()
    assert len(series(0, 1)) == 2
    (tmp_path / "factor_of_mine.py").write_text("FACTOR = 0.5\n")
    with pytest.raises(
        UserError, match=r"factor_of_mine\.py, which they import, was changed since"
    ):
        run_into(first, first.config([], ["rounds=4"]), resuming=True)
    capsys.readouterr()
    usage.tell_of_imports(first)  # what this process has imported is the run's
    assert "modules" not in capsys.readouterr().err
    NOTED.clear()
    with pytest.raises(UserError, match="or of what plugins import"):
        series(0, 1, 2)
    with pytest.raises(UserError, match="modules that its plugins import are not those"):
        run_into(first, first.config([], ["rounds=4"]), resuming=True)
    capsys.readouterr()
    fedorch.Run(first.place).evaluate()
    assert "modules that its plugins import are not those" in capsys.readouterr().err


@pytest.mark.long
def test_a_module_that_only_this_process_finds_is_said(tmp_path, monkeypatch, ray_session):
    """All that was said was that the server's actor had died."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor_of_theirs.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "scaled.py").write_text(SCALED.replace("mine", "theirs"))
    config = load(None, [*SMALL, f"plugins=[{tmp_path}/scaled.py]", "algorithm=scaled"])
    with pytest.raises(UserError, match="No module named 'factor_of_theirs' in Ray's processes"):
        run_on_ray(config, RunFolder(tmp_path / "r"), False, [])


def test_looking_for_imports_runs_no_code(tmp_path, monkeypatch):
    """A script that a function, or a type checker, would import was run: it trained, or ended all."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {
        "script_k.py": "raise SystemExit(7)\n",
        "helper_k.py": "def main():\n    from script_k import go\n",
        "named_k.py": "from typing import TYPE_CHECKING\nimport typing as t\nfrom helper_k import main\n"
        "if TYPE_CHECKING:\n    from types_k import A\nif t.TYPE_CHECKING:\n    import types_k\n"
        "else:\n    import other_k\n",
        "types_k.py": "raise SystemExit(7)\n", "other_k.py": "",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    plugins = load(None, [f"plugins=[{tmp_path}/named_k.py]"]).plugins
    assert {*imports_of(plugins)} == {"helper_k", "script_k", "other_k"}
    assert {"script_k", "types_k"}.isdisjoint(sys.modules)
    (tmp_path / "script_k.py").write_text("raise SystemExit(8)\n")
    assert {*require_as_imported(plugins)} == {"helper_k", "script_k", "other_k"}


def test_modules_that_are_no_plain_files_of_their_own(tmp_path, monkeypatch):
    """In an archive, compiled, by a name of Python's own, or gone again."""
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped_l.py", "V = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "lib.zip")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    (tmp_path / "sched.py").write_text("V = 1\n")
    (tmp_path / "source.py").write_text("V = 1\n")
    py_compile.compile(str(tmp_path / "source.py"), str(tmp_path / "compiled_l.pyc"))
    (tmp_path / "gone_l.py").write_text("V = 1\n")
    text = "import zipped_l, compiled_l, sched, gone_l\nfrom pathlib import Path\nPath(gone_l.__file__).unlink()\n"
    (tmp_path / "named_l.py").write_text(text)
    plugins = load(None, [f"plugins=[{tmp_path}/named_l.py]"]).plugins
    assert {*imports_of(plugins)} == {"zipped_l", "compiled_l", "sched"}
    sys.modules.pop("sched")


def test_a_run_that_goes_on_with_another_plugin_has_its_imports(tmp_path, monkeypatch):
    """It was refused for modules that nobody had changed; one that finds a module which was not
    there goes on no more.
    """
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_m.py").write_text(
        SCALED.replace("from factor_of_mine import FACTOR", "").replace("scaled", "goes")
    )
    settings = [*SMALL, f"plugins=[{tmp_path}/mine_m.py]", "algorithm=goes"]
    folder = RunFolder(tmp_path / "r")
    run_into(folder, load(None, settings))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine_m.py").write_text(
        SCALED.replace("factor_of_mine", "factor_m").replace("scaled", "goes")
    )
    (tmp_path / "factor_m.py").write_text("FACTOR = 1.0\n")
    run_into(folder, folder.config([f"{tmp_path}/new/mine_m.py"], ["rounds=4"]), resuming=True)
    assert folder.result()["rounds"] == 4
    assert "imports_sha256" in folder.result()
    assert other({}, folder.result()) == ["imports_sha256"]


def test_long_chains_and_every_way_to_say_all(tmp_path, monkeypatch):
    """Long sums were a RecursionError; an annotated ``__all__`` was not seen."""
    monkeypatch.syspath_prepend(tmp_path)
    for number, names in enumerate(
        ('__all__: list[str] = ["sub_n"]', '__all__ = []\n__all__ += ["sub_n"]')
    ):
        pack = tmp_path / f"pack_n{number}"
        pack.mkdir()
        (pack / "__init__.py").write_text(names)
        (pack / "sub_n.py").write_text("V = 1\n")
        (tmp_path / f"named_n{number}.py").write_text(
            f"from pack_n{number} import *\nS = {' + '.join(['1'] * 2000)}\n"
        )
        plugins = load(None, [f"plugins=[{tmp_path}/named_n{number}.py]"]).plugins
        assert f"pack_n{number}.sub_n" in imports_of(plugins)
