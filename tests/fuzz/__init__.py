"""A battery of odd cases: what is given is used, or refused in one sentence, and never anything else.

``family`` says what a family of cases is, ``judge`` is the one oracle, ``schema`` and ``oddities``
are where values come from; each other file is a family. ``python -m tests.fuzz`` runs them for
hours (``campaign``, ``worker``), ``test_fuzz`` the first few cases of each for seconds.

Cases are not hypothesis': that stops at the first failure, while a campaign must go on past it,
count, and name a case by its number, which alone says what is in it.
"""
