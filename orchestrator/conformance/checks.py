"""The battery: what a part has to do, each as a function that raises :class:`Fault` if it does not.

Runs are on the real trainer; what is compared is two ways to the same numbers, or a definition.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save as serialised

from algorithms.algorithm import AlgorithmOptions
from algorithms.fedavg import FedAvg
from algorithms.part import Part
from algorithms.parts.aggregators import Aggregator, Rows
from algorithms.parts.attacks import Attack
from algorithms.parts.compressors import Compressor
from algorithms.parts.losses import Loss
from algorithms.parts.metrics import Metric
from algorithms.parts.optimizers import Optimizer
from algorithms.parts.samplers import Draw, Sampler
from orchestrator.conformance.forgetful import Forgetful
from orchestrator.conformance.trial import Fault, Inapplicable, Trial
from orchestrator.data.augment import Augmentation
from orchestrator.data.federated import FederatedData
from orchestrator.data.partitioners import Partitioner
from orchestrator.data.samples import Dataset
from orchestrator.models.base import Model
from orchestrator.rounds.experiment import Experiment
from orchestrator.tracking import Tracked, Tracker
from orchestrator.training.engines import vectorizable

if TYPE_CHECKING:
    from torch import Tensor

ANY: tuple[type[Part], ...] = (Part,)


def _near(a: Tensor, b: Tensor) -> bool:
    """Whether they are as near as two orders of the same float32 sums come."""
    return torch.allclose(a, b, rtol=1e-3, atol=2e-5)


@dataclass(frozen=True)
class Check:
    """One thing that parts of some families have to do."""

    title: str
    families: tuple[type[Part], ...]
    run: Callable[[Trial], None]


def runs(trial: Trial) -> None:
    """Three rounds; a finite model, and bytes where something was sent."""
    experiment = trial.run(trial.config())
    if not experiment.algorithm.model().isfinite().all():
        raise Fault("the model is NaN or infinite after three rounds")
    sent = experiment.federation.log.cohort.size
    if sent and not experiment.federation.ledger.up.sum() and trial.cls is not Dataset:
        rule = getattr(experiment.algorithm, "rule", None)
        if rule is None or getattr(rule(), "transmitted", True):
            raise Fault("nothing was booked as sent by the clients")


def same_bits(trial: Trial) -> None:
    """Twice the same config is the same state."""
    config = trial.config()
    _require_equal(trial.run(config), trial.run(config), "a second run of the same config")


def forgets_nothing(trial: Trial) -> None:
    """All blocks are lost after every call, and made again, as where actors die."""
    config = trial.config()
    lost, kept = trial.run(config, Forgetful), trial.run(config)
    _require_equal(lost, kept, "a run whose blocks are lost after every call")


def resumes(trial: Trial) -> None:
    """A run that ends after each of its rounds, and goes on from a checkpoint."""
    config = trial.config()
    whole = trial.run(config)
    for after in (1, 2):
        _require_equal(
            trial.resumed(config, after), whole, f"a run resumed after round {after}",
            "; what the server keeps must be in server_state, what a client keeps in work.state",
        )  # fmt: skip


def vectorised_is_sequential(trial: Trial) -> None:
    """One client after the other, and as one batched computation."""
    plain = trial.config(local__execution="sequential")
    reason = vectorizable(Experiment(plain).net)
    if reason:
        raise Inapplicable(f"its network is trained one client at a time: {reason}")
    if not plain.round_end.lock_step:
        raise Inapplicable("its clients have a pace of their own")
    one, other = trial.run(plain), trial.run(trial.config(local__execution="vectorized"))
    _require_close(one, other, "vectorised training", "; rows must be treated each by itself")


def blocks_do_not_matter(trial: Trial) -> None:
    """Clients by ones, and by threes."""
    one, three = (trial.run(trial.config(local__block=n)) for n in (1, 3))
    _require_close(one, three, "blocks of three clients in place of one")


def ledger_is_what_is_sent(trial: Trial) -> None:
    """What the ledger books of the uploads, and their size as safetensors."""
    from orchestrator.training import lane

    sizes: list[int] = []
    original = lane.Lane.upload

    def weighed(self: lane.Lane) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        uploads, diagnostics = original(self)
        if self.rule.transmitted:
            rows = {name: value[:1].contiguous() for name, value in uploads.items()}
            sizes.append(_payload(rows) * len(self.ids))
        return uploads, diagnostics

    config = trial.config(rounds=1, evaluation__every=1)
    lane.Lane.upload = weighed  # type: ignore[method-assign]
    try:
        experiment = Experiment(config)
        booked = experiment.step()["bytes_up"]
    finally:
        lane.Lane.upload = original  # type: ignore[method-assign]
    if not isinstance(experiment.algorithm, FedAvg) or experiment.algorithm.rule().private:
        raise Inapplicable("some of what its clients upload may stay with them")
    if booked < sum(sizes):
        raise Fault(f"clients send {sum(sizes)} bytes, and {booked:g} are booked")


def _payload(tensors: dict[str, Tensor]) -> int:
    raw = serialised(tensors) if tensors else bytes(8)
    return len(raw) - 8 - int.from_bytes(raw[:8], "little")


def _instance(trial: Trial) -> Part:
    return trial.cls.model_validate({})


def aggregates_any_order(trial: Trial) -> None:
    """The order of the rows says nothing."""
    one, rows, samples = _of_seven_rows(trial)
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    first = one.combine(Rows(rows, samples)).vector
    second = one.combine(Rows(rows[order], samples[order])).vector
    if first.shape != (40,) or not _near(first, second):
        raise Fault("seven rows in another order give another vector")


def weights_make_the_vector(trial: Trial) -> None:
    """What is recorded of who counted how much is what was done."""
    one, rows, samples = _of_seven_rows(trial)
    made = one.combine(Rows(rows, samples))
    if made.weights is None:
        raise Inapplicable("it chooses coordinates one by one")
    if made.weights.shape != (7,) or not _near(made.weights.to(rows) @ rows, made.vector):
        raise Fault("its weights of seven rows do not sum them to the vector that it makes of them")


def _of_seven_rows(trial: Trial) -> tuple[Aggregator, Tensor, np.ndarray]:
    """An aggregator, updates [7, 40] and their samples [7]."""
    one = _instance(trial)
    assert isinstance(one, Aggregator)
    if not one.needs_rows or one.needs_reference or one.refuses(7):
        raise Inapplicable("it is a weighted sum, or asks for more than seven rows")
    rows = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    return one, rows, np.arange(1, 8) * 10


def weights_are_weights(trial: Trial) -> None:
    """Weights of a weighted sum: one for each row, of sum 1."""
    one = _instance(trial)
    assert isinstance(one, Aggregator)
    weights = one.weights(np.arange(1.0, 6.0), np.ones(5))
    if weights is None:
        raise Inapplicable("it looks at the rows")
    if weights.shape != (5,) or not np.isclose(weights.sum(), 1) or (weights < 0).any():
        raise Fault(f"weights of five clients are {weights}, and not five of sum 1")


def compresses(trial: Trial) -> None:
    """Rows keep their shape, each by itself; bytes grow with the vector; errors are as declared."""
    one = _instance(trial)
    assert isinstance(one, Compressor)
    rows = torch.randn(3, 200, generator=torch.Generator().manual_seed(1))
    together = one.compress(rows.clone(), _draws(3))
    alone = torch.cat(
        [one.compress(rows[i : i + 1].clone(), _draws(3)[i : i + 1]) for i in range(3)]
    )
    if together.shape != rows.shape:
        raise Fault(f"rows of shape (3, 200) become {tuple(together.shape)}")
    if not _near(together, alone):
        raise Fault("a row's message depends on the other rows")
    if not 0 < one.nbytes(200) <= one.nbytes(2000):
        raise Fault(f"{one.nbytes(200)} bytes for 200 numbers, {one.nbytes(2000)} for 2,000")
    errors = [
        float((one.compress(rows.clone(), _draws(3, seed)) - rows).square().sum())
        for seed in range(20)
    ]
    if one.contracts and np.mean(errors) > float(rows.square().sum()):
        raise Fault("its error is larger than the message, and `contracts` says that it is not")


def _draws(rows: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 * seed + i) for i in range(rows)]


def samples_distinct(trial: Trial) -> None:
    """Ascending ids in range, as many as are asked for, by seed and round alone."""
    one = _instance(trial)
    assert isinstance(one, Sampler)
    config = trial.config()
    data = FederatedData.build(config.data, config.seed)
    for t in range(20):
        draw = Draw(0, t + 1, data.train.sizes)
        ids = np.asarray(one.sample(draw, 4))
        if wrong := one.wrong(ids, draw.clients, 4):
            raise Fault(f"round {t}: it draws {wrong}")
        if (np.diff(ids) < 0).any():
            raise Fault(f"round {t}: {ids.tolist()} is not ascending")
        if one.sample(draw, 4).tolist() != ids.tolist():
            raise Fault(f"round {t} is drawn anew when it is asked for again")


def shares_out(trial: Trial) -> None:
    """By the seed alone; rows of the pool, none twice unless ``repeats`` says so."""
    config = trial.config()
    assert isinstance(config.data.partition, Partitioner)
    one, same = (FederatedData.build(config.data, 1) for _ in range(2))
    if one.sha256 != same.sha256:
        raise Fault("the same seed shares out in two ways")


def loads_the_same(trial: Trial) -> None:
    """The same samples whenever they are asked for."""
    config = trial.config()
    assert isinstance(config.data.dataset, Dataset)
    one, same = (FederatedData.build(config.data, 1) for _ in range(2))
    if one.sha256 != same.sha256:
        raise Fault("loaded twice, the samples differ")


def builds_the_same(trial: Trial) -> None:
    """The same first weights by the seed; an evaluation that no other sample has a part in."""
    config = trial.config()
    one, same = Experiment(config), Experiment(config)
    if not torch.equal(one.net.initial, same.net.initial):
        raise Fault("built twice by the same seed, its first weights differ")
    one.net.module.eval()
    x, _ = one.world.batch(np.arange(8))
    with torch.no_grad():
        both, alone = one.net.module(x), torch.cat([one.net.module(row[None]) for row in x])
    if not torch.allclose(both, alone, rtol=1e-3, atol=1e-4):
        raise Fault("in evaluation, a sample's outputs depend on the other samples of its batch")


def changes_each_by_itself(trial: Trial) -> None:
    """An input is changed by its own draws, whoever is changed beside it; a row of zeros is one."""
    (one,) = trial.config().data.augment
    inputs = Experiment(trial.config()).data.samples.x[:8]
    x = torch.from_numpy(inputs.copy())
    if (problem := one.tried(x[:1])) is not None:
        raise Fault(problem)
    draws = torch.from_numpy(one.draw(np.random.default_rng(1), 8, tuple(x.shape[1:])))
    if draws.dim() != 2 or len(draws) != 8:
        raise Fault(f"draws for 8 inputs have the shape {tuple(draws.shape)}, and not [8, k]")
    together = one.apply(x.clone(), draws)
    alone = torch.cat([one.apply(x[i : i + 1].clone(), draws[i : i + 1]) for i in range(8)])
    if not torch.equal(together, alone):
        raise Fault("what becomes of an input depends on the inputs beside it")
    one.apply(x.clone(), torch.zeros_like(draws))


def has_its_gradient(trial: Trial) -> None:
    """Backward against finite differences, in float64; a sample's loss by itself."""
    one = _instance(trial)
    assert isinstance(one, Loss)
    out = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    out.requires_grad_()
    targets = torch.arange(5) % 4 if one.classes else torch.randn(5, 4, dtype=torch.float64)
    if (refused := one.refuses(4, targets.float() if not one.classes else targets)) is not None:
        raise Fault(refused)
    losses = one.per_sample(out, targets)
    if losses.shape != (5,):
        raise Fault(f"five samples have losses of shape {tuple(losses.shape)}")
    alone = torch.cat([one.per_sample(out[i : i + 1], targets[i : i + 1]) for i in range(5)])
    if not torch.allclose(losses, alone):
        raise Fault("a sample's loss depends on the other samples of its batch")
    try:
        torch.autograd.gradcheck(lambda o: one.mean(o, targets), out)
    except RuntimeError as error:
        raise Fault(
            f"its gradient is not that of its values: {str(error).split('.')[0]}"
        ) from error


def measures_any_order(trial: Trial) -> None:
    """The order of the rows says nothing."""
    one = _instance(trial)
    assert isinstance(one, Metric)
    made = torch.Generator().manual_seed(3)
    out, order = torch.randn(30, 4, generator=made), torch.randperm(30, generator=made)
    targets = torch.arange(30) % 4 if one.classes else torch.randn(30, 4, generator=made)
    first, second = one.number(out, targets), one.number(out[order], targets[order])
    if not np.isclose(first, second, rtol=1e-5, equal_nan=True):
        raise Fault(f"thirty rows in another order have {second:g} in place of {first:g}")


def attacks_by_the_seed(trial: Trial) -> None:
    """The malicious clients: ids in range, ascending, by the seed alone."""
    one = _instance(trial)
    assert isinstance(one, Attack)
    ids = one.malicious(0, 10)
    if ids.tolist() != sorted(set(ids.tolist())) or not all(0 <= k < 10 for k in ids):
        raise Fault(f"{ids.tolist()} are not ids of 0 to 9, ascending")
    if one.malicious(0, 10).tolist() != ids.tolist():
        raise Fault("the same seed has other malicious clients when it is asked again")


def logs(trial: Trial) -> None:
    """What a run tells it, also when the run goes on after a round that is done again."""
    one = _instance(trial)
    assert isinstance(one, Tracker)
    with tempfile.TemporaryDirectory() as folder:
        config, place, known = trial.config().model_dump(mode="json"), Path(folder), ""
        for done in (0, 1):
            log = one.begin(Tracked("check", config, place, done, known))
            for t in range(done + 1, 4):
                log.add({"round": float(t), "test_loss": 1 / t, "test_accuracy": float("nan")})
            log.flush()
            known = log.known
            if not isinstance(known, str):
                raise Fault(f"its log's `known` is a {type(known).__name__}, and not a text")
        log.end({"status": "finished"}, [])


BATTERY = (
    Check("three rounds run, and nothing is NaN", ANY, runs),
    Check("the same seed is the same bits", ANY, same_bits),
    Check("lost actors change no bit", ANY, forgets_nothing),
    Check("kill and resume change no bit", ANY, resumes),
    Check(
        "vectorised is sequential", (AlgorithmOptions, Optimizer, Loss, Model, Augmentation),
        vectorised_is_sequential,
    ),
    Check("sizes of blocks: rounding only", (AlgorithmOptions, Loss), blocks_do_not_matter),
    Check("the ledger has what is sent", (AlgorithmOptions,), ledger_is_what_is_sent),
    Check("any order of rows", (Aggregator,), aggregates_any_order),
    Check("weights sum the rows to the vector", (Aggregator,), weights_make_the_vector),
    Check("weights have the sum 1", (Aggregator,), weights_are_weights),
    Check("messages are each row's own", (Compressor,), compresses),
    Check("cohorts are drawn by seed and round", (Sampler,), samples_distinct),
    Check("shared out by the seed", (Partitioner,), shares_out),
    Check("loaded twice, the same", (Dataset,), loads_the_same),
    Check("built by the seed; each sample by itself", (Model,), builds_the_same),
    Check("each input by its own draws", (Augmentation,), changes_each_by_itself),
    Check("gradient of its values; each sample by itself", (Loss,), has_its_gradient),
    Check("any order of rows", (Metric,), measures_any_order),
    Check("who is malicious is by the seed", (Attack,), attacks_by_the_seed),
    Check("rounds, a resume and an end are taken", (Tracker,), logs),
)  # fmt: skip


def _require_equal(one: Experiment, other: Experiment, what: str, hint: str = "") -> None:
    if one.state_sha256() != other.state_sha256():
        raise Fault(f"{what} has another state{hint}")


def _require_close(one: Experiment, other: Experiment, what: str, hint: str = "") -> None:
    a, b = one.algorithm.model(), other.algorithm.model()
    if not _near(a, b):
        apart = float((a - b).abs().max())
        raise Fault(f"{what} makes a model that is up to {apart:.2g} apart{hint}")
