"""Flower's simulation on so many CPUs, a client on each: ``with_flower.py FOLDER CPUS``."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.networks import held, network, train
from benchmarks.peers.work import read_work, tell

FOLDER = Path(sys.argv[1])


class Timed(FedAvg):
    """Federated averaging that looks at the clock as each round begins."""

    def __init__(self, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.times: list[float] = []

    def configure_train(self, *about: Any, **more: Any) -> Any:
        """A round begins."""
        self.times.append(time.perf_counter())
        return super().configure_train(*about, **more)


client, server = ClientApp(), ServerApp()
seconds: list[float] = []


@client.train()
def fit(message: Message, context: Context) -> Message:
    """A client's part of a round."""
    # not kept in this module: Ray sends a copy of it with each message
    work, module, x, y = held(FOLDER)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    k = int(context.node_config["partition-id"])
    rows = slice(k * work.rows, (k + 1) * work.rows)
    train(module, x[rows], y[rows], work)
    reply = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": work.rows}),
    }
    return Message(content=RecordDict(reply), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """All rounds."""
    work = read_work(FOLDER)
    strategy = Timed(
        fraction_train=work.cohort / work.clients, fraction_evaluate=0.0,
        min_train_nodes=work.cohort, min_available_nodes=work.clients,
    )  # fmt: skip
    strategy.start(grid, ArrayRecord(network(work).state_dict()), num_rounds=work.rounds + 1)
    times = [*strategy.times, time.perf_counter()]
    seconds.extend(b - a for a, b in itertools.pairwise(times[1:]))


if __name__ == "__main__":
    cpus = int(sys.argv[2])
    try:
        run_simulation(
            server, client, read_work(FOLDER).clients, "ray",
            {"init_args": {"num_cpus": cpus}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )  # fmt: skip
        tell(seconds)
    except Exception as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        os._exit(1)  # the server's thread would wait for its clients for ever
