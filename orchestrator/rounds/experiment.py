"""Composition root: a config becomes data, network, algorithm and clients, and is stepped one round
at a time.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algorithms.algorithm import Algorithm
from algorithms.contract import Cohort
from algorithms.local import GivenModel
from algorithms.part import nearest
from algorithms.setting import Setting
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.federation import Federation
from orchestrator.clients.plane import InProcess, Plane
from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.config.resolve import resolve
from orchestrator.data.federated import FederatedData
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.rounds.metrics import over_clients, over_rows
from orchestrator.training.evaluation import per_client
from orchestrator.training.lane import BUFFERS
from orchestrator.training.world import World

Record = dict[str, float]


class Experiment:
    """One run: everything that is needed to do rounds, and nothing about files, Ray or the
    terminal.
    """

    def __init__(
        self,
        config: Config,
        plane: Callable[[World], Plane] = InProcess,
        data: FederatedData | None = None,
    ) -> None:
        """Build the parts; raises UserError for data or a model that do not fit.

        ``plane`` runs the clients; ``data`` is what the config's data section and seed give, where
        it is at hand.
        """
        torch.set_num_threads(config.resources.threads)
        self.data = FederatedData.build(config.data, config.seed) if data is None else data
        samples = self.data.samples
        try:
            self.net = Net.of(config.model, samples.shape, samples.classes, config.seed)
        except ValueError as error:
            raise UserError(f"config: {error}") from error
        self.config = config = resolve(config, self.net)
        self.algorithm = self._algorithm()
        try:
            self.adversary = Adversary.of(config.attack, config.seed, config.data.clients)
        except ValueError as error:
            raise UserError(f"config: {error}") from error
        self.world = World(
            self.data, config.model, config.local, config.buffers, config.seed,
            config.resources.threads,
            self.adversary.mislabelled, config.compression.uplink, config.evaluation.gradient_norms,
        )  # fmt: skip
        self.federation = Federation(
            plane(self.world), self.data, config.local,
            block=config.local.block or 1, vectorized=config.local.execution == "vectorized",
            buffers=config.buffers, non_finite=config.non_finite, adversary=self.adversary,
            judge_local=config.evaluation.local_models and self._keeps_no_models(),
            downlink=config.compression.downlink, seed=config.seed,
            minimum_cohort=config.resources.minimum_cohort,
        )  # fmt: skip
        self.t = 0
        self.records: list[Record] = []
        self.client_rows: list[dict[str, np.ndarray]] = []
        self._tests = self._test_plan()

    @property
    def finished(self) -> bool:
        return self.t >= self.config.rounds or self.reached

    @property
    def reached(self) -> bool:
        """Whether the last round's record meets one of the config's ``stop`` conditions."""
        last = self.records[-1] if self.records else {}
        return self._ends(last)

    def _ends(self, record: Record) -> bool:
        return any(
            Goal.read(goal).met(record.get(metric, math.nan))
            for metric, goal in self.config.stop.items()
        )

    def step(self) -> Record:
        """Run one round and return its record.

        Raises UserError if the run cannot go on: a diverged update, lost clients, a misspelt metric
        in ``stop``.
        """
        begun = time.perf_counter()
        t = self.t + 1
        federation = self.federation
        sent_before = federation.ledger.down.sum(), federation.ledger.up.sum()
        evaluated = t % self.config.evaluation.every == 0 or t == self.config.rounds
        federation.begin_round(t, evaluated)
        extra = self.algorithm.round(t, federation)
        done = time.perf_counter() - begun
        log = federation.log
        train, transfer, asked = log.train_seconds, log.transfer_seconds, log.evaluate_seconds
        record: Record = {
            "round": t,
            **self._training_metrics(),
            **self._influence(),
            **self.algorithm.notes,
            **extra,
        }
        record["steps_total"] = self._steps_before() + float(
            log.diagnostics["steps"].max(initial=0)
        )
        evaluating = time.perf_counter()
        if evaluated or self._ends(record):
            record |= self._evaluate(t)
        record |= {
            "bytes_down": float(federation.ledger.down.sum() - sent_before[0]),
            "bytes_up": float(federation.ledger.up.sum() - sent_before[1]),
            "bytes_questions": float(log.question_bytes),
            "seconds": time.perf_counter() - begun,
            "seconds_train": train,
            "seconds_transfer": transfer,
            "seconds_aggregate": max(0.0, done - train - transfer - asked),
            "seconds_evaluate": asked + time.perf_counter() - evaluating,
        }
        self.t = t
        self.records.append(record)
        if evaluated:
            self._know_what_stops([name for name in self.config.stop if name not in record])
        return record

    def _know_what_stops(self, missing: list[str]) -> None:
        """Raise UserError for a metric in ``stop`` that no round has reported, but for its
        spelling.
        """
        reported = sorted({name for record in self.records for name in record}) if missing else []
        for name in missing:
            if name not in reported and get_close_matches(name, reported, 1, 0.7):
                raise UserError(
                    f"config: stop: the rounds do not report {name!r}; {nearest(name, reported)}"
                )

    def close(self) -> None:
        """Release the clients."""
        self.federation.plane.close()

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint must hold."""
        return {
            "science": self.science(),
            "algorithm": self.algorithm.state(),
            "clients": self.federation.states,
            "optimizer": self.federation.optimizer,
            "replicas": self.federation.replicas,
            "heard": self.federation.heard,
            "ledger": self.federation.ledger.state(),
            "records": self.records,
            "client_rows": self.client_rows,
        }

    def science(self) -> str:
        """Digest of the part of the config that decides what a round computes."""
        free = {"name", "rounds", "stop", "evaluation", "checkpoint", "resources", "energy"}
        return digest(
            {
                **self.config.model_dump(mode="json", exclude=free),
                "threads": self.config.resources.threads,
            }
        )

    def restore(self, t: int, state: Mapping[str, Any]) -> None:
        """Continue after round ``t`` from a checkpoint's state."""
        self.algorithm.restore(state["algorithm"])
        self.federation.states = {int(k): v for k, v in state["clients"].items()}
        self.federation.optimizer, self.federation.replicas = state["optimizer"], state["replicas"]
        self.federation.heard = state["heard"]
        self.federation.ledger.restore(state["ledger"])
        self.records, self.client_rows = list(state["records"]), list(state["client_rows"])
        self.t = t

    def weights_sha256(self) -> str:
        """Digest of the server's model (and batch-norm statistics)."""
        return digest({"w": self.algorithm.model(), "buffers": self.algorithm.buffers})

    def state_sha256(self) -> str:
        """Digest of the whole server state and every client's state."""
        return digest({"algorithm": self.algorithm.state(), "clients": self.federation.states})

    def _algorithm(self) -> Algorithm:
        config, net = self.config, self.net
        heldout = len(self.data.heldout_rows)
        setting = Setting(
            config.seed,
            self.data.train.sizes,
            net.spec,
            config.composition(),
            heldout,
            net.buffer_spec,
        )
        try:
            return config.algorithm.start(setting, net.initial.clone(), net.initial_buffers.clone())
        except ValueError as error:
            raise UserError(f"config: algorithm: {error}") from error

    def _training_metrics(self) -> Record:
        """Means over the benign clients of the cohort whose update counted."""
        log = self.federation.log
        counted = self.adversary.benign[log.cohort] & ~np.isin(log.cohort, log.dropped)
        means = {n: float(np.mean(v[counted])) for n, v in log.diagnostics.items() if counted.any()}
        return {"cohort": float(len(log.cohort)), "dropped": float(len(set(log.dropped))), **means}

    def _steps_before(self) -> float:
        """Local steps of the rounds so far, each counted with its longest."""
        return self.records[-1]["steps_total"] if self.records else 0.0

    def _influence(self) -> Record:
        """Effective number of clients 1/Σp² in the last aggregate, and the malicious clients' part
        in it.
        """
        influence = self.algorithm.influence
        if influence is None or not influence.weights.any():
            return {}
        p = np.abs(influence.weights) / np.abs(influence.weights).sum()
        record = {"effective_clients": float(1 / np.square(p).sum())}
        if len(self.adversary.ids):
            bad = np.isin(influence.clients, self.adversary.ids)
            record["malicious_selected"] = float((p[bad] > 0).sum() / (p > 0).sum())
            record["malicious_weight"] = float(p[bad].sum())
        return record

    def _keeps_no_models(self) -> bool:
        return self.algorithm.personal_models() is None and self.algorithm.personal_rule() is None

    def _test_plan(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Distinct rows to evaluate, and the places among them of client tests, test set and
        held-out set.
        """
        clients = self.data.test.rows if self.config.evaluation.clients else np.empty(0, np.int64)
        groups = (clients, self.data.test_rows, self.data.heldout_rows)
        rows, places = np.unique(np.concatenate(groups), return_inverse=True)
        a, b = len(groups[0]), len(groups[0]) + len(groups[1])
        return rows, places[:a], places[a:b], places[b:]

    def _evaluate(self, t: int) -> Record:
        """All accuracy metrics: each distinct row is evaluated once."""
        rows, clients, test, heldout = self._tests
        loss, hit = self.federation.per_sample(self.algorithm.model(), self.algorithm.buffers, rows)
        losses, hits = loss.numpy(), hit.numpy()
        record = over_rows(losses[test], hits[test], "test") | over_rows(
            losses[heldout], hits[heldout], "heldout"
        )
        benign = self.adversary.benign
        table: dict[str, np.ndarray] = {} if benign.all() else {"malicious": ~benign}
        if self.config.evaluation.clients:
            sums = per_client(loss[clients], hit[clients], self.data.test.sizes).numpy()
            record |= over_clients(sums[benign, 0], sums[benign, 2], "client")
            table |= {
                "accuracy": sums[:, 0] / sums[:, 2],
                "loss": sums[:, 1] / sums[:, 2],
                "test_rows": sums[:, 2],
            }
        record |= self._evaluate_personal(table)
        ledger = self.federation.ledger
        self.client_rows.append(
            {
                "round": np.full(self.data.clients, t),
                "client": np.arange(self.data.clients),
                **table,
            }
            | {
                "bytes_down": ledger.down.copy(),
                "bytes_up": ledger.up.copy(),
                "steps": ledger.steps.copy(),
            }
            | {"joules": self.config.energy.joules(ledger.steps, ledger.up)}
        )
        return record

    def _evaluate_personal(self, table: dict[str, np.ndarray]) -> Record:
        models = self.algorithm.personal_models()
        rule = self.algorithm.personal_rule() if models is None else GivenModel()
        if rule is not None and self.config.evaluation.personal:
            known = {"w": self.algorithm.w, BUFFERS: self.algorithm.buffers}
            everyone = Cohort.of(np.arange(self.data.clients))
            own = {} if models is None else {"model": models}
            with self.federation.train(
                everyone, rule, received={}, known=known, own=own
            ) as training:
                training.evaluate()
        personal = self.federation.log.personal
        if not personal:
            return {}
        sums = np.array([personal.get(k, (0.0, 0.0, 0.0)) for k in range(self.data.clients)])
        with np.errstate(invalid="ignore"):
            table["personal_accuracy"] = sums[:, 0] / sums[:, 2]
        benign = self.adversary.benign
        return over_clients(sums[benign, 0], sums[benign, 2], "personal")


def digest(state: Any) -> str:
    """SHA-256 of nested dicts of tensors, arrays and numbers, independent of key order."""
    sha = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value, key=str):
                sha.update(f"{key}:".encode())
                feed(value[key])
        elif isinstance(value, Tensor | np.ndarray):
            array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
            sha.update(np.ascontiguousarray(array).tobytes())
        else:
            sha.update(repr(value).encode())

    feed(state)
    return sha.hexdigest()
