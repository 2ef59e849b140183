"""Programs: networks and losses of a user's own, held against the loop that anybody would write."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import torch

from algorithms.local import LocalRule, Work
from orchestrator.clients.plane import InProcess
from orchestrator.config import build
from orchestrator.config.paths import put
from orchestrator.rounds.experiment import Experiment
from tests.fuzz.compositions import drawn, require_resumed, require_same_recorded, run, strict
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.snippets import BLOCKS, LOSSES, RULES, STATES, clients, network, server
from tests.meanings.client import batches, planned

BASE: dict[str, Any] = {
    "data.limit": 100,
    "data.clients": 3,
    "data.client_test.least": 5,
    "data.dataset": "synthetic",
    "rounds": 2,
    "cohort": 1.0,
    "checkpoint.every": 1,
    "checkpoint.keep": 5,
    "local.steps": 3,
    "local.batch_size": 8,
    "local.lr": 0.05,
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "local.steps": (1, 8, 60),
    "local.batch_size": (1, 5, 64),
    "local.drop_last": (True,),
    "local.execution": ("sequential", "vectorized"),
    "local.block": (1, 2),
    "local.lr": (0.01, 0.2),
    "local.optimizer": (
        {"name": "sgd", "momentum": 0.9},
        {"name": "sgd", "momentum": 0.5, "nesterov": True, "weight_decay": 0.05},
    ),
    "evaluation.gradient_norms": (True,),
    "evaluation.local_models": (True,),
}
OF_PROGRAMS = ("block", "loss", "state", "rule", "recorded")
"""Pieces that are no settings."""
BOUND = 1e-4
"""How far a model may be off whose sums were added up in another order, relative to its largest
entry."""
STIR = 3e-7
STIRS = 8
"""Tries with first weights that are a hair's breadth beside, of which one may explain what differs."""


class Programs(Family):
    """Two rounds of FedAvg by the product and by a loop over a module, its loss and
    ``torch.optim``; and the same bits when resumed, sent to another process, and recorded.
    """

    name = "programs"
    deadline = 60.0
    quick = 6
    recorded: ClassVar[float] = 0.3
    """Part of the cases that are trained once more in steps that are recorded, as on a GPU."""

    def draw(self, rng: Random) -> Pieces:
        pieces: Pieces = [("block", rng.choice([*BLOCKS])) for _ in range(rng.choice((1, 1, 2, 4)))]
        pieces += [("rule", rng.choice([*RULES]))] if rng.random() < 0.25 else []
        pieces += [("loss", rng.choice([*LOSSES]))] if rng.random() < 0.5 else []
        pieces += [("state", rng.choice([*STATES])), ("rounds", 3)] if rng.random() < 0.3 else []
        pieces += [(key, rng.choice(v)) for key, v in CHOICES.items() if rng.random() < 0.25]
        return [*pieces, *([("recorded", True)] if rng.random() < self.recorded else [])]

    def play(self, pieces: Pieces, folder: Path) -> None:
        given = dict(pieces)
        source = network([v for k, v in pieces if k == "block"], given.get("loss", "plain"))
        (folder / "own.py").write_text(source)
        raw: dict[str, Any] = {}
        for path, value in {**BASE, **given}.items():
            if path not in OF_PROGRAMS:
                put(raw, path, value)
        raw["model"] = f"{folder}/own.py:Own"
        raw |= {"loss": f"{folder}/own.py:loss"} if "loss" in given else {}
        if "state" in given:
            (folder / "server.py").write_text(server(given["state"]))
            raw |= {"plugins": [f"{folder}/server.py"], "algorithm": "keeping"}
        elif "rule" in given:
            (folder / "rule.py").write_text(clients(given["rule"]))
            raw |= {"plugins": [f"{folder}/rule.py"], "algorithm": "ruled"}
        config = build(raw)
        with drawn(False):
            whole = run(config, folder / "whole")
            result = strict(folder / "whole" / "result.json")
            require_resumed(result, folder)
        # with rules the loop has no statistics
        plain = not whole.net.buffer_spec.size
        if "state" not in given and ("rule" not in given or plain):
            require_the_loop_s(whole, source)
        elif "state" not in given:
            require_the_same_one_by_one(whole)
        sent = Experiment(
            config, lambda world: InProcess(cloudpickle.loads(cloudpickle.dumps(world)))
        )
        for _ in range(config.rounds):
            sent.step()
        if sent.state_sha256() != result["state_sha256"]:
            raise Wrong("sent to another process it has other bits: the world was pickled")
        if given.get("recorded"):
            require_same_recorded(config)


class Loop:
    """FedAvg of the module and the loss of a file, as its author would write it."""

    def __init__(self, product: Experiment, source: str, stir: float = 0.0, n: int = 0) -> None:
        names: dict[str, Any] = {}
        exec(source, names)  # a copy of its own: nothing of the product's
        self.config, self.data = product.config.model_dump(mode="python"), product.data
        samples, net = self.data.samples, product.net
        self.module = names["Own"](int(np.prod(samples.shape)), samples.classes)
        self.loss = names["loss"]
        rule, self.spec = product.algorithm.rule(), net.spec  # type: ignore[attr-defined]
        self.rule = rule if type(rule) is not LocalRule else None
        self.memory: dict[int, dict[str, torch.Tensor]] = {}
        first = {**net.spec.views(net.initial), **net.buffer_spec.views(net.initial_buffers)}
        self.state = {name: value.clone() for name, value in first.items()}
        # what is not trained has its first values from the product's, too
        kept = {k: v for k, v in net.module.state_dict().items() if k not in self.state}
        self.module.load_state_dict(copy.deepcopy(kept), strict=False)
        noise = torch.Generator().manual_seed(n)
        for value in self.state.values():
            value *= 1 + stir * torch.randn(value.shape, generator=noise)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Of the module, by name: what is trained, and its statistics."""
        trained = {k: p for k, p in self.module.named_parameters() if p.requires_grad}
        return trained | {k: b for k, b in self.module.named_buffers() if b.is_floating_point()}

    def _put(self, state: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(state[name])

    def _batch(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        samples = self.data.samples
        return torch.tensor(samples.x[rows]), torch.tensor(samples.y[rows])

    def round(self, t: int) -> None:
        """Everybody trains from the same model; the mean is the next."""
        ends = [self._trained(t, k) for k in range(self.data.clients)]
        self.state = {
            name: torch.stack([end[name] for end in ends]).double().mean(0).float()
            for name in self.state
        }

    def _trained(self, t: int, k: int) -> dict[str, torch.Tensor]:
        if self.rule is not None:
            return self._by_rule(self.rule, t, k)
        local, rows = self.config["local"], self.data.train[k]
        self._put(self.state)
        self.module.train()
        trained = [p for p in self.module.parameters() if p.requires_grad]
        chosen = {key: v for key, v in local["optimizer"].items() if key in SGD}
        optimizer = torch.optim.SGD(trained, lr=local["lr"], **chosen)
        stream = batches(local, rows, self.config["seed"], t, k, 0)
        for _ in range(planned(local, len(rows))):
            x, y = self._batch(next(stream))
            optimizer.zero_grad()
            for p in trained:
                # what no loss depends on has a gradient of zeros, and may decay
                p.grad = torch.zeros_like(p)
            self.loss(self.module(x), y).mean().backward()
            optimizer.step()
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}

    def _by_rule(self, rule: LocalRule, t: int, k: int) -> dict[str, torch.Tensor]:
        """The same by the hooks of a rule, for one client: what they put somewhere is there."""
        local, rows, spec = self.config["local"], self.data.train[k], self.spec
        w, lr = spec.flatten(self.state), local["lr"]
        known = self.memory.get(k, rule.state({"w": w}, spec))
        work = Work(
            spec=spec, clients=torch.tensor([k]), samples=torch.tensor([len(rows)]),
            received={"w": w}, w=torch.empty(0), start=torch.empty(0), steps=torch.zeros(1), lr=lr,
            state={name: value[None].clone() for name, value in known.items()},
        )  # fmt: skip
        work.start = rule.begin(work).clone()
        work.w = work.start.clone()
        trained = torch.nn.Parameter(work.w[0].clone())
        chosen = {key: v for key, v in local["optimizer"].items() if key in SGD}
        optimizer = torch.optim.SGD([trained], lr=lr, **chosen)
        stream = batches(local, rows, self.config["seed"], t, k, 0)
        steps, each = planned(local, len(rows)), len(rows) / local["batch_size"]
        each = math.floor(each) if local["drop_last"] else math.ceil(each)
        for step in range(steps):
            if rule.watches_accuracy and step % each == 0:
                self._put(dict(spec.views(work.w[0])))
                rule.epoch(work, torch.tensor([True]), self._accuracy(rows))
            self._put(dict(spec.views(work.w[0])))
            loss, gradient = self._gradient(*self._batch(next(stream)))
            work.loss = loss
            # the model moves on in memory of its own, and so do gradients
            trained.grad = rule.direction(gradient, work)[0].clone()
            trained.data = work.w[0].clone()
            optimizer.step()
            work.w = trained.data[None].clone()
            rule.after_step(work)
        work.steps, work.reach = torch.tensor([float(steps)]), torch.tensor([steps * lr])
        messages = dict(rule.upload(work))
        change = messages["delta"][0].clone()
        rule.sent(work, messages)
        self.memory[k] = {name: value[0].clone() for name, value in work.state.items()}
        return dict(spec.views(w + change))

    def _accuracy(self, rows: np.ndarray) -> torch.Tensor:
        self.module.eval()
        x, y = self._batch(rows)
        with torch.no_grad():
            hits = self.module(x).argmax(1) == y
        return hits.float().mean()[None]

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss [1] and gradient [1, d] of a batch."""
        self.module.train()
        trained = self.tensors()
        loss = self.loss(self.module(x), y).mean()
        grads = torch.autograd.grad(loss, [*trained.values()], materialize_grads=True)
        flat = self.spec.flatten(dict(zip(trained, grads, strict=True)))
        return loss.detach()[None], flat[None]

    def test_loss(self) -> float:
        self._put(self.state)
        self.module.eval()
        x, y = self._batch(self.data.test_rows)
        with torch.no_grad():
            return float(self.loss(self.module(x), y).mean())


def require_the_same_one_by_one(product: Experiment) -> None:
    """Who trains beside whom makes no other model, but for rounding."""
    local = product.config.local.model_copy(update={"block": 1, "execution": "sequential"})
    one = Experiment(product.config.model_copy(update={"local": local}))
    for _ in range(product.config.rounds):
        one.step()
    ends = [{"model": e.algorithm.model()} for e in (product, one)]
    # a lower bound on what the network makes of rounding alone is not known here
    if _different(*ends, 20.0):
        said = [end["model"][:3].tolist() for end in ends]
        raise Wrong(f"one by one clients make another model: {said}")


SGD = ("momentum", "nesterov", "weight_decay")


def require_the_loop_s(product: Experiment, source: str) -> None:
    """The product's model is the loop's, but for rounding."""
    found = _ends(product, source)
    model, statistics = product.algorithm.model(), product.algorithm.statistics()
    ours = {**product.net.spec.views(model), **product.net.buffer_spec.views(statistics)}
    ours["test_loss"] = torch.tensor(product.records[-1]["test_loss"])
    wrong = _different(ours, found, 1.0)
    for n in range(STIRS if wrong else 0):
        if wrong <= _different(_ends(product, source, STIR, n), found, 0.2):
            return
    if wrong:
        name = sorted(wrong)[0]
        said = f"{ours[name].flatten()[:3].tolist()}, not {found[name].flatten()[:3].tolist()}"
        raise Wrong(f"it is not what a plain loop computes: {sorted(wrong)}: {name} is {said}")


def _ends(product: Experiment, source: str, stir: float = 0.0, n: int = 0) -> dict[str, Any]:
    loop = Loop(product, source, stir, n)
    for t in range(1, product.config.rounds + 1):
        loop.round(t)
    return loop.state | {"test_loss": torch.tensor(loop.test_loss())}


def _different(ours: dict[str, Any], theirs: dict[str, Any], part: float) -> set[str]:
    """The tensors that differ by more than a ``part`` of what may."""
    if {*ours} != {*theirs}:
        return {*ours} ^ {*theirs}
    found = set()
    for name, a in ours.items():
        b, size = theirs[name], float(theirs[name].abs().max()) if theirs[name].numel() else 0.0
        if not torch.allclose(a.float(), b.float(), rtol=0, atol=part * (BOUND * size + 1e-6)):
            found.add(name)
    return found
