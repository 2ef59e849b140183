"""The first cases of every family: what goes on for hours in ``make fuzz`` runs, and finds nothing in
seconds."""

import pytest

from tests.fuzz.commands import _commands
from tests.fuzz.families import FAMILIES
from tests.fuzz.judge import judged

SEED = 0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_case_is_used_or_refused_in_a_sentence(name):
    """The same cases each time: only this plays values that no test thought of."""
    family = FAMILIES[name]
    wrong = {}
    for number in range(family.quick):
        verdict = judged(family, family.pieces(SEED, number))
        if verdict.outcome == "failed":
            wrong[number] = f"{verdict.cause}: {verdict.said[:300]}"
    assert not wrong, (
        f"python -m tests.fuzz --seed {SEED} --family {name} --case {next(iter(wrong))}"
    )


def test_commands_have_the_words_that_a_user_has():
    """Once they had a name that is none in front, and all were refused for it."""
    words = [" ".join(path) for path, _ in _commands()]
    assert {"run", "compare", "sweep", "table", "submit"} <= set(words)
    assert all(word.replace(" ", "").isidentifier() for word in words), words
