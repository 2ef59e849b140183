"""Every column of a run's tables has a meaning, and every key of a config a description."""

import re
from typing import ClassVar

import pytest

from algorithms.fedavg import FedAvg
from orchestrator.cli.catalogue import KINDS
from orchestrator.config import Config
from orchestrator.config.sentences import keys_of
from orchestrator.results.columns import all_of_them, of_client, of_round
from orchestrator.rounds.drive import client_table
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish

EACH = {
    "drdm": ["algorithm=drdm"],
    "afl": ["algorithm=afl"],
    "fedaa": ["algorithm={name: fedaa, agent: uniform, per_class: true}", "cohort=1.0",
              "data.heldout.per_class=3"],
    "clustered": ["algorithm=clustered"],
    "drdsgd": ["algorithm=drdsgd"],
    "ditto": ["algorithm=ditto"],
    "fda": ["round_end=fda"],
    "fda_opt": ["round_end=fda_opt"],
    "fda_async": ["round_end=fda_async"],
    "attacked": ["attack={name: gaussian, fraction: 0.4}"],
    "barycenter": ["aggregator={name: barycenter, layers: 1}"],
    "all": ["evaluation.gradient_norms=true", "evaluation.local_models=true",
            "data.validation.clients=0.1", "data.validation.server=0.1", "loss=cross_entropy",
            "evaluation.metrics=[f1_macro]", "evaluation.every_steps=2"],
}  # fmt: skip


@pytest.mark.parametrize("name", EACH)
def test_every_column_has_a_meaning(name):
    run = finish(small("rounds=2", *EACH[name]))
    columns = {column for record in run.records for column in record}
    assert [column for column in sorted(columns) if not of_round(column)] == []
    assert [column for column in client_table(run) if not of_client(column)] == []


def test_a_part_of_one_s_own_declares_what_it_records():
    class Told(FedAvg):
        class Options(FedAvg.Options):
            """Tells its temperature."""

            name: str = "told_of_tests"
            records: ClassVar = {"temperature": "of the kettle", "client/cups": "drunk"}

    assert of_round("temperature") == "of the kettle"
    assert of_client("cups") == "drunk"
    assert ("rounds", "temperature", "of the kettle") in [*all_of_them()]
    assert of_round("nobody_knows") == ""


def test_names_that_are_put_together():
    assert of_round("client_validation_f1_macro_worst10") == (
        "f1 macro: mean of the worst tenth of the clients, of the judged model on each honest "
        "client's own rows (kept back for choices)"
    )
    assert of_round("test_loss") == "mean loss, of the judged model on the test set"
    assert of_round("personal_accuracy_mean").startswith("part of the rows that is right: mean")
    assert "layer 3" in of_round("gradient_norm/3")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("malicious_weight", "weight that malicious clients had"),
        ("client_accuracy_worst10", "worst tenth of the clients"),
        ("joules", "energy that it has spent"),
    ],
)
def test_a_column_is_described_by_its_name(name, said):
    code, text = here("describe", name)
    assert code == 0, text
    assert said in re.sub(r"[\s│┃]+", " ", text)
    code, text = here("describe", f"{name}x")
    assert (code, name in text) == (2, True)


def test_every_key_is_described():
    bare = [key for key, field in keys_of(Config) if not field.description]
    families = {key for key, _ in KINDS.values()} | {"compression.downlink"}
    assert [key for key in bare if key not in families] == []
    for key in ("local.lr", "stop", "evaluation.every", "data.clients"):
        code, text = here("describe", key)
        assert code == 0, text
        assert key in text
    code, text = here("describe", "aggregator")
    assert code == 0
    assert "centered_clipping" in text
    code, text = here("describe", "columns")
    assert code == 0
    assert "mixture_loss" in text


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("local.lrr", "local.lr,"),
        ("locl.lr", "local.lr,"),
        ("aggregatr", "did you mean aggregator"),
        ("nosuch", "`fedorch list` has all parts"),
    ],
)
def test_what_is_near_is_named(wrong, near):
    code, text = here("describe", wrong)
    assert code == 2
    assert near in text
    assert text.count(",") <= 4
