"""Errors that a user can act on: one sentence each, exit code 2."""

from __future__ import annotations

from orchestrator.credentials import discreet, has_credentials

LONGEST = 1000
"""Most characters of a message."""


def shown(text: str, besides: str = "") -> str:
    """``text`` with escapes for what cannot be seen, but for the characters ``besides``: names from
    outside may hold what ends a line, moves the cursor, or turns the order of letters.
    """
    return "".join(c if c.isprintable() or c in besides else repr(c)[1:-1] for c in text)


class UserError(Exception):
    """Something that the user gave is wrong: a config, data, a checkpoint, a folder, a cluster.

    Whatever its sentence is made of, credentials are left out of it here: it is printed, logged,
    and stored as a run's ``error``.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(discreet(shown(sentence)))

    def __str__(self) -> str:
        """The sentence; its middle is left out where it repeats more than anyone would read."""
        text = super().__str__()
        left = LONGEST - 5
        return text if len(text) <= LONGEST else f"{text[: left - 300]} ... {text[-300:]}"


class Interrupted(UserError):
    """A signal has ended the command, which can be continued; its exit code is 130."""


class OtherCode(UserError):
    """Modules that plugins import have changed: whoever puts them back can go on."""


class Diverged(UserError):
    """An update, a loss or what the server made of them is NaN or infinite, and the run's policy is
    to fail, or there is nothing to go on with.
    """


def refuse_credentials(address: str, where: str) -> None:
    """Raises UserError, which does not repeat it, if ``address`` has credentials in it; ``where``
    says what it was given for.
    """
    if "://" in address and has_credentials(address):
        raise UserError(
            f"{where}: an address with a password, key or token in it is not taken, since shells, "
            "logs, dashboards and results would keep it; give credentials as the storage's own "
            "tools find them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"
        )
