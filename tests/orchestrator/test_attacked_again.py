"""What an hour of attack found that no schema leads to: devices, changed files, callers' modes."""

import os
import re
import stat
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fedorch
from algorithms.parts.losses import CrossEntropy
from orchestrator import files
from orchestrator.analysis.names import require_same_data
from orchestrator.cli import live
from orchestrator.cli.evaluating import evaluation
from orchestrator.config import load
from orchestrator.data.samples import array_of
from orchestrator.errors import UserError
from orchestrator.pages import library
from orchestrator.results.contents import CONFIG
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import TrainedModel
from orchestrator.rounds.drive import write_results
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.evaluation import per_sample
from orchestrator.training.modes import own_modes
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish, run_into

TABLE = """place,a,b,y
{}"""


def csv(path, flip=False):
    g = np.random.default_rng(0)
    rows = [
        f"{k},{g.normal():.4f},{g.normal():.4f},{'no' if (n + flip) % 2 else 'yes'}"
        for k in "uvw" for n in range(20)
    ]  # fmt: skip
    path.write_text(TABLE.format("\n".join(rows)))


def of_table(path, **settings):
    return load(None, [
        f"data.dataset={{name: csv, path: {path}, label: y, client: place}}", "data.partition=natural",
        "data.clients=3", "cohort=2", "model=linear", "rounds=1",
        *(f"{key}={value}" for key, value in settings.items()),
    ])  # fmt: skip


def test_what_passes_on_is_written_into(tmp_path):
    """A pipe stays one, and so does a device, for whoever may be root; a link to what the process
    has open leads there."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    with pytest.raises(UserError, match="cannot write"):
        files.write_text(pipe, "nobody reads")
    reader.start()
    while True:
        try:
            files.write_text(pipe, "hello")
            break
        except UserError:  # the reader has not opened it yet
            continue
    reader.join()
    assert got == ["hello"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with (tmp_path / "open").open("w") as opened:
        link = tmp_path / "link"
        link.symlink_to(f"/proc/self/fd/{opened.fileno()}")
        files.write_text(link, "through")
    assert link.is_symlink()
    assert (tmp_path / "open").read_text() == "through"
    files.write_text(tmp_path / "null", "x")
    before = os.stat(os.devnull).st_mode
    (tmp_path / "to-null").symlink_to(os.devnull)
    files.write_text(tmp_path / "to-null", "x")
    assert os.stat(os.devnull).st_mode == before


def test_a_config_changed_in_mid_run_is_not_sealed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = small("rounds=1")
    experiment = Experiment(config)
    folder.open(experiment.config)
    experiment.step()
    path = folder.path / CONFIG
    path.write_text(path.read_text().replace("lr: ", "lr: 1"))
    result = write_results(experiment, folder, report=False)
    assert "config.yaml was changed" in result["notes"][-1]
    assert RunFolder.viewed(folder.place).config().dump() == experiment.config.dump()


def overwriting(loss):
    """The same loss, which writes into what it is given; no class, which would take its name."""

    def per_sample(outputs, targets):
        losses = loss.per_sample(outputs, targets)
        targets.zero_()
        outputs.zero_()
        return losses

    return SimpleNamespace(per_sample=per_sample, correct=loss.correct)


def test_a_loss_that_writes_into_targets_does_not_judge(monkeypatch):
    run = finish(small("rounds=1"))
    net, w, b = run.net, run.algorithm.w, run.algorithm.buffers
    run.world.outputs = True
    want = per_sample(run.world, net, w, b, run.data.test_rows)
    run.world.loss = overwriting(CrossEntropy())
    got = per_sample(run.world, net, w, b, run.data.test_rows)
    for ours, theirs in zip(got, want, strict=True):
        assert torch.equal(ours, theirs)


def test_seeds_of_changed_files_are_not_one_mean(tmp_path):
    """Nor are they trained on as if they were."""
    runs = []
    for seed, flip in ((0, False), (1, True)):
        csv(tmp_path / "a.csv", flip)
        runs.append(RunFolder(tmp_path / str(seed)))
        run_into(runs[-1], of_table(tmp_path / "a.csv", seed=seed))
    with pytest.raises(UserError, match="its data are not those of"):
        require_same_data(runs, [run.result() for run in runs])


def test_a_model_is_judged_by_its_own_data_or_by_others_and_says_which(tmp_path, capsys):
    csv(tmp_path / "a.csv")
    folder = RunFolder(tmp_path / "run")
    run_into(folder, of_table(tmp_path / "a.csv"))
    own, _ = evaluation(folder, [])
    assert own["test_accuracy"] == folder.result()["metrics"]["test_accuracy"]
    trained = r"32 of 60 test rows are rows that the run trained on"  # two clients of three
    assert not re.search(trained, capsys.readouterr().err)
    _, judged = evaluation(folder, [f"data.dataset.test={tmp_path / 'a.csv'}"])
    assert judged == 60
    assert re.search(trained, capsys.readouterr().err)
    other = f"data.dataset.path={tmp_path / 'a.csv'}"
    record, judged = evaluation(folder, [other], every=True)
    assert judged == 60
    assert re.search(trained, capsys.readouterr().err)
    assert set(record) == {"test_accuracy", "test_loss"}
    (tmp_path / "few.csv").write_text("".join((tmp_path / "a.csv").open().readlines()[:4]))
    evaluation(folder, ["data.validation.server=0.3"])
    assert re.search(r"\d+ of \d+ validation rows are rows", capsys.readouterr().err)
    few = f"data.dataset.path={tmp_path / 'few.csv'}"
    (tmp_path / "a.csv").rename(tmp_path / "away.csv")
    assert evaluation(folder, [few], every=True)[1] == 3
    assert "whether the run trained on such rows cannot be said: " in capsys.readouterr().err
    (tmp_path / "away.csv").rename(tmp_path / "a.csv")
    head, *lines = (tmp_path / "a.csv").open().readlines()
    one_each = list({line.rstrip().rpartition(",")[2]: line for line in lines}.values())[:2]
    (tmp_path / "two.csv").write_text("".join([head, *one_each]))
    two = f"data.dataset.path={tmp_path / 'two.csv'}"
    assert evaluation(folder, [two], every=True)[1] == 2
    with pytest.raises(UserError, match="training rows; --all-rows judges"):
        evaluation(folder, [few])
    with pytest.raises(UserError, match="--all-rows: of the run's own data"):
        evaluation(folder, [], every=True)
    for setting in ("model=mlp", "seed=4", "loss=focal", "attack=sign_flip"):
        with pytest.raises(UserError, match="only data and evaluation can be set"):
            evaluation(folder, [setting])
    csv(tmp_path / "a.csv", flip=True)
    with pytest.raises(UserError, match="are not those that the run had"):
        evaluation(folder, [])
    capsys.readouterr()
    evaluation(folder, [few], every=True)
    assert "be said: the files of its own data are others by now" in capsys.readouterr().err
    code, text = here("predict", folder.place, tmp_path / "a.csv", "--file", tmp_path / "a.csv")
    assert (code, "one of the files that are asked about" in " ".join(text.split())) == (2, True)


def test_clients_of_a_table_keep_their_names(tmp_path):
    csv(tmp_path / "a.csv")
    folder = RunFolder(tmp_path / "run")
    run_into(folder, of_table(tmp_path / "a.csv"))
    page = (folder.path / "report.html").read_text()
    assert all(f"<td>{name}</td>" in page for name in "uvw")
    code, text = here(
        "data", "show", "--set", f"data.dataset={{name: csv, path: {tmp_path}/a.csv, label: y, client: place}}",
        "--set", "data.partition=natural", "--set", "data.clients=3", "--set", "cohort=2",
    )  # fmt: skip
    assert code == 0, text
    assert all(name in text for name in ("0 u", "1 v", "2 w", "yes", "no"))


def test_masked_arrays_are_no_data():
    whole = np.ma.masked_array([1.0, 2.0], [False, False])
    assert array_of(whole, "x").tolist() == [1.0, 2.0]
    with pytest.raises(UserError, match="x: some of it is masked"):
        array_of(np.ma.masked_array([1.0, 2.0], [False, True]), "x")


@pytest.mark.parametrize("mode", [
    lambda: torch.autocast("cpu", torch.bfloat16), torch.no_grad, torch.inference_mode,
], ids=["autocast", "no_grad", "inference_mode"])  # fmt: skip
def test_a_caller_s_modes_do_not_reach_into_a_run(mode):
    want = finish(small("rounds=2")).weights_sha256()
    with mode():
        experiment = Experiment(small("rounds=2"))
        experiment.step()
        experiment.step()
    assert experiment.weights_sha256() == want


def test_a_caller_s_default_type_comes_back():
    torch.set_default_dtype(torch.float64)
    try:
        with own_modes():
            assert torch.get_default_dtype() == torch.float32
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("algorithm", ["local", "lp_proj"])
def test_where_all_models_stay_with_clients_there_is_none_to_use(algorithm, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=1", f"algorithm={algorithm}"))
    with pytest.raises(UserError, match="leaves every model with its client"):
        TrainedModel(folder)


def test_token_ids_are_refused_by_what_multiplies(tmp_path):
    np.savez(tmp_path / "ids.npz", x=np.arange(60, dtype=np.int32).reshape(20, 3) % 7,
             y=np.arange(20) % 2)  # fmt: skip
    for model in ("linear", "mlp"):
        with pytest.raises(UserError, match="token ids; take one that begins with an embedding"):
            Experiment(load(None, [f"data.dataset={{name: npz, path: {tmp_path}/ids.npz}}",
                                   "data.clients=2", "cohort=2", f"model={model}"]))  # fmt: skip


def test_a_weight_of_zeros_teaches_nothing():
    with pytest.raises(UserError, match="weight is 0 for every class"):
        Experiment(small(f"loss={{name: cross_entropy, weight: {[0.0] * 10}}}"))


class Reading(torch.nn.Linear):
    """Asks for a value in its forward pass, which torch cannot batch over clients."""

    def forward(self, x):
        out = super().forward(x)
        return out if float(out.detach().sum()) < 1e9 else out * 0


class Halving(torch.nn.Linear):
    """Changes a gradient on its way back, which is lost where clients are batched."""

    def forward(self, x):
        out = super().forward(x)
        if out.requires_grad:
            out.register_hook(lambda g: g / 2)
        return out


def test_layers_used_twice_tied_and_asking_for_values():
    """Trained as one by one, and, where that is all that can be, so."""
    torch.manual_seed(0)
    layer, one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    other.weight = one.weight
    last = torch.nn.Linear(4, 2)
    twice = torch.nn.Sequential(layer, torch.nn.Tanh(), layer, torch.nn.Tanh(), last)
    tied = torch.nn.Sequential(one, torch.nn.Tanh(), other, torch.nn.Tanh(), last)
    asking = torch.nn.Sequential(layer, Reading(4, 2))
    hooked = torch.nn.Sequential(Halving(4, 4), torch.nn.Tanh(), last)
    x, y = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2
    for net, batched in ((twice, True), (tied, True), (asking, False), (hooked, False)):
        found = []
        for how in ("auto", "sequential"):
            run = fedorch.Experiment(
                model=net, data=(x, y, np.arange(40) % 4), cohort=2, rounds=2,
                **{"local.execution": how},
            )  # fmt: skip
            assert run.config.local.execution == (
                "sequential" if how == "sequential" or not batched else "vectorized"
            )
            run.run()
            found.append(run.weights)
        torch.testing.assert_close(*found)


def test_outputs_of_a_comparison_are_files_of_their_own(tmp_path):
    for seed in (0, 1):
        run_into(RunFolder(tmp_path / str(seed)), small("rounds=1", f"seed={seed}"))
    runs = tmp_path / "0", tmp_path / "1"
    code, text = here("compare", *runs, "--file", tmp_path / "t.md")
    assert code == 0, text
    assert "| test accuracy |" in (tmp_path / "t.md").read_text()
    for other in ("--plot", "--file"), ("--report", "--file"):
        name = tmp_path / ("c.pdf" if "--plot" in other else "c.html")
        code, text = here("compare", *runs, other[0], name, other[1], name)
        assert (code, "are one file" in " ".join(text.split())) == (2, True)
    with pytest.raises(UserError, match="give names of metrics, not 3"):
        fedorch.compare(runs).plot(3)
    with pytest.raises(UserError, match="give names of metrics, not None"):
        fedorch.open(runs[0]).plot(None)


def test_calls_from_python_are_asked_for_what_they_take():
    layer = torch.nn.Linear(4, 4)
    x, y = np.zeros((80, 4), np.float32), np.arange(80) % 2
    run = fedorch.Experiment(model=torch.nn.Linear(4, 2), data=(x, y, y), cohort=2)
    with pytest.raises(UserError, match=r"give its \.module"):
        fedorch.Experiment(model=torch.nn.DataParallel(layer), data=(x, y), cohort=2)
    for wrong in (0.5, True, -1, "2"):
        with pytest.raises(UserError, match="rounds: give a whole number"):
            run.run(wrong)
    for called, wrong in (("out", b"x"), ("address", 3)):
        with pytest.raises(UserError, match=f"{called}: give a text"):
            fedorch.run(**{called: wrong})


def test_without_addresses_a_picture_is_a_sentence(monkeypatch, tmp_path):
    """V8 would end the process, by a signal."""
    for limit, refused in ((8 << 30, True), (200 << 30, False), (-1, False)):
        monkeypatch.setattr("resource.getrlimit", lambda what, limit=limit: (limit, limit))
        with pytest.raises(UserError, match="ulimit -v") if refused else nullcontext():
            library._require_room()


def test_a_browser_that_goes_away_is_not_told_of(capsys):
    page = SimpleNamespace(now=lambda: "x" * 10_000_000)
    with live.answering(page, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        import socket

        port = server.server_address[1]
        for host, status in (("127.0.0.1", b"200"), ("evil.example", b"403")):
            with socket.create_connection(("127.0.0.1", port)) as browser:
                browser.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                assert status in browser.recv(100)
        server.shutdown()
    assert "Traceback" not in capsys.readouterr().err
