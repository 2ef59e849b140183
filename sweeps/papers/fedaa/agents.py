"""What FedAA's agent adds, which the paper does not ask: its weights beside others on the same
selected clients, and the defences beside one another with and without knowledge of the attackers'
share.

- Exponentiated gradient and greedy selection look at the held-out rows until they find good weights
  for the round. They are yardsticks for what weights can gain there, not methods for a deployment.
- Columns have 0, 20, 40 and 20 % of attackers. FedAA is told nothing of that: M is 30 % in all of
  them, or 60 %. multi-Krum reckons with f = 20 % in all of them, or with 40 %, and so is told the
  truth in two columns, or in one. With 40 % it averages 60 clients, so it is compared with M =
  60 %, where only the choice of the clients differs.
- Every client does the same number of local steps. Ditto trains two models and does half of the
  steps on each; its row with all steps on each is there, too.
- Claims are about the server's model, which is what weights make. The clients' own, after local
  training, are shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweeps.entry import Budget, Claim, Column, Entry, Published, Settings
from sweeps.papers.fedaa.settings import (
    CHOSEN,
    COMMON,
    DATA,
    EMBEDDED,
    FEDAA,
    IMAGES,
    METHODS,
    PFNM,
    SMALL,
    TRIED,
    UNEQUAL,
    Cells,
    accuracy,
    both_models,
)

ATTACKS: dict[str, Settings] = {
    "clear": ("attack=none",),
    "same-value 20%": ("attack={name: same_value, fraction: 0.2}",),
    "sign-flip 40%": ("attack={name: sign_flip, fraction: 0.4}",),
    "IPM 20%": ("attack={name: ipm, fraction: 0.2}",),
}


ATTACKED = {name: settings for name, settings in ATTACKS.items() if name != "clear"}


def weigher(agent: str, select: float = 0.3) -> Settings:
    """FedAA's selection with another weigher; ``agent`` as a config has it."""
    return (
        f"algorithm={{name: fedaa, preset: paper, select: {select}}}",
        f"algorithm.agent={agent}",
    )


def told(defence: str) -> dict[str, Settings]:
    """A defence that reckons with 20, and with 40 % of attackers, in all columns."""
    name = defence.lower().replace(" ", "_").replace("-", "_")
    return {
        f"{defence}, f = {percent} %": (
            "algorithm=fedavg",
            f"aggregator={{name: {name}, byzantine: {percent / 100}}}",
        )
        for percent in (20, 40)
    }


AGENTS: dict[str, Settings] = {
    "FedAA (DDPG)": FEDAA,
    "DDPG, noise off": weigher("{name: ddpg, preset: paper, noise: none}"),
    "DDPG, published code": weigher("{name: ddpg, preset: authors}"),
    "TD3": weigher("{name: td3, preset: paper}"),
    "FedAA (DDPG), M = 60 %": weigher("{name: ddpg, preset: paper}", 0.6),
}
RULES: dict[str, Settings] = {
    "uniform weights": weigher("uniform"),
    "random weights": weigher("random"),
    "exponentiated gradient": weigher("exponentiated_gradient"),
    "greedy selection": weigher("greedy_selection"),
    "uniform weights, M = 60 %": weigher("uniform", 0.6),
}
DEFENCES: dict[str, Settings] = {
    **told("multi-Krum"),
    **told("Krum"),
    **told("trimmed mean"),
    "FedAvg": METHODS["FedAvg"],
    "FedAvg, unweighted": METHODS["FedAvg, unweighted"],
    "Ditto, all steps twice": METHODS["Ditto"],
    "Ditto, 10 + 10 epochs": (*METHODS["Ditto"], "local.epochs=10"),
}
ROWS: dict[str, Settings] = {**AGENTS, **RULES, **DEFENCES}
SHORT = (
    "FedAA (DDPG)", "DDPG, noise off", "uniform weights", "random weights",
    "exponentiated gradient", "greedy selection", "uniform weights, M = 60 %",
    "multi-Krum, f = 40 %", "FedAvg", "FedAvg, unweighted",
)  # fmt: skip
"""Rows of the reduced budget: 10, which with three attacks and five seeds are 150 runs. The two
yardsticks take two to three times as long as the others."""
FULL_SEEDS, FRESH_SEEDS = tuple(range(10)), tuple(range(10, 20))
MNIST: Settings = (*COMMON, *IMAGES, *DATA["mnist"], "data.partition=file")
FEW: Settings = (*SMALL, *EMBEDDED, PFNM, "data.clients=11")
"""Krum's least cohort for 40 % of attackers."""
FEW_HOW = TRIED.replace("8 clients", "11 clients")
FIFTH: Settings = (
    "rounds=40", "local.epochs=5", "local.block=25", "data.partition={name: file, fraction: 0.2}",
)  # fmt: skip
FIFTH_HOW = (
    "40 rounds of 5 epochs instead of 200 of 20, and so 40 updates of the agent, on a fifth of "
    "each client's training rows"
)
FRESH: dict[str, Budget] = {
    "smoke": Budget(FEW, reduced=FEW_HOW),
    "reduced": Budget(FIFTH, FRESH_SEEDS, reduced=f"{FIFTH_HOW}."),
    "full": Budget(seeds=FRESH_SEEDS),
}
CLAIMS = (
    ("the agent's weights above uniform ones", "FedAA (DDPG)", "uniform weights"),
    ("the agent's weights above random ones", "FedAA (DDPG)", "random weights"),
    ("weights can gain on uniform ones", "exponentiated gradient", "uniform weights"),
    ("so can a choice of clients", "greedy selection", "uniform weights"),
    ("60 % uniformly above 30 %", "uniform weights, M = 60 %", "uniform weights"),
    (
        "multi-Krum's 60 clients above the 60 selected, equally weighted",
        "multi-Krum, f = 40 %",
        "uniform weights, M = 60 %",
    ),
)
"""What is said, the row ahead, the row behind."""
AGENT_CLAIMS = tuple(said for said in CLAIMS if said[1] == "FedAA (DDPG)")
TAIL = 40
"""Rounds that a policy's figures are means over, the last ones."""


def policy(metric: str, settings: Settings) -> Column:
    """A figure of the weights, mean over the last rounds."""
    return Column(metric, settings, statistic="tail", tail=TAIL, digits=2)


def effective(attacks: Mapping[str, Settings]) -> dict[str, Column]:
    """The weights' effective number under each of the attacks."""
    return {
        f"{name} effective weights": policy("effective_clients", settings)
        for name, settings in attacks.items()
    }


def columns() -> dict[str, Column]:
    """For each attack: the clients' own models, the server's, and how much of π(s) was executed."""
    found = both_models(ATTACKS)
    for name, settings in ATTACKS.items():
        found[f"{name} correlation with π(s)"] = policy("policy_correlation", settings)
        found[f"{name} effective weights of π(s)"] = policy("policy_effective", settings)
        found |= effective({name: settings})
    return found


def claims(
    said: Iterable[tuple[str, str, str]], model: str, attacks: Iterable[str], when: str = ""
) -> tuple[Claim, ...]:
    """What is ``said``, of one of the two models under each of the attacks."""
    cells = tuple(f"{name}{model}" for name in attacks)
    return tuple(Claim(f"{text}{when}", better, (worse,), cells) for text, better, worse in said)


def without(columns: Iterable[str]) -> Cells:
    """What rows have no figure for: those that are no agents, and defences without weights."""
    cells: Cells = {}
    for column in columns:
        for row in ROWS:
            if "π(s)" in column and row not in AGENTS:
                cells[row, column] = Published(None, note="no agent", exists=False)
            elif "effective" in column and row.startswith("trimmed"):
                cells[row, column] = Published(None, note="no weights", exists=False)
    return cells


def gains() -> Entry:
    """The comparison."""
    shown = columns()
    attacked = tuple(name for name in shown if not name.startswith("clear"))
    return Entry(
        "fedaa/agent-mnist",
        "What weights add: FedAA's agent, other weights on the same clients, and defences "
        f"with one setting for all columns (MNIST, the published partition); {CHOSEN}",
        ROWS, shown, MNIST,
        {
            "smoke": Budget(FEW, rows=SHORT, reduced=FEW_HOW),
            "reduced": Budget(
                FIFTH, FULL_SEEDS[:5], SHORT, attacked,
                f"{FIFTH_HOW}; {len(SHORT)} of {len(ROWS)} methods, under attack only.",
            ),
            "full": Budget(seeds=FULL_SEEDS),
        },
        without(shown),
        (*claims(CLAIMS, " global", ATTACKS),
         *claims(AGENT_CLAIMS, "", ATTACKS, ", after local training")),
    )  # fmt: skip


def again() -> Entry:
    """The agent's claims, which five seeds leave open in half of their cells, asked of ten others;
    after local training, too, by which the paper compares.
    """
    rows = {name: ROWS[name] for name in ("FedAA (DDPG)", "uniform weights", "random weights")}
    return Entry(
        "fedaa/agent-mnist-again",
        "FedAA's agent, uniform and random weights on the same clients, on ten other seeds "
        "(MNIST, the published partition)",
        rows, both_models(ATTACKED) | effective(ATTACKED), MNIST,
        FRESH,
        claims=(*claims(AGENT_CLAIMS, " global", ATTACKED),
                *claims(AGENT_CLAIMS, "", ATTACKED, ", after local training")),
    )  # fmt: skip


def personal() -> Entry:
    """The paper's main claim with the repaired agent: after local training, beside methods whose
    models stay with the clients. Who keeps a model has had all of its rounds' steps on the client's
    rows; who begins each round with a shared one, the last round's.
    """
    kept = ("Ditto", "lp-proj-2", "lp-proj-1", "local")
    rows = {
        "FedAA (DDPG)": FEDAA,
        "uniform weights": RULES["uniform weights"],
        **{name: METHODS[name] for name in kept},
    }
    return Entry(
        "fedaa/agent-personal",
        "FedAA beside methods whose models stay with the clients, after local training (MNIST, "
        f"the published partition); {UNEQUAL}",
        rows, {name: accuracy(*given) for name, given in ATTACKED.items()}, MNIST,
        FRESH,
        claims=(Claim("FedAA above the baselines", "FedAA (DDPG)", kept, tuple(ATTACKED)),),
    )  # fmt: skip


AGENTS_COMPARED: tuple[Entry, ...] = (gains(), again(), personal())
