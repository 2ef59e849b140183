"""Small sweeps, and an entry as papers have it."""

import json
import shutil
from dataclasses import replace

from orchestrator.results.run_folder import RunFolder
from sweeps.entry import Budget, Claim, Column, Entry, Published, Tuning
from sweeps.plan import Sweep
from sweeps.reproduction import Reproduction
from sweeps.results import by_trial
from sweeps.status import Status

SMALL = [
    "data.limit=400",
    "data.clients=6",
    "model=linear",
    "rounds=3",
    "cohort=4",
    "local.steps=3",
]


def sweep(**changes):
    usual = {"metric": "test_accuracy", "choose_on": "test", "at_once": 2, "loggers": []}
    return Sweep.model_validate({"set": SMALL, **usual, **changes})


def results(folder):
    return {
        k: json.loads((r.folder.path / "result.json").read_text())
        for k, r in by_trial(folder).items()
    }


ENTRY = Entry(
    id="test/table1",
    title="two methods on a linear model",
    rows={"FedAvg": ("algorithm=fedavg",), "FedProx": ("algorithm={name: fedprox, mu: 0.1}",)},
    columns={
        "mean": Column("client_accuracy_mean", scale=100),
        "worst": Column("client_accuracy_worst", scale=100),
        "few rounds": Column("test_accuracy", ("rounds=2",)),
        "rounds to 99 %": Column(
            "test_accuracy", statistic="rounds_to", target=0.99, better="low", digits=0
        ),
    },
    base=tuple(SMALL),
    budgets={
        "smoke": Budget(seeds=(0,)),
        "reduced": Budget(("local.steps=2",), (0, 1, 2), reduced="fewer steps"),
    },
    published={
        ("FedAvg", "mean"): Published(50.0, 1.0),
        ("FedProx", "mean"): Published(None, note="failed"),
    },
    claims=(Claim("FedAvg above FedProx", "FedAvg", ("FedProx",), ("mean", "worst")),),
    tuning=Tuning(
        {"FedAvg": {"local.lr": (1e-9, 0.1)}, "FedProx": {"local.lr": (0.1, 1e-9)}},
        Column("test_accuracy"),
        seeds=(77,),
        settings=("rounds=2",),
    ),
)
REDUCED = Reproduction(ENTRY, "reduced")


def tuned(one, folder):
    """What the trials of the first stage in ``folder`` have chosen."""
    return one.choose(one.searches(dict.fromkeys(one.candidates(), folder)), folder)


def not_yet(trials):
    """Make a sweep one in which some trials (their folders) have not ended."""
    for path in trials:
        status = Status.read(path.parents[1])
        left = tuple(name for name in status.trials if name != path.name)
        assert left != status.trials
        replace(status, trials=left).write(RunFolder(path.parents[1]))
        shutil.rmtree(path)
