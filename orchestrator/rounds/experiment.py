"""Composition root: a config becomes data, network, algorithm and clients; stepped by rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from algorithms.contract import Broken, Cohort
from algorithms.finite import NotFinite, all_finite
from algorithms.local import Tensors
from algorithms.part import close_to, nearest
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.plane import InProcess, Plane
from orchestrator.clients.watch import Watch
from orchestrator.config import Config
from orchestrator.config.resolve import resolve
from orchestrator.config.schema import HOW_MUCH
from orchestrator.data.federated import FederatedData
from orchestrator.errors import Diverged, UserError
from orchestrator.extras import named_if_missing
from orchestrator.models.net import Net
from orchestrator.plugins.blame import blamed
from orchestrator.plugins.raw import unpinned
from orchestrator.results.digests import digest
from orchestrator.results.own_code import other, untold
from orchestrator.results.provenance import differing, made_by
from orchestrator.results.state import require_storable
from orchestrator.results.usage import frozen_sha256
from orchestrator.rounds.alarm import Alarm
from orchestrator.rounds.asked import asked_of, is_over, is_within, meets
from orchestrator.rounds.assembly import algorithm_of, federation_of, of_config, world_of
from orchestrator.rounds.clock import Clock
from orchestrator.rounds.fitting import remarks, require_batches, require_fit
from orchestrator.rounds.judge import ClientTable, Judge, keeps_personal_models
from orchestrator.rounds.metrics import Record, influence, over_cohort
from orchestrator.rounds.reported import checked
from orchestrator.rounds.spent import Spent
from orchestrator.rounds.unsaved import Unsaved
from orchestrator.training.messages import BUFFERS
from orchestrator.training.modes import own_modes, settle
from orchestrator.training.world import World

NOBODY = np.empty(0)
"""No client's share."""


class Experiment:
    """One run: all that is needed to do rounds, and nothing about files, Ray or the terminal."""

    @own_modes()
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
        with named_if_missing(), blamed(config.plugins):
            self._build(config, plane, data)

    def _build(
        self, config: Config, plane: Callable[[World], Plane], data: FederatedData | None
    ) -> None:
        # first of all: sums depend on the number of threads, also the server's
        torch.set_num_threads(config.resources.threads)
        self.data = FederatedData.build(config.data, config.seed) if data is None else data
        samples = self.data.samples
        with of_config():
            self.net = Net.of(config.model, samples.shape, samples.outputs, config.seed)
            # before it is tried: some make tables at their first use
            frozen = frozen_sha256(self.net)
            self.net.may_draw = require_fit(config, samples, self.net)
            require_batches(config, self.data, self.net)
        # from here on nothing is left open, and this is what config.yaml says
        self.config = config = resolve(config, self.net)
        with of_config("algorithm: "):
            self.algorithm = algorithm_of(config, self.net, self.data)
        with of_config():
            self.adversary = Adversary.of(
                config.attack, config.seed, config.data.clients, config.buffers == "aggregate"
            )
        # of all tensors, before any is trained: also those that stay as a file gave them
        self.origin = {
            "data_sha256": self.data.sha256,
            "initial_sha256": digest(self.net.module.state_dict()),
            **({"frozen_sha256": frozen} if frozen else {}),
            **untold(config),
        }
        """What the run has begun with, apart from its config."""
        self.world = world_of(config, self.net, self.data, self.adversary)
        self.federation = federation_of(
            config, self.net, self.data, self.adversary, self.algorithm, plane(self.world)
        )
        self.judge = Judge(config.evaluation, config.loss, self.algorithm, self.federation)
        self.clock = Clock(config.evaluation, config.local, self.data.train.sizes)
        first = self.algorithm.state()
        require_storable(first)
        self.alarm = Alarm(config.non_finite, first)
        self.unsaved = Unsaved(self.algorithm, config.plugins)
        with of_config():
            self.alarm.remarks += remarks(config, samples, self.net, self.algorithm)
        self.t = 0
        self.records: list[Record] = []
        self.client_rows: list[ClientTable] = []
        self.midway = False
        """Whether a round has begun that has not come to its end."""
        self.shares = NOBODY
        """Part of the last aggregate that each client's update was [N]; [0] where none is known."""
        self.seen: tuple[Record, ClientTable] | None = None
        """What the clock has last seen in the middle of the round under way."""
        self.looks = 0
        """How often it has looked there."""
        self.went_further = False
        """Whether it has other numbers of the last round than the run that it goes on with."""
        self.asked = asked_of(self.config, {})
        """What may be another on ``--resume``, and how: for the next one."""
        self.longer: dict[str, Any] | None = None
        """Of a round that was judged because it is the last: the record, and the clients' rows (or
        None), that a run of more rounds has of it.
        """

    @property
    def finished(self) -> bool:
        return self.t >= self.config.rounds or self.reached

    @property
    def reached(self) -> bool:
        """Whether the last round's record meets one of the config's ``stop`` conditions."""
        last = self.records[-1] if self.records else {}
        return self.ends(last)

    def ends(self, record: Record) -> bool:
        """Whether a round's record meets one of the config's ``stop`` conditions."""
        return meets(record, self.config.stop)

    @property
    def notes(self) -> list[str]:
        """What was told of numbers that are none: a sentence each, for the user."""
        return self.alarm.notes

    @property
    def diverged(self) -> bool:
        """Whether the model that the run would end with, or its loss, is NaN or infinite."""
        last, algorithm = self.records[-1] if self.records else {}, self.algorithm
        # the clients' own models are judged by nothing but accuracy
        losses = ["test_loss", *(["train_loss"] if keeps_personal_models(algorithm) else [])]
        judged = [algorithm.model(), algorithm.statistics(), algorithm.personal_models()]
        return not all_finite([*judged, *(last.get(name) for name in losses)])

    @own_modes()
    def step(self) -> Record:
        """Run one round and return its record.

        Raises UserError if the run cannot go on: a diverged update, lost clients, a misspelt metric
        in ``stop``; or an earlier round was interrupted in its middle.
        """
        if self.midway:
            raise UserError(
                f"round {self.t + 1} was interrupted in its middle, and what is known now is of no "
                "round; begin anew, or --resume a run into a folder"
            )
        self.midway = True
        with named_if_missing(), blamed(self.config.plugins):
            record = self._step()
        self.midway = False
        return record

    def _step(self) -> Record:
        spent, t = Spent(self.federation), self.t + 1
        settle(self.config.resources.threads, self.config.local.precision == "tf32")
        federation = self.federation
        if not self.unsaved.before:
            self.unsaved.changed()
        last = t == self.config.rounds
        # local models are judged before they are collected, when nobody knows yet what will stop,
        # or how many steps will have been done
        maybe = bool(self.config.stop) or self.clock.steps is not None
        watch, self.seen, self.looks = self._watch(), None, 0
        federation.begin_round(t, maybe or last or self.clock.due(t, 0, 0), watch)
        reported = self._aggregate(t)
        who = self.algorithm.influence
        self.shares = NOBODY if who is None else who.shares(self.data.clients)
        self._know_that_they_worked(t)
        spent.aggregated()
        record: Record = {
            "round": t,
            **self._training_metrics(),
            **influence(self.algorithm.influence, self.adversary.ids),
            **self.algorithm.notes,
            **reported,
            **self._steps(),
        }
        # a round that ends the run, be it by what it has spent, is its last, which is always judged
        until_judged = spent.record()
        ended = self.ends(record | until_judged)
        last = last or ended
        met = watch is not None and watch.over
        due = self.clock.due(t, self._steps_before(), record["steps_total"])
        evaluated = met or last or due
        self.longer = None
        if self.seen is not None and (met or not last):
            record |= self._noted(t, *self.seen, self.looks)
        elif evaluated:
            self.longer = self._of_a_longer_run(t, due, record, until_judged)
            self._judge(t, record, spent)
        record |= spent.record()
        self.alarm.metrics(t, record)
        self.alarm.unsaved(t, self.unsaved.changed())
        # a round that has failed does not count
        self.t = t
        self.records.append(record)
        if evaluated:
            self._know_what_stops([name for name in self.config.stop if name not in record])
        return record

    def _of_a_longer_run(
        self, t: int, due: bool, record: Record, spent: Record
    ) -> dict[str, Any] | None:
        """As ``longer`` has it, of a ``record`` that is not judged yet; ``due``: that would be so
        in any run.
        """
        if self.seen is None:
            return None if due else {"record": record | spent, "rows": None}
        seen = self._noted(t, *self.seen, self.looks)
        return {"record": record | seen | spent, "rows": self.client_rows.pop()}

    @property
    def _is_judged(self) -> bool:
        """Whether the last round has rows of clients."""
        return bool(self.client_rows) and int(self.client_rows[-1]["round"][0]) == self.t

    def _goes_further(self, longer: Mapping[str, Any] | None) -> bool:
        """Whether the round that was the last of a run that has ended is one of many now, which a
        run that had never ended would not have judged (at its end), or one whose look in its middle
        meets a goal, which ends a run of any length.
        """
        if longer is None:
            return False
        if longer["rows"] is not None and is_over(longer["record"], self.config.stop):
            return True
        if self.t >= self.config.rounds or self.ends(longer["record"]):
            return False
        before = self.records[-2]["steps_total"] if len(self.records) > 1 else 0.0
        due = self.clock.due(self.t, before, self.records[-1]["steps_total"])
        return longer["rows"] is not None or not due

    def _go_on(self, longer: Mapping[str, Any]) -> None:
        """Have of the last round what a run of more rounds has."""
        if self._is_judged:
            self.client_rows.pop()
        self.client_rows += [longer["rows"]] if longer["rows"] is not None else []
        self.records[-1] = dict(longer["record"])

    @property
    def known_looks(self) -> int:
        """How many of the last round's looks are known: that within it, too, where it was judged
        because it was the last.
        """
        if self.longer is None or self.went_further or self.longer["rows"] is None:
            return 1
        return 2

    def _watch(self) -> Watch | None:
        """The clock inside the round to come; None where the mean of the clients' models is not
        what the server would make of them.
        """
        config, algorithm, ticks = self.config, self.algorithm, self.clock.steps
        as_it_is = not config.compression.lossy and not len(self.adversary.forgers)
        as_it_is = as_it_is and algorithm.averages and not config.output.is_a_mean
        # local models are judged when they are collected
        if ticks is None or not as_it_is or config.evaluation.local_models:
            return None

        def weights(cohort: Cohort) -> np.ndarray:
            return algorithm.round_state(self.t + 1, cohort, algorithm.w).weights

        return Watch(int(self._steps_before()), ticks, weights, self._notice)

    def _notice(self, steps: int, mean: Tensors) -> bool:
        """Judge the ``mean`` of the clients after so many local ``steps`` of the run; whether that
        is what the run is to end with.
        """
        algorithm = self.algorithm
        buffers = mean.get(BUFFERS, algorithm.buffers)
        record, table = self.judge.of(algorithm.w + mean["delta"], buffers)
        self.seen = record | {"evaluated_steps": float(steps)}, table
        self.looks += 1
        return self.ends(record)

    def _judge(self, t: int, record: Record, spent: Spent) -> None:
        """Add to the round's ``record`` what its models are worth, and to what is ``spent`` its
        time.
        """
        evaluating = time.perf_counter()
        record |= self._evaluate(t, self.looks)
        record |= self._now(record)
        spent.evaluated(time.perf_counter() - evaluating)

    def _now(self, record: Record) -> Record:
        """Local steps when the models after the round of ``record`` are judged, where the clock
        counts them.
        """
        return {} if self.clock.steps is None else {"evaluated_steps": record["steps_total"]}

    def judge_last(self) -> None:
        """Judge the last round if it has not been, which a run that is resumed with fewer rounds,
        or another ``stop``, may find to be its last.
        """
        last = self.records[-1]
        if self._is_judged:
            if not is_within(last) or is_over(last, self.config.stop):
                return
            # it was looked at in the middle of the round, and did not end by that
            self.client_rows.pop()
        self.federation.begin_round(self.t)
        if self.config.evaluation.local_models and not keeps_personal_models(self.algorithm):
            self.alarm.note(
                f"round {self.t}: the models that its clients have trained are gone, and are not "
                "judged (evaluation.local_models), as they are at the end of a run of so many "
                "rounds that is not interrupted"
            )
        looks = int(last.get("judged", 0))
        self.records[-1] |= self._evaluate(self.t, looks) | self._now(self.records[-1])
        self.alarm.metrics(self.t, self.records[-1])

    def _aggregate(self, t: int) -> Record:
        """The algorithm's round, and a look at what it has made of the server."""
        try:
            # NumPy's warnings would tell in the middle what is told at the end, with its cause
            with np.errstate(all="ignore"):
                reported = self.algorithm.round(t, self.federation)
                self.algorithm.count()
        except NotFinite as error:
            raise Diverged(f"round {t}: {error}") from error
        except Broken as error:
            raise UserError(f"round {t}: {error}") from error
        federation = self.federation
        everything = {
            **self.algorithm.state(),
            "averaged moments": federation.store.optimizer,
            "replica at the clients": federation.mailroom.replicas,
        }
        who = federation.terms.named(np.unique(np.array(federation.log.not_finite, np.int64)))
        try:
            self.alarm.aggregated(t, who, everything)
        except RecursionError:
            # a part that holds itself, or is as deep
            require_storable(everything)
            raise
        metrics = [one.called for one in self.config.evaluation.metrics]
        told, who = self.algorithm.notes, f"algorithm {self.config.algorithm.name}: round returns"
        self.algorithm.notes = checked("the aggregator reports", told, metrics)
        return checked(who, reported, metrics)

    def _know_that_they_worked(self, t: int) -> None:
        """Raise UserError if no client of the cohort had a whole batch to make a step with."""
        local, log = self.config.local, self.federation.log
        planned = [local.planned(int(n)) for n in self.data.train.sizes[log.cohort]]
        if planned and not any(planned):
            raise UserError(
                f"round {t}: no client did a step, because local.drop_last leaves out batches of "
                f"fewer than local.batch_size = {local.batch_size} rows, and nobody in the cohort "
                f"has so many; lower local.batch_size or set local.drop_last to false"
            )

    def _steps(self) -> Record:
        """Local steps of the rounds so far, each counted with its longest client's (where no client
        trains, the server's); and how many passes over the data of the client that has most those
        are.
        """
        log = self.federation.log
        mine = float(log.diagnostics["steps"].max(initial=0)) or log.server_steps
        total = self._steps_before() + mine
        return {"steps_total": total, "epochs_total": total / self.clock.epoch}

    def _steps_before(self) -> float:
        """Those of the rounds before the one under way."""
        return self.records[-1]["steps_total"] if self.records else 0.0

    def _know_what_stops(self, missing: list[str]) -> None:
        """Raise UserError for a metric in ``stop`` that seems to be a misspelt one, unless all is
        done; tell of others that have not been reported (an agent's may come later).
        """
        reported = sorted({name for record in self.records for name in record}) if missing else []
        unknown = [name for name in missing if name not in reported]
        for name in unknown if self.t < self.config.rounds else ():
            if close_to(name, reported, 1, 0.7):
                raise UserError(
                    f"config: stop: the rounds do not report {name!r}; {nearest(name, reported)}"
                )
        self.alarm.unreported(self.t, unknown)

    def close(self) -> None:
        """Release the clients."""
        self.federation.plane.close()

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint must hold."""
        return {
            "science": self.science(),
            "origin": self.origin,
            "made_by": made_by(),
            "algorithm": self.algorithm.state(),
            **self.federation.state(),
            "records": self.records,
            "client_rows": self.client_rows,
            "alarm": self.alarm.state(),
            "shares": self.shares,
            "longer": self.longer,
            "asked": self.asked,
        }

    def science(self) -> str:
        """Digest of the part of the config that decides what a round computes."""
        # what may be another after --resume without another result of any round
        raw = self.config.model_dump(mode="json", exclude={"name", *HOW_MUCH})
        # what is in plugins is theirs to say, and who goes on with others has named them
        plugins = [plugin.name for plugin in self.config.plugins]
        threads = self.config.resources.threads
        return digest({**unpinned(raw), "plugins": plugins, "threads": threads})

    def require_origin(self, known: Mapping[str, Any], place: str, exchanged: bool = False) -> None:
        """Raise UserError unless the run at ``place``, of which ``known`` says what it has begun
        with, began with the data, the initial weights and the code of one's own that the config
        gives now; ``exchanged``: but for what plugins import, of which some are others now.
        """
        told = {
            "data_sha256": "the dataset's files, or who holds which rows, are not those",
            "initial_sha256": "the initial weights of the model are not those",
            "frozen_sha256": "what the network holds that nobody trains is not that",
            "code_sha256": "the code of parts that are in no plugin is not that",
            "imports_sha256": "modules that its plugins import are not those",
            "files_sha256": "files that its config names are not those",
        }
        for key in other(known, self.origin, told):
            if not (exchanged and key == "imports_sha256"):
                raise UserError(f"{place}: {told[key]} that the run was begun with; put them back")

    def restore(self, t: int, state: Mapping[str, Any]) -> None:
        """Continue after round ``t`` from a checkpoint's state."""
        first = self.net.initial
        self.algorithm.restore(state["algorithm"])
        if self.algorithm.w.shape != first.shape or self.algorithm.w.dtype != first.dtype:
            raise ValueError("its model has another shape")
        self.federation.restore(state)
        self.records, self.client_rows = list(state["records"]), list(state["client_rows"])
        self.alarm.restore(state["alarm"])
        self.shares = np.asarray(state["shares"])
        self.asked = asked_of(self.config, state.get("asked", {}))
        self.t, self.longer = t, state.get("longer")
        self.went_further = self._goes_further(self.longer)
        if self.longer is not None and self.went_further:
            self._go_on(self.longer)
        others = differing(state.get("made_by", {}))
        if others and not self.finished:
            self.alarm.note(
                f"from round {t + 1} on the run is computed by others than before ({others}), and "
                "may have other bits than one that was not interrupted"
            )

    def weights_sha256(self) -> str:
        """Digest of the server's model (and batch-norm statistics)."""
        return digest({"w": self.algorithm.model(), "buffers": self.algorithm.statistics()})

    def state_sha256(self) -> str:
        """Digest of the whole server state and every client's state."""
        return digest(
            {"algorithm": self.algorithm.state(), "clients": self.federation.store.states}
        )

    def _training_metrics(self) -> Record:
        """Means over the benign clients of the cohort whose update counted."""
        log = self.federation.log
        counted = self.adversary.benign[log.cohort] & ~np.isin(log.cohort, log.uncounted)
        dropped = {*log.dropped} - {self.data.clients}  # the server is no client
        asked = {*log.cohort.tolist(), *dropped}
        means = over_cohort(log.diagnostics, counted)
        return {"cohort": float(len(asked)), "dropped": float(len(dropped)), **means}

    def _evaluate(self, t: int, looks: int) -> Record:
        """The models judged after round ``t``, after so many ``looks`` within it; what is said of
        each client joins its rows.
        """
        return self._noted(t, *self.judge.judge(), looks + 1)

    def _noted(self, t: int, record: Record, table: ClientTable, looks: int) -> Record:
        """What was found of the models at the last of the round's ``looks``, and who could not be
        judged; the ``table`` of clients is kept.
        """
        late = len(set(self.federation.log.unjudged))
        record |= {"judged": float(looks)} | ({"unjudged": float(late)} if late else {})
        ledger, everyone = self.federation.ledger, np.arange(self.data.clients)
        weight = {"weight": self.shares} if len(self.shares) else {}
        self.client_rows.append(
            {"round": np.full(self.data.clients, t), "client": everyone, **weight, **table}
            | {"bytes_down": ledger.down.copy(), "bytes_up": ledger.up.copy()}
            | {"steps": ledger.steps.copy()}
        )
        return record
