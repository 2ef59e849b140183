"""``fedorch run --seeds``: the same runs as one by one, gone on with, compared."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedorch as facade
from orchestrator.analysis.compared import Runs
from orchestrator.cli.app import app
from orchestrator.cli.running import Series, run_here, seed_folders, seeds_of
from orchestrator.errors import Diverged, UserError
from orchestrator.results.members import members
from orchestrator.results.own_code import files_sha256
from orchestrator.results.run_folder import RunFolder
from tests.configs import small
from tests.running import run_into

SMALL = [
    "--set", "model=linear", "--set", "rounds=2", "--set", "data.clients=4", "--set", "cohort=2",
    "--set", "local.steps=1", "--set", "data.limit=400", "--in-process",
]  # fmt: skip


def fedorch(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(found.exception, UserError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def sha(folder):
    return json.loads((folder / "result.json").read_text())["weights_sha256"]


def test_seeds_are_run_one_by_one_and_gone_on_with(tmp_path):
    said = fedorch("run", *SMALL, "--seeds", "3,5", "--out", tmp_path / "all")
    assert "2 seeds finished" in said
    assert "seeds 3, 5" in said
    fedorch("run", *SMALL, "--set", "seed=5", "--out", tmp_path / "five")
    assert sha(tmp_path / "all" / "seed-5") == sha(tmp_path / "five")
    with pytest.raises(UserError, match="five is the folder of one run"):
        fedorch("run", *SMALL, "--seeds", "3,5", "--out", tmp_path / "five")
    before = (tmp_path / "all" / "seed-3" / "result.json").stat().st_mtime_ns
    # killed before its first checkpoint: what is there is the config
    for file in (tmp_path / "all" / "seed-5").iterdir():
        if file.is_file() and file.name != "config.yaml":
            file.unlink()
    said = fedorch("run", *SMALL, "--seeds", "3-6", "--out", tmp_path / "all")
    assert "4 seeds finished" in said
    assert (tmp_path / "all" / "seed-3" / "result.json").stat().st_mtime_ns == before
    assert sha(tmp_path / "all" / "seed-5") == sha(tmp_path / "five")
    ends = [
        pd.read_parquet(tmp_path / "all" / f"seed-{k}" / "rounds.parquet")["test_accuracy"].iloc[-1]
        for k in range(3, 7)
    ]
    compared = fedorch("compare", tmp_path / "all")
    mean, error = pd.Series(ends).mean(), pd.Series(ends).sem()
    assert f"{mean:.4f} ± {error:.4f}" in compared
    with pytest.raises(UserError, match="seed-3: the run there is of another config"):
        fedorch("run", *SMALL, "--set", "local.lr=0.2", "--seeds", "3", "--out", tmp_path / "all")
    (tmp_path / "other" / "seed-0").mkdir(parents=True)
    (tmp_path / "other" / "seed-0" / "mine.txt").write_text("")
    with pytest.raises(UserError, match="not empty"):
        fedorch("run", *SMALL, "--seeds", "0", "--out", tmp_path / "other")


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "3-1", "1,1", "0-1000", "1.5", "9" * 40, "²"]
)
def test_what_are_no_seeds(text):
    with pytest.raises(UserError, match="--seeds"):
        seeds_of(text)


def test_what_are_seeds():
    assert seeds_of("0-2, 7") == [0, 1, 2, 7]


def test_runs_go_further_with_the_bits_of_longer_ones(tmp_path):
    """By --resume, by the command with more rounds, and from Python; and nothing else is another."""
    work = SMALL  # the last round has a checkpoint, whatever is every so often
    fedorch("run", *work, "--set", "rounds=5", "--out", tmp_path / "long")
    wanted = sha(tmp_path / "long")
    fedorch("run", *work, "--out", tmp_path / "one")
    further = ("run", "--resume", tmp_path / "one", "--in-process")
    said = fedorch(*further, "--set", "rounds=4")
    assert "continuing after round 2" in said
    run = facade.run(resume=tmp_path / "one", rounds=5, verbose=False)
    assert run.result["weights_sha256"] == wanted
    assert (tmp_path / "one" / "config.yaml").read_text() == (
        tmp_path / "long" / "config.yaml"
    ).read_text()
    for setting, why in (("rounds=4", "none is taken back"), ("local.lr=1", "only rounds, stop")):
        with pytest.raises(UserError, match=why):
            fedorch(*further, "--set", setting)
    assert run.config.rounds == 5
    assert sha(tmp_path / "one") == wanted
    seeds = (*work, "--seeds", "0,1", "--out", tmp_path / "all")
    fedorch("run", *seeds)
    assert "continuing after round 2" in fedorch("run", *seeds, "--set", "rounds=5")
    assert sha(tmp_path / "all" / "seed-0") == wanted
    with pytest.raises(UserError, match="of another config"):
        fedorch("run", *seeds, "--set", "rounds=3")


@pytest.mark.parametrize(
    "settings",
    [
        ["evaluation.every=3"],
        ["evaluation.every=3", "stop={test_accuracy: 0.01}"],
        ["evaluation.every=2"],
        ["evaluation.every_steps=3", "local.steps=2"],
        ["evaluation.every_steps=3", "local.steps=2", "stop={test_accuracy: 0.9}"],
        ["evaluation.every_steps=2", "local.steps=3", "compression.uplink=qsgd"],
    ],
    ids=" ".join,
)
def test_runs_that_go_further_have_the_tables_of_longer_ones(tmp_path, settings):
    """What was found of the last round stayed, or stood in the place of what was seen within it."""
    config = small(*settings, "rounds=5")
    long, two = RunFolder(tmp_path / "long"), RunFolder(tmp_path / "two")
    run_into(long, config)
    run_into(two, small(*settings, "rounds=2"))
    assert two.rounds()["test_accuracy"].notna().iloc[-1]
    run_into(two, two.config([], ["rounds=5"]), resuming=True)
    for tables in ([one.rounds() for one in (long, two)], [one.clients() for one in (long, two)]):
        kept = [
            table[[c for c in table if not c.startswith("seconds")]].reset_index(drop=True)
            for table in tables
        ]
        pd.testing.assert_frame_equal(*kept)
    results = [one.result() for one in (long, two)]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]
    assert results[0]["rounds"] == results[1]["rounds"]


def test_seeds_are_for_new_runs(tmp_path):
    with pytest.raises(UserError, match="do not go with it"):
        fedorch("run", "--seeds", "0", "--resume", tmp_path)


def test_a_series_goes_on_from_another_machine(tmp_path, monkeypatch):
    """It looked for a finished seed's results among copies that this one did not have."""
    place = f"file://{tmp_path}/s"
    for machine, seeds in (("a", "0"), ("b", "0,1"), ("a", "0,1,2")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        said = fedorch("run", *SMALL, "--seeds", seeds, "--out", place)
    assert "3 seeds finished" in said
    assert sha(tmp_path / "s" / "seed-1")
    assert members(place) == [f"{place}/seed-{seed}" for seed in range(3)]
    assert members(f"{place}/seed-0") == [f"{place}/seed-0"]
    with pytest.raises(UserError, match="write %23"):
        members(f"{place}#1")
    with pytest.raises(UserError, match="two slashes"):
        members(str(Path(place)))


def test_a_setting_that_was_unset_is_another_config(tmp_path):
    """Whatever had been None was taken for what the run there says."""
    fedorch("run", *SMALL, "--set", "local.clip=0.5", "--seeds", "0", "--out", tmp_path / "s")
    with pytest.raises(UserError, match="of another config"):
        fedorch("run", *SMALL, "--seeds", "0", "--out", tmp_path / "s")


@pytest.mark.parametrize("when", ["in its last round", "at once"])
def test_a_series_is_stopped_whenever_it_is_asked_to(tmp_path, when):
    """In a seed's last round nobody had heard of it; between two it ended without a word."""
    configs = seed_folders({seed: small(f"seed={seed}", "rounds=1") for seed in range(3)})
    ran = []

    def one(config, folder, begun, interrupts):
        ran.append(config.seed)
        if config.seed == 1 and when == "at once":
            raise KeyboardInterrupt
        result = run_here(config, folder, begun, interrupts)
        if config.seed == 1:
            interrupts.append(2)
        return result

    finished = Series(configs, str(tmp_path)).run(one)
    assert ran == [0, 1]
    assert len(finished) == (1 if when == "at once" else 2)


def test_a_seed_that_diverges_does_not_end_the_others(tmp_path, capsys):
    """They were never run, and nothing said which had."""
    configs = seed_folders({seed: small(f"seed={seed}", "rounds=1") for seed in range(3)})

    def one(config, folder, begun, interrupts):
        bad = ["algorithm={name: qfedavg, q: 1000}"] if config.seed == 1 else []
        return run_here(small(f"seed={config.seed}", "rounds=1", *bad), folder, begun, interrupts)

    series = Series(configs, str(tmp_path))
    finished = series.run(one)
    assert [folder.path.name for folder in finished] == ["seed-0", "seed-2"]
    with pytest.raises(Diverged, match=r"1 of 3 runs in .* diverged: seed-1$"):
        series.require_whole(finished)
    with pytest.raises(KeyboardInterrupt):
        series.require_whole(finished[:1])
    assert "seed-1: round 1: the server's model became" in capsys.readouterr().err.replace(
        "\n", " "
    )
    done = [RunFolder(tmp_path / f"seed-{seed}").ending()["status"] for seed in range(3)]
    assert done == ["finished", "failed", "finished"]


def test_a_second_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def now(*about, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.rounds.drive.drive", now)
    found = CliRunner().invoke(app, ["run", *SMALL, "--out", str(tmp_path / "run")])
    assert found.exit_code == 130
    assert f"fedorch run --resume {tmp_path / 'run'}" in found.output.replace("\n", "")


def test_a_round_is_judged_as_the_config_says_now(tmp_path):
    """Of a run that goes on, the last round was unjudged where the new config judges it, and judged
    where one that had not ended would not have been.
    """
    for begun, then in (
        (("rounds=2", "evaluation.every=9"), ("rounds=3", "evaluation.every=2")),
        (("rounds=3", "evaluation.every=9", "stop={steps_total: 4}"), ("stop={steps_total: 99}",)),
    ):
        place = tmp_path / begun[-1].replace("/", "")
        ways = (RunFolder(place / "a"), RunFolder(place / "b"))
        least = ("local.steps=2", "track=jsonl")
        run_into(ways[0], small(*begun, *least))
        run_into(ways[0], ways[0].config([], then), resuming=True)
        run_into(ways[1], small(*begun, *then, *least))
        one, other = (way.rounds()["test_accuracy"] for way in ways)
        assert one.equals(other)
        tracked = [(way.path / "metrics.jsonl").read_text().splitlines() for way in ways]
        judged = [["test_accuracy" in json.loads(line) for line in lines] for lines in tracked]
        assert judged[0] == judged[1] == one.notna().tolist()


def test_seeds_are_of_one_partition_and_one_policy(tmp_path):
    """Files that were written anew in between gave one mean over both."""
    file = tmp_path / "part.npz"

    def written(first):
        rows = np.random.default_rng(first).permutation(10_000)
        np.savez(
            file, n_train=np.full(4, 80), train_idx=rows[:320], n_test=np.full(4, 20),
            test_idx=rows[320:400], server_test_idx=rows[400:440],
        )  # fmt: skip

    own = [*SMALL[:-1], "--set", f"data.partition={{name: file, file: {file}}}", "--in-process"]
    own += ["--set", "data.pool=all", "--set", "data.limit=null"]
    written(0)
    fedorch("run", *own, "--seeds", "0-1", "--out", tmp_path / "all")
    fedorch("run", *own, "--seeds", "2", "--out", tmp_path / "others")
    fedorch("run", *own, "--seeds", "0-2", "--out", tmp_path / "all")
    assert sha(tmp_path / "all/seed-2") == sha(tmp_path / "others/seed-2")
    written(100)
    with pytest.raises(UserError, match="of other contents of the files that its config names"):
        fedorch("run", *own, "--seeds", "0-3", "--out", tmp_path / "all")
    fedorch("run", *own, "--seeds", "3,4", "--out", tmp_path / "others2")
    places = [*(tmp_path / "all").glob("seed-*"), *(tmp_path / "others2").glob("seed-*")]
    runs = Runs.read([RunFolder(one) for one in places])
    assert len(runs.columns) == 2
    assert "other contents of the files that their configs name" in runs.code_said


def test_files_are_told_apart_by_what_is_in_them(tmp_path, monkeypatch):
    """Of a dataset's the data tell; a folder of images called imagenet is no file of weights."""
    (tmp_path / "data" / "imagenet").mkdir(parents=True)
    (tmp_path / "data" / "imagenet" / "picture").write_bytes(b"1")
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path / "data"))
    assert not files_sha256(small("model={name: torchvision, weights: imagenet}"))
    weights = tmp_path / "w.pt"
    digests = set()
    for content in (b"1", b"2"):
        weights.write_bytes(content)
        digests.add(files_sha256(small(f"model={{name: torchvision, weights: {weights}}}")))
    assert len(digests) == 2
    table = tmp_path / "t.csv"
    table.write_text("a,label\n1,2\n")
    assert not files_sha256(small(f"data.dataset={{name: csv, path: {table}}}"))
