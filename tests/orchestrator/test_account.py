"""What parts say that they did: the sentences count what the rounds recorded."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from algorithms.drdm import DRDM
from algorithms.fda import Fda
from algorithms.parts.attacks import SignFlip
from algorithms.parts.round_ends import Fixed
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.account import account_of
from rl.weighers import Ddpg
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish, run_into

NAN = float("nan")


def told(part, **columns):
    return " ".join(part.account({name: np.array(values) for name, values in columns.items()}))


def test_fda_counts_its_synchronisations_and_what_every_step_would_have_sent():
    """Two rounds of 3 and 5 steps; 50 bytes a synchronisation beside 6 of questions."""
    text = told(
        Fda(), round=[1.0, 2.0], round_steps=[3.0, 5.0], exceeded=[1.0, 0.0],
        bytes_up=[31e6, 31e6], bytes_down=[25e6, 25e6], bytes_questions=[6e6, 6e6],
    )  # fmt: skip
    assert "synchronised 2 times in 8 local steps: 1 as H exceeded Θ, 1 as their local" in text
    assert f"about {8 * 50} MB, {8 * 50 / 112:.3g} times" in text


@pytest.mark.parametrize("cohort", [3, 1.0])
def test_what_every_step_would_have_sent_is_what_it_sends(cohort):
    """It had what a monitor's states are made with, too, where clients cannot work that out."""
    asked = small(
        "round_end={name: fda, theta: 1e9}", "rounds=3", "local.steps=4", f"cohort={cohort}"
    )
    often = finish(small("rounds=12", "local.steps=1", f"cohort={cohort}"))
    sent = sum(record["bytes_up"] + record["bytes_down"] for record in often.records)
    (_, said), _ = account_of(asked, finish(asked).records)
    assert f"would have sent about {sent / 1e6:,.4g} MB" in said


def test_fda_that_synchronises_every_step_is_called_what_it_is():
    text = told(Fda(), round_steps=[1.0], exceeded=[1.0], bytes_up=[5.0], bytes_down=[5.0])
    assert text == (
        "The clients synchronised 1 times in 1 local steps: 1 as H exceeded Θ. "
        "That is synchronous training: a larger Θ would save bytes."
    )


def test_an_agent_says_what_it_means_and_how_much_of_it_was_executed():
    rounds = {"round": [1.0, 2.0, 3.0], "agent_critic_loss": [NAN, 0.5, 0.4]}
    assert told(Ddpg(), **rounds) == "The agent (ddpg) was updated in 2 of 3 rounds."
    assert "a correlation of 0.25 with" in told(
        Ddpg(), **rounds, policy_correlation=[0.5, NAN, 0.0]
    )
    said = told(Ddpg(), **rounds, policy_effective=[3.0, 2.0, 1.07])
    assert "weighs as if 1.1 clients counted alike at the end, and 3.0 at the beginning" in said
    assert "one client a round has nearly all weight" in said
    assert "collapsed" not in told(Ddpg(), **rounds, policy_effective=[3.0, 2.0, 1.7])


def test_an_attack_says_what_of_the_aggregate_it_had():
    clients = [0.0, 0.3, NAN, 0.3]
    text = told(SignFlip(), malicious_weight=[0.0, 0.5, NAN, 0.1], malicious_selected=clients)
    assert "had 20% of the aggregate's weight" in text
    assert "were 20% of the clients that it used; in 1 of 3 rounds they had none." in text
    assert "left out the others" not in text
    most = told(SignFlip(), malicious_weight=[1.0, 0.4], malicious_selected=[1.0, 0.5])
    assert "That is most of it: what was to leave them out has left out the others." in most
    never = told(SignFlip(), malicious_weight=[0.0, NAN, 0.0], malicious_selected=[0.0, NAN, 0.0])
    assert never == "No aggregate of the 2 rounds had anything of the attackers' in it."
    # where coordinates are chosen one by one, nobody has a weight
    assert told(SignFlip()) == ""


def test_a_game_says_where_its_mixture_ended():
    text = told(DRDM.Options(), dual_effective=[6.0, 2.5], dual_max=[0.2, 0.625])
    assert "spread over 2.5 clients" in text
    assert "largest entry is 0.625" in text


class Mute(Fixed):
    """A round end of a user's own, whose last words fail."""

    name: str = "mute_in_test_account"
    records: ClassVar = {}

    def account(self, rounds):
        yield f"{len(rounds['round'])} rounds."
        raise ZeroDivisionError("none")


def test_a_part_that_cannot_speak_loses_no_run(tmp_path):
    folder = RunFolder.new(tmp_path / "run")
    run_into(folder, small("rounds=2", "round_end=mute_in_test_account"))
    result = folder.result()
    assert result["status"] == "finished"
    assert "mute_in_test_account cannot say what it did: ZeroDivisionError" in result["notes"][-1]


class Terse(Fixed):
    """A round end that gives one sentence, and no list of them."""

    name: str = "terse_in_test_account"
    records: ClassVar = {}

    def account(self, rounds):
        return "All is said."


def test_one_sentence_is_not_its_letters(tmp_path):
    run_into(RunFolder.new(tmp_path / "run"), small("rounds=1", "round_end=terse_in_test_account"))
    assert RunFolder(tmp_path / "run").result()["account"] == ["All is said."]


def test_it_stands_in_the_result_on_the_page_and_on_the_terminal(tmp_path):
    code, text = here(
        "run", "--in-process", "--out", tmp_path / "run", "--set", "data.dataset=fashion_mnist_10k",
        "--set", "data.limit=200", "--set", "model=linear", "--set", "rounds=2", "--set",
        "round_end=fda", "--set",
        "local={steps: 3}", "--set", "data.clients=4", "--set", "cohort=4",
    )  # fmt: skip
    assert code == 0, text
    folder = RunFolder(tmp_path / "run")
    first, *_ = account = folder.result()["account"]
    assert first in text
    assert first in (tmp_path / "run" / "report.html").read_text()
    rounds = folder.rounds()
    assert isinstance(rounds, pd.DataFrame)
    assert account == account_of(folder.config(), rounds.to_dict("records"))[0]


def test_wallclock_takes_the_runs_own_steps(tmp_path):
    """Where no other hardware is in mind: seconds of a client's computing over its steps."""
    run_into(RunFolder.new(tmp_path / "run"), small("rounds=2", "local.steps=4"))
    rounds = RunFolder(tmp_path / "run").rounds()
    each = 1e3 * rounds["seconds_client"].sum() / rounds["steps"].sum()
    assert each == pytest.approx(1e3 * rounds["seconds_client"].mean() / 4)
    code, text = here("wallclock", tmp_path / "run")
    assert code == 0, text
    assert f"{each:.3g}" in text
    assert "--step-ms" in text
