"""What a further attack found: code of others that writes into what it is given, says what it may
not, or counts what did not happen; all of it was exit code 0 and other numbers.
"""

import json
import threading
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch

import fedorch
from algorithms.contract import Broken
from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule
from algorithms.part import variants
from algorithms.parts.aggregators import Mean
from algorithms.parts.attacks import SignFlip
from algorithms.parts.compressors import TopK
from algorithms.parts.metrics import BalancedAccuracy
from algorithms.parts.monitors import Length
from algorithms.parts.round_ends import Fixed
from algorithms.parts.samplers import Sampler, Uniform
from algorithms.parts.schedules import Cosine
from orchestrator.cli.holdings import show_data
from orchestrator.config import load
from orchestrator.data.partitioners import Iid
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.rounds.drive import client_table
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import over_clients, over_cohort
from tests.configs import small
from tests.running import finish


def test_who_did_no_step_has_no_loss():
    """The mean over a client's steps is none of a client without steps: it was 0."""
    diagnostics = {
        "steps": np.array([4.0, 0.0, 4.0]),
        "train_loss": np.array([1.0, 0.0, 2.0]),
        "gradient_norm/a": np.array([3.0, 0.0, 5.0]),
        "update_norm": np.array([1.0, 0.0, 2.0]),
    }
    found = over_cohort(diagnostics, np.ones(3, bool))
    assert found == pytest.approx(
        {"steps": 8 / 3, "train_loss": 1.5, "gradient_norm/a": 4.0, "update_norm": 1.0}
    )
    assert "train_loss" not in over_cohort(diagnostics, np.array([False, True, False]))


def test_an_idle_client_is_left_out_of_the_training_loss(monkeypatch):
    """Two of six have less than a batch."""
    sizes = [10, 90, 90, 90, 90, 30]
    monkeypatch.setattr(
        Iid, "split", lambda self, pool: np.split(np.arange(400), np.cumsum(sizes[:-1]))
    )
    work = ("cohort=6", "local.drop_last=true", "local.batch_size=64", "data.partition=iid")
    run = finish(small("rounds=1", *work))
    told = run.federation.log.diagnostics
    assert (told["steps"] > 0).tolist() == [False, True, True, True, True, False]
    assert run.records[0]["train_loss"] == pytest.approx(told["train_loss"][1:5].mean())


def test_the_servers_own_update_is_not_compressed():
    """It does not travel: FLTrust's reference had a tenth of its entries."""
    seen = []
    config = small(
        "rounds=2", "aggregator=fltrust", "data.heldout.per_class=3",
        "compression.uplink={name: top_k, fraction: 0.1}",
    )  # fmt: skip
    made = type(config.aggregator).combine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(config.aggregator),
            "combine",
            lambda self, rows: (seen.append(rows), made(self, rows))[1],
        )
        run = finish(config)
    for rows in seen:
        assert (rows.reference != 0).float().mean() > 0.5
        assert ((rows.updates != 0).float().mean(1) <= 0.1).all()
    assert not run.federation.store.states.get(6, {}).get("error/delta", torch.zeros(1)).any()


def test_a_compressor_may_work_in_place(monkeypatch):
    config = small("rounds=3", "compression.uplink={name: top_k, fraction: 0.1}")
    expected = finish(config).state_sha256()
    plain = TopK.compress

    def in_place(self, rows, draws):
        rows.copy_(plain(self, rows.clone(), draws))
        return rows

    monkeypatch.setattr(TopK, "compress", in_place)
    assert finish(config).state_sha256() == expected


class Noisy(torch.nn.Module):
    """Draws in training."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(5, 16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.outer(torch.nn.functional.dropout(self.inner(x).relu(), 0.5, self.training))


def toy(rows=90):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    return x, np.argmax(x[:, :3], 1)


def noisy():
    torch.manual_seed(3)
    model = Noisy()
    work = {"local.steps": 10, "local.batch_size": 8, "rounds": 6, "data.clients": 3, "cohort": 1.0}
    return fedorch.Experiment(model=model, data=toy(), **work)


def test_runs_in_threads_draw_their_own():
    one = noisy()
    one.run()
    several = [noisy() for _ in range(3)]
    threads = [threading.Thread(target=run.run) for run in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.weights_sha256() for run in several} == {one.weights_sha256()}


def test_what_is_given_is_the_runs_own():
    x, y = toy()
    digests = []
    for overwritten in (False, True):
        mine, labels = x.copy(), y.copy()
        samples = fedorch.Samples(x=mine, y=labels, train=70, classes=3)
        run = fedorch.Experiment(model="linear", data=samples, rounds=2, **{"data.clients": 3})
        if overwritten:
            mine[:], labels[:] = 0, 0
        run.run()
        digests.append(run.weights_sha256())
    assert digests[0] == digests[1]


@dataclass(frozen=True)
class Halving(LocalRule):
    """Writes into what the other clients have received, too."""

    def upload(self, work):
        delta = work.w - work.start
        work.received["w"].mul_(0.5)
        return {"delta": delta}


def test_what_all_have_received_is_not_written_to(monkeypatch):
    monkeypatch.setattr(FedAvg, "rule", lambda self: Halving())
    with pytest.raises(UserError, match=r"Halving changes work.received\['w'\] in place"):
        finish(small())


def test_columns_of_clients_are_as_they_were_then(monkeypatch):
    mine = np.zeros(6)

    def counted(self):
        mine[:] += 1
        return {"mine": mine}

    monkeypatch.setattr(FedAvg, "by_client", counted)
    table = client_table(finish(small()))
    assert table.groupby("round")["mine"].first().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"round": np.full(6, 99)}, "'round', which is a column that is there anyway"),
        ({"loss": np.full(6, 7.0)}, "'loss', which is a column that is there anyway"),
        ({"malicious": np.ones(6, bool)}, "'malicious', which is a column that is there anyway"),
        ({"mine": np.zeros(5)}, "'mine' that is not a number of each of 6 clients"),
        ({"mine": 3.0}, "'mine' that is not a number of each of 6 clients"),
        ({"mine": ["a"] * 6}, "'mine' that is not a number of each of 6 clients"),
        ({"my\rown": np.zeros(6)}, r"'my\\rown' as the name of a column; names are texts of one"),
    ],
)
def test_columns_of_clients_are_numbers_of_each_under_new_names(monkeypatch, told, said):
    monkeypatch.setattr(FedAvg, "by_client", lambda self: told)
    with pytest.raises(UserError, match=said):
        finish(small("rounds=1"))


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        ({"test_accuracy": 0.1}, "'test_accuracy', which is a name of what models are judged by"),
        ({"client_accuracy_mean": 9.0}, "'client_accuracy_mean', which is a name of"),
        ({"unjudged": 1.0}, "'unjudged', by which every round records"),
        ({"foo": torch.tensor(1.5)}, "'foo' as a Tensor; give a number"),
        ({"foo": "bar"}, "'foo' as a str; give a number"),
        ({"foo": None}, "'foo' as a NoneType; give a number"),
        ({"a\nb": 1.0}, r"'a\\nb' as the name of a number; names are texts of one line"),
        ({"": 1.0}, "'' as the name of a number"),
    ],
)
def test_rounds_report_numbers_under_names_of_their_own(monkeypatch, reported, said):
    plain = FedAvg.round
    monkeypatch.setattr(FedAvg, "round", lambda self, t, c: plain(self, t, c) | reported)
    with pytest.raises(UserError, match=said):
        finish(small("rounds=1"))


def test_a_sampler_cannot_change_who_has_how_much(monkeypatch):
    def greedy(self, draw, size):
        draw.samples[:] = draw.samples[::-1].copy()
        return np.arange(size)

    monkeypatch.setattr(Uniform, "sample", greedy)
    with pytest.raises(ValueError, match="read-only"):
        finish(small("aggregator=weighted_mean"))


@pytest.mark.parametrize("weights", [[0.5] * 4, [0.5, 0.5], [1.5, -0.5, 0, 0], [np.nan] * 4])
def test_weights_are_weights(monkeypatch, weights):
    monkeypatch.setattr(Mean, "weights", lambda self, samples, counts: np.array(weights))
    with pytest.raises(UserError, match=r"the weights of 4 clients are .*, and not as many"):
        finish(small("rounds=1"))


@pytest.mark.parametrize(
    "settings",
    [
        ("algorithm=drdsgd", "compression.uplink=top_k"),
        ("algorithm=drdsgd", "compression.downlink=qsgd"),
        ("algorithm=local", "compression.uplink=top_k"),
        ("algorithm=local", "local.optimizer_state=average", "local.optimizer=adam"),
        ("algorithm=server_only", "compression.uplink=top_k"),
    ],
)
def test_what_would_have_no_effect_is_refused(settings):
    with pytest.raises(UserError, match=r"sends nothing through|no server that averages"):
        small(*settings)


def test_the_clock_looks_into_a_plain_round():
    """As into one whose round end counts the same steps; from the first evaluation on."""
    work = ("rounds=2", "local.steps=10", "evaluation.every_steps=4", "cohort=4")
    plain = finish(small(*work))
    counted = finish(small(*work, "round_end={name: fixed, steps: longest}"))
    assert [r["evaluated_steps"] for r in plain.records] == [8, 20]
    same = ("test_accuracy", "test_loss", "evaluated_steps")
    for one, other in zip(plain.records, counted.records, strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]
    unwatched = finish(small("rounds=2", "local.steps=10", "cohort=4"))
    assert plain.weights_sha256() == unwatched.weights_sha256()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda parts: parts[:-1], "iid makes 5 lists of rows for 6 clients"),
        (lambda parts: [p - 1 for p in parts], "are not whole numbers from 0 to 399"),
        (lambda parts: [p + 9999 for p in parts], "are not whole numbers from 0 to 399"),
        (
            lambda parts: [p.astype(float) for p in parts],
            "gives client 0 are not whole numbers from 0",
        ),
    ],
)
def test_a_partition_gives_each_client_positions(monkeypatch, wrong, said):
    plain = Iid.split
    monkeypatch.setattr(Iid, "split", lambda self, pool: wrong(plain(self, pool)))
    config = small("data.partition=iid")
    for look in (Experiment, lambda config: show_data(config, None)):
        with pytest.raises(UserError, match=said):
            look(config)


def test_a_compressor_says_whole_bytes(monkeypatch):
    monkeypatch.setattr(TopK, "nbytes", lambda self, size: size * 1.3)
    with pytest.raises(UserError, match="messages have whole bytes"):
        finish(small("compression.uplink=top_k"))


def test_a_forgery_of_another_type_is_one(monkeypatch):
    config = small("rounds=1", "attack={name: sign_flip, fraction: 0.5}")
    expected = finish(config).state_sha256()
    plain = SignFlip.forge
    monkeypatch.setattr(SignFlip, "forge", lambda self, *given: plain(self, *given).double())
    assert finish(config).state_sha256() == expected


class Overwriting(torch.nn.Linear):
    """Not a function of its inputs alone, which it spoils."""

    def forward(self, x):
        x *= 2
        return super().forward(x)


def test_a_network_that_writes_into_its_inputs_is_told_so():
    with pytest.raises(UserError, match="it writes into its inputs"):
        fedorch.Experiment(model=Overwriting(5, 3), data=toy(), **{"data.clients": 3})


def test_sections_in_a_mapping_are_nested():
    with pytest.raises(UserError, match=r"sections are nested: local: \{steps: ...\}"):
        fedorch.run({"local.steps": 2})


@pytest.mark.parametrize("seeds", [[0, True], [], range(0)])
def test_seeds_are_numbers_and_some(seeds):
    with pytest.raises(UserError, match="seeds: give whole numbers"):
        fedorch.run(seeds=seeds)


def test_a_tenth_is_rounded_halves_upwards():
    """Of 25 clients it was two, and of 15 as well."""
    for clients, tenth in ((4, 1), (14, 1), (15, 2), (25, 3), (35, 4), (45, 5), (100, 10)):
        sums = np.stack([np.arange(clients), np.ones(clients), np.full(clients, 100.0)], 1)
        found = over_clients(sums, "client")
        assert found["client_accuracy_worst10"] == pytest.approx(np.mean(np.arange(tenth)) / 100)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"owner": [0, 1, 2] * 30}, "owner is of type list, and not an array of NumPy's"),
        ({"owner": np.arange(90) % 3 + 0.5}, "owner is float64, and not whole numbers"),
        ({"x": [[0.0] * 5] * 90}, "x is of type list"),
        ({"y": np.zeros(90)}, "y is float64, and not whole numbers"),
        ({"train": 60.5}, "train is '60.5', and not a whole number"),
        ({"classes": 3.0}, "classes is '3.0', and not a whole number"),
        ({"targets": [[1.0]] * 90}, "targets is of type list"),
    ],
)
def test_samples_of_other_types_are_told_by_their_field(wrong, said):
    """Owners of .5 were rounded down without a word, the others were tracebacks."""
    x, y = np.ones((90, 5), np.float32), np.arange(90) % 3
    whole = {"x": x, "y": y, "train": 60, "classes": 3, "mean": (), "std": ()}
    samples = fedorch.Samples(**(whole | wrong))
    with pytest.raises(UserError, match=said):
        fedorch.Experiment(model=torch.nn.Linear(5, 3), data=samples, **{"data.clients": 3})


def test_a_part_that_is_not_finished_is_told_what_it_lacks(tmp_path):
    """The likeliest mistake of who writes one was a fault of ours."""
    kinds = ("Aggregator", "Sampler", "Compressor", "Dataset", "Loss", "ServerOptimizer")
    keys = ("aggregator", "sampler", "compression.uplink", "data.dataset", "loss")
    texts = [f'class {k}(fedorch.{k}):\n    name: str = "bare_{k.lower()}"\n' for k in kinds]
    file = tmp_path / "bare.py"
    file.write_text("import fedorch\n\n\n" + "\n\n".join(texts))
    for key, kind in zip((*keys, "server_optimizer"), kinds, strict=True):
        with pytest.raises(UserError, match=rf"'bare_{kind.lower()}' does not define \w+"):
            load(None, [f"{key}=bare_{kind.lower()}"], [str(file)])


def test_a_report_beyond_all_floats_is_told(monkeypatch):
    monkeypatch.setattr(FedAvg, "round", lambda self, t, clients: {"z": 10**400})
    with pytest.raises(UserError, match="round returns 'z' as a int"):
        Experiment(small("rounds=1")).step()


@pytest.mark.parametrize(
    "forged", [lambda h: h[:1], lambda h: h.mean(0), lambda h: h[:, :1], lambda h: h.new_ones(())]
)
def test_a_forgery_is_one_for_each(monkeypatch, forged):
    """It was spread over all of them without a word."""
    monkeypatch.setattr(SignFlip, "forge", lambda self, honest, known, draws: forged(honest))
    with pytest.raises(UserError, match=r"attack sign_flip: of uploads of shape \(3, \d+\)"):
        finish(small("rounds=1", "attack={name: sign_flip, ids: [0, 1, 2]}", "cohort=1.0"))


@pytest.mark.parametrize("ids", [[99], [-1], np.array([0.5]), np.ones(6, bool), [[0], [1]], [1, 1]])
def test_the_malicious_are_clients(monkeypatch, ids):
    """Others attacked nobody, and nobody said so."""
    monkeypatch.setattr(SignFlip, "malicious", lambda self, seed, clients: np.array(ids))
    with pytest.raises((UserError, ValueError), match="not different numbers of clients, from 0"):
        finish(small("rounds=1", "attack={name: sign_flip, fraction: 0.5}"))


def test_what_a_rule_does_as_it_begins_is_looked_at(monkeypatch):
    plain = LocalRule.begin

    def begin(self, work):
        work.received["w"].mul_(0.5)
        return plain(self, work)

    monkeypatch.setattr(LocalRule, "begin", begin)
    with pytest.raises(UserError, match=r"changes work.received\['w'\] in place"):
        finish(small("rounds=1"))


@pytest.mark.parametrize("made", [lambda g: g.mean(), lambda g: g.mean(0), lambda g: g[:, :1]])
def test_a_direction_is_as_large_as_a_gradient(monkeypatch, made):
    monkeypatch.setattr(LocalRule, "direction", lambda self, g, work: made(g))
    with pytest.raises(UserError, match="its direction is of shape"):
        finish(small("rounds=1", "local.steps=2"))


@pytest.mark.parametrize("value", [torch.tensor(0.5), np.bool_(True), True, None, "0.5"])
def test_a_metric_is_a_number(monkeypatch, value):
    """A tensor cost the tables at the end of the run."""
    monkeypatch.setattr(BalancedAccuracy, "value", lambda self, outputs, targets: value)
    with pytest.raises(UserError, match="metric balanced_accuracy: its value is a "):
        finish(small("rounds=1", "evaluation.metrics=[balanced_accuracy]"))


def test_a_round_end_is_shown_the_model_and_does_not_change_it(monkeypatch):
    plain = Fixed.run

    def halving(self, training, about):
        about.w.mul_(0.5)
        return plain(self, training, about)

    monkeypatch.setattr(Fixed, "run", halving)
    with pytest.raises(UserError, match=r"round end fixed: it changes about\.w in place"):
        finish(small("rounds=1"))


def _in_place(work):
    work.w.mul_(0.5)


def _another(work):
    work.w = work.w * 0.5


@pytest.mark.parametrize("change", [_in_place, _another])
def test_a_question_does_not_change_what_it_is_about(monkeypatch, change):
    plain = Length.answer

    def answer(self, work):
        change(work)
        return plain(self, work)

    monkeypatch.setattr(Length, "answer", answer)
    with pytest.raises(UserError, match=r"Length changes work\.w, which the clients go on"):
        finish(small("rounds=1", "round_end={name: fda, theta: 1.0, monitor: naive}"))


@pytest.mark.parametrize("key", ["schedule", "within"])
@pytest.mark.parametrize("factor", [-0.5, float("nan"), float("inf"), None, "1"])
def test_a_schedule_gives_factors(monkeypatch, key, factor):
    """A rate below 0 climbed the loss without a word."""
    monkeypatch.setattr(Cosine, "after", lambda self, rounds: factor)
    with pytest.raises((UserError, Broken), match="schedule cosine: its factor of round or step 1"):
        finish(small("rounds=1", f"local.{key}=cosine"))


def test_a_schedule_may_go_beyond_its_beginning(monkeypatch):
    monkeypatch.setattr(Cosine, "after", lambda self, rounds: 2.0)
    twice = finish(small("rounds=1", "local.lr=0.05", "local.schedule=cosine"))
    assert twice.state_sha256() == finish(small("rounds=1", "local.lr=0.1")).state_sha256()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"x": np.ma.masked_less(np.ones((90, 5), np.float32), 0)}, "x is a masked array"),
        ({"y": np.ma.masked_equal(np.arange(90) % 3, 2)}, "y is a masked array"),
        ({"names": np.array(["a", "b", "c"])}, "names is to be a tuple of texts"),
        ({"names": (0, 1, 2)}, "names is to be a tuple of texts"),
        ({"owner": np.arange(90) % 3, "owners": (0, 1, 2)}, "owners is to be a tuple of texts"),
        ({"names": ("a", "b")}, "2 names are not one for each of 3 classes"),
        ({"owner": np.arange(90) % 3, "owners": ("a",)}, "1 names of owners, whose numbers go to"),
        ({"classes": 10**9}, "there are 1,000,000,000 classes; 1,000,000 are the most"),
    ],
)
def test_samples_say_what_they_can_mean(wrong, said):
    x, y = np.ones((90, 5), np.float32), np.arange(90) % 3
    samples = fedorch.Samples(**({"x": x, "y": y, "train": 60, "classes": 3} | wrong))
    with pytest.raises(UserError, match=said):
        fedorch.Experiment(model=torch.nn.Linear(5, 3), data=samples, **{"data.clients": 3})


PROPERTIES = """
import fedorch

class Short(fedorch.Aggregator):
    name: str = "short"
    def weights(self, samples):
        return samples / samples.sum()
    def combine(self, rows):
        raise NotImplementedError

class Odd(fedorch.Metric):
    name: str = "odd"
    @property
    def called(self):
        return CALLED
    def value(self, outputs, targets):
        return 0.0
"""


@pytest.mark.parametrize(
    ("called", "setting", "said"),
    [
        ("''", "aggregator=short", r"props\w*: TypeError: .*weights\(\) takes 2 positional"),
        ("3", "evaluation.metrics=[odd]", r"metrics: '3' is no name"),
        ("'a\\nb'", "evaluation.metrics=[odd]", r"metrics: 'a\\nb' is no name"),
        ("1 / 0", "evaluation.metrics=[odd]", "plugins: props, line 15, in called: ZeroDivision"),
    ],
)
def test_what_is_asked_before_the_run_is_told_by_its_line(tmp_path, called, setting, said):
    """It was a fault of ours by its words."""
    file = tmp_path / "props.py"
    file.write_text(PROPERTIES.replace("CALLED", called))
    settings = ["data.limit=400", "model=linear", "rounds=1", setting]
    with pytest.raises(UserError, match=said):
        Experiment(load(None, settings, [str(file)]))


def test_linear_remembers_the_model_and_not_the_tensor(monkeypatch):
    """An algorithm that adds in place made ξ a random direction, and clients synchronise at other
    steps."""
    config = small(
        "rounds=4", "cohort=1.0", "local.steps=8", "round_end={name: fda, theta: 0.5}"
    )  # fmt: skip
    expected = finish(config)

    def in_place(self, updates):
        self.w += self.aggregate(updates, "delta")
        self.take_buffers(updates)

    monkeypatch.setattr(FedAvg, "apply", in_place)
    found = finish(config)
    for name in ("variance_estimate", "round_steps"):
        assert [r.get(name) for r in found.records] == [r.get(name) for r in expected.records]


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.int64(3), np.bool_(True), np.float16(2), Fraction(1, 3), 2**70]
)
def test_what_is_reported_is_a_float(monkeypatch, tmp_path, number):
    """NumPy's numbers were texts in result.json, and a fault of ours at the first checkpoint."""
    plain = FedAvg.round
    monkeypatch.setattr(FedAvg, "round", lambda self, t, c: plain(self, t, c) | {"lost": number})
    run = finish(small("rounds=1"))
    assert type(run.records[0]["lost"]) is float
    assert json.loads(json_text(run.records[0]))["lost"] == float(number)


@pytest.mark.parametrize("declared", [["lost"], "lost", {"lost"}, {"lost": 1}, {3: "lost"}])
@pytest.mark.parametrize("name", ["records", "headline"])
def test_what_is_recorded_is_declared_by_name(name, declared):
    """It was a fault of ours, of every run that named the file."""
    with pytest.raises(TypeError, match=rf"Declaring.{name} is to be") as refused:
        type("Declaring", (Uniform,), {name: declared, "__module__": __name__})
    # while its traceback lives the class does, too
    assert refused.tb
    assert variants(Sampler)["uniform"] is Uniform


def test_a_server_may_step_in_inference_mode(monkeypatch):
    expected = finish(small("rounds=2")).weights_sha256()
    plain = FedAvg.apply

    def apply(self, updates):
        with torch.inference_mode():
            plain(self, updates)

    monkeypatch.setattr(FedAvg, "apply", apply)
    assert finish(small("rounds=2")).weights_sha256() == expected


def test_a_state_that_comes_to_hold_itself_is_told(monkeypatch):
    def apply(self, updates):
        as_usual(self, updates)
        self.past = {"me": None}
        self.past["me"] = self.past

    as_usual = FedAvg.apply
    monkeypatch.setattr(FedAvg, "apply", apply)
    monkeypatch.setattr(FedAvg, "server_state", (*FedAvg.server_state, "past"))
    with pytest.raises(UserError, match="no checkpoint can hold past/me: it holds itself"):
        Experiment(small()).step()
