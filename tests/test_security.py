"""What SECURITY.md promises of the code, read in the code; and credentials, which nothing repeats."""

import ast
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from orchestrator.cli.faults import report
from orchestrator.cluster import jobs
from orchestrator.config import load
from orchestrator.credentials import discreet, has_credentials
from orchestrator.errors import Diverged, UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.storage import Mirror
from orchestrator.rounds.drive import leave_failure
from sweeps import runner
from sweeps.cli import main
from sweeps.home import Home, local_copy

ROOT = Path(__file__).parents[1]
TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
    for package in ("fedorch", "orchestrator", "algorithms", "rl", "sweeps", "benchmarks")
    for path in sorted((ROOT / package).rglob("*.py"))
}
RUNS_CODE = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
READS_PICKLES = {
    "joblib.load", "shelve.open", "marshal.load", "marshal.loads", "pd.read_pickle", "pandas.read_pickle",
    "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all",
    *(f"{module}.{call}" for module in ("pickle", "cloudpickle", "dill") for call in ("load", "loads", "Unpickler")),
}  # fmt: skip

ALLOWED = {
    "compile": "orchestrator/plugins/sources.py",  # plugins are code
    "pickle.loads": "orchestrator/conformance/forgetful.py",  # of what it has just pickled
}


def calls():
    """(where, dotted name, the call) of all calls of the packages."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"{path}:{node.lineno}", ast.unparse(node.func), node


def keyword(call, name):
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), None)


def test_no_code_is_read_from_files():
    """No pickle, no YAML that constructs, no evaluated text, no remote code; but in two places."""
    for where, name, call in calls():
        allowed = ALLOWED.get(name) == where.partition(":")[0]
        assert allowed or name not in RUNS_CODE | READS_PICKLES, f"{where}: {name}"
        # the one that writes a script starts none
        told = name == "get_completion_script" or keyword(call, "shell") in (None, "False")
        assert told, f"{where}: a shell"
        assert keyword(call, "trust_remote_code") in (None, "False"), f"{where}: remote code"
        assert keyword(call, "allow_pickle") in (None, "False"), f"{where}: pickled arrays"
        if name == "torch.load":
            assert keyword(call, "weights_only") == "True", f"{where}: torch.load"
        if name == "yaml.load":
            loader = ast.unparse(call.args[1]) if len(call.args) > 1 else keyword(call, "Loader")
            assert loader in SAFE_LOADERS, f"{where}: yaml.load with {loader}"


def test_ray_is_started_in_one_place():
    """Which keeps it on loopback."""
    places = {where.partition(":")[0] for where, name, _ in calls() if name == "ray.init"}
    assert places == {"orchestrator/cluster/connection.py"}


def test_what_could_hide_them_is_not_imported():
    """So that the names above are the only ones."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("pickle", "cloudpickle", "marshal", "shelve"), path
                if node.module in ("yaml", "torch", "os", "builtins"):
                    risky = {"load", "unsafe_load", "full_load", "system", "popen", "eval", "exec"}
                    assert not risky & {a.name for a in node.names}, path
            if isinstance(node, ast.Import):
                renamed = {a.name for a in node.names if a.asname}
                assert not renamed & {"pickle", "yaml", "torch", "cloudpickle", "marshal"}, path


SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader"} | {
    node.name
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
    and {ast.unparse(base) for base in node.bases} <= {"yaml.SafeLoader", "yaml.CSafeLoader"}
    and node.bases
}
"""YAML's own, and those of ours that refuse more."""

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE="
LEAKS = [
    f"s3://AKIAEXAMPLE:{SECRET}@bucket/run",
    f"s3://bucket/run?access_key=AKIAEXAMPLE&secret_key={SECRET}",
    f"s3://bucket/run?region=eu&sessionToken={SECRET}",
    f"https://host/x?X-Amz-Credential=q&X-Amz-Signature={SECRET}",
    f"s3://AKIAEXAMPLE%3A{SECRET}@bucket/run",
    f"s3://bucket/run?%73ecret_key={SECRET}",
    f"http://user:{SECRET}@127.0.0.1:8265",
]


@pytest.mark.parametrize("address", LEAKS)
def test_credentials_are_neither_taken_nor_said_again(address, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert has_credentials(address)
    doors = [
        Mirror, RunFolder.at, RunFolder.new, RunFolder.existing, RunFolder.viewed, Home, local_copy,
        lambda a: jobs.submit("http://127.0.0.1:9", ["run", "--out", a], "x"),
        lambda a: jobs.submit("http://127.0.0.1:9", ["sweep", "x.yaml", f"--out={a}"], "x"),
    ]  # fmt: skip
    for door in doors:
        with pytest.raises(UserError, match="AWS_ACCESS_KEY_ID") as told:
            door(address)
        assert SECRET not in str(told.value)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/run?endpoint_override=127.0.0.1:9000&scheme=http", "gs://anonymous@bucket/x",
        "abfs://container@account.dfs.core.windows.net/x", "hdfs://user@host:9000/a", "hdfs://h:90/a@b",
        "ray://[::1]:10001/x@y", "s3://bucket/monkey=3?keys=4", "file:///tmp/a:b",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_let_through(address):
    assert not has_credentials(address)
    assert discreet(f"--out {address}: no") == f"--out {address}: no"


@pytest.mark.parametrize(
    "address", [f"me:{SECRET}@127.0.0.1:6379", f"127.0.0.1:1/x?token={SECRET}"]
)
def test_nor_where_nothing_says_that_it_is_an_address(address):
    assert discreet(f"--address {address}: no") != f"--address {address}: no"
    assert SECRET not in str(UserError(f"--address {address}: no"))


@pytest.mark.parametrize("address", LEAKS)
def test_no_sentence_repeats_them(address, tmp_path, capsys, monkeypatch):
    """Neither on the terminal nor in result.json, whoever made the sentence; nor after Ray has
    pickled it.
    """
    error = UserError(f"--address {address!r}: cannot connect to {address}, says {address}")
    assert SECRET not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert SECRET not in str(Diverged(f"see {address} or {Path(address)}"))
    leave_failure(RunFolder(tmp_path), {}, RuntimeError(f"no {address}"))
    assert SECRET not in (tmp_path / "result.json").read_text()
    assert json.loads((tmp_path / "result.json").read_text())["error"]
    for words in (["run", "--in-process", "--out"], ["run"], ["compare"], ["top", "--address"]):
        monkeypatch.setattr(sys, "argv", ["fedorch", *words, address])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err


def test_no_kept_traceback_holds_them(tmp_path, monkeypatch):
    """It is kept to be sent to others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    said = report(RuntimeError(f"{LEAKS[0]} signed with {SECRET}"))
    (kept,) = tmp_path.rglob("*.txt")
    assert SECRET not in said + kept.read_text()


def test_no_secret_of_the_environment_is_said(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("x")
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "RAY_AUTH_TOKEN",
        "HF_TOKEN",
        "MY_API_KEY",
        "db_password",
    ):
        monkeypatch.setenv(name, SECRET)
        assert str(UserError(f"signed with {SECRET}: no")) == "signed with ***: no"
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert str(tmp_path) in str(UserError(f"cannot read {tmp_path / 'token'}"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false-or-true")
    assert "false-or-true" in str(UserError("false-or-true"))


def test_tune_keeps_no_password_of_an_mlflow_server(monkeypatch, tmp_path):
    """Tune pickles its loggers into the sweep's folder."""
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    sweep = SimpleNamespace(name="s")
    kept = {}
    for server in ("http://user:pass@host:5000", "http://host:5000"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
        logger = runner._mlflow(sweep, Home(tmp_path))
        assert logger.tracking_uri == server
        kept[server] = logger.__getstate__()["tracking_uri"]
    assert list(kept.values()) == [None, "http://host:5000"]


def test_results_hold_nothing_of_the_environment(tmp_path, monkeypatch):
    from tests.orchestrator.test_storage import run

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    config = load(
        None, ["data.limit=400", "data.clients=4", "model=linear", "rounds=1", "cohort=2"]
    )
    run(config, tmp_path / "run")
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert SECRET.encode() not in path.read_bytes(), path
