"""Chapter 4 of the FDA thesis: FedOpt against FDA-Opt on GLUE, with pre-trained transformers.

Rows have the learning rates that the thesis selected for FedOpt and handed on to FDA-Opt (Table
4.2). They depend on the task, and so do the targets: a table or figure over several tasks with
targets is one entry a task. Reduced budgets train a bag of word embeddings, for which those rates
mean little; where there is no tuning they have rows of their own.

The thesis' claim is that FedOpt's rates carry over to FDA-Opt untuned: so Table 4.4 has them. Its
``-tuned`` variants tune every row by itself, on one grid, which asks another question.

It is about rounds, and rounds are not equal: FedOpt's has τ epochs, FDA-Opt's one to 2τ + 8. So
Table 4.4 has local steps and gigabytes beside them. Chapter 3's clock of evaluations is not for
this chapter: servers with an optimiser of their own have no model to be looked at in mid-round, and
the thesis evaluates after rounds. So FedOpt is looked at more often for the same steps, and may
pass a target by luck more easily, which does not favour FDA-Opt.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.entry import Budget, Claim, Column, Entry, Published, Settings, Statistic, Tuning
from sweeps.papers.fda.budgets import SEEDS
from sweeps.papers.fda.glue import (
    CLIENT,
    MNLI_M,
    MRPC,
    QNLI,
    RTE,
    SERVERS,
    SST2,
    TASKS,
    Glue,
    Rates,
    Server,
    powers,
)
from sweeps.papers.fda.published import BETTER, HEAT_MNLI, LOGGED, MRPC_FAILED, ROUNDS, SELECTED

Cells = dict[tuple[str, str], Published]
STAND_IN_RATES: Rates = {
    "FedAvg": (0, -2), "FedAvgM": (0, -2), "FedAdam": (-1, -2),
    "FedAdamW": (-1, -2), "FedAdaGrad": (-1, -2),
}  # fmt: skip
"""FedOpt's rates for the bag of words, carried over to FDA-Opt as the thesis' are: one pair for all
tasks, within 1.3 points of FedOpt's best cells in MRPC's grid (Figure 4.9 at ``reduced``). That is
a choice by test accuracy, as the reduced budgets with these rates say."""
BY_TEST_ACCURACY = (
    "; its learning rates were chosen by test accuracy, on MRPC, for FedOpt (Figure 4.9 at this "
    "budget), and so not on data of their own"
)
"""Said wherever ``STAND_IN_RATES`` are used."""
STAND_IN = "stand-in"
"""Group of the columns that ask the stand-in for its own target."""
UNEQUAL_ROUNDS = "a round of FedOpt has τ epochs (one unless said), of FDA-Opt one to 2τ + 8"
COSTS = "Rounds, local steps of the longest client, and gigabytes"
KINDS: tuple[tuple[str, Statistic, int], ...] = (
    ("", "rounds_to", 0), ("local steps to ", "steps_to", 0), ("GB to ", "gigabytes_to", 3),
)  # fmt: skip
"""What a column of costs begins with, its statistic, its digits."""
BAG = ", bag of words"
"""Ending of the rows with rates for the stand-in."""
WORDS: Settings = ("model={name: fasttext, vocabulary: 2000, width: 16}", "local.optimizer=adam")
STAND_IN_TEXT = (
    "a bag of word embeddings (32,034 parameters for two classes) in place of the transformer, "
    "clients with Adam"
)


def rates(server: int, client: int) -> Settings:
    """Both learning rates from their powers of ten."""
    return (f"server_optimizer.lr=1.0e{server}", f"local.lr=1.0e{client}")


def fed_opt(chosen: Rates, extra: Settings = (), ending: str = "") -> dict[str, Settings]:
    """The five FedOpt methods."""
    return {
        f"{name}{ending}": (*method(server), *rates(*chosen[name]), *extra)
        for name, server in SERVERS.items()
    }


def method(server: Server) -> Settings:
    """A FedOpt method without its rates."""
    return (f"algorithm={server.algorithm}", f"server_optimizer={server.optimizer}")


def both(chosen: Rates, extra: Settings = (), ending: str = "") -> dict[str, Settings]:
    """FedOpt's methods, each followed by its FDA-Opt counterpart with the same rates."""
    rows: dict[str, Settings] = {}
    for name, settings in fed_opt(chosen, extra).items():
        rows[f"{name}{ending}"] = settings
        rows[f"{SERVERS[name].counterpart}{ending}"] = (*settings, "round_end=fda_opt")
    return rows


def pairs(
    text: str, start: str = "", ending: str = "", columns: tuple[str, ...] = ()
) -> tuple[Claim, ...]:
    """FDA-Opt ahead of its counterpart, for each server optimiser, in some columns or in all."""
    return tuple(
        Claim(
            f"{server.counterpart} {text} {name}",
            f"{start}{server.counterpart}{ending}",
            (f"{start}{name}{ending}",),
            columns,
        )
        for name, server in SERVERS.items()
    )


def smoke(rows: tuple[str, ...] = (), columns: tuple[str, ...] = ()) -> Budget:
    """Two rounds of LeNet-5 on a few of the embedded images."""
    settings = (
        "data.dataset=fashion_mnist_10k", "model=lenet5", "data.limit=600", "data.clients=10",
        "cohort=5", "rounds=2",
    )  # fmt: skip
    text = "LeNet-5 on 600 Fashion-MNIST images for two rounds: only shows that every setting runs"
    return Budget(settings, rows=rows, columns=columns, reduced=text)


def reduced(
    task: Glue,
    rounds: int,
    rows: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    stop: bool = False,
    chosen: str = "",
) -> Budget:
    """The bag of words on the same task, to its target if it is to ``stop`` there; ``chosen`` says
    what was chosen on test data.
    """
    data = f"data.dataset={{name: glue, task: {task.data}, length: 64, vocabulary: 2000}}"
    limit = () if task.limit is None else (f"data.limit={task.limit}",)
    less = "" if task.limit is None else f", {task.limit:,} training rows"
    text = f"{STAND_IN_TEXT}{less}, {rounds} rounds{chosen}"
    end = (f"stop={{test_accuracy: {task.easy}}}",) if stop else ()
    return Budget(
        (data, *WORDS, *limit, *end, f"rounds={rounds}"), rows=rows, columns=columns, reduced=text
    )


def tuning(task: Glue, rows: Mapping[str, Settings]) -> Tuning:
    """The thesis' grid of both rates. FedAvg's server, at 1 in the thesis, gets FedAvgM's rates, to
    have as many.
    """
    methods = {row: fed for fed, server in SERVERS.items() for row in (fed, server.counterpart)}
    grids = {
        row: {"server_optimizer.lr": task.server_grid(methods[row]), "local.lr": powers(CLIENT)}
        for row in rows
    }
    return Tuning(grids, Column("test_accuracy", statistic="best"), settings=("stop={}",))


def variance(figure: str, task: Glue, label: str) -> Entry:
    """How far apart the clients' models are when FedOpt collects them on a task, called ``label``
    there.
    """
    asked_once = "round_end={name: fda, theta: 1.0e+30, every: 1000000, monitor: exact}"
    column = Column("variance_estimate", better="low", digits=6)
    return Entry(
        id=f"fda/{figure}",
        title=f"Variance of the clients' models at the end of each FedOpt round, {label}",
        rows=fed_opt(task.rates),
        columns={"variance": column},
        base=(*task.base, asked_once),
        budgets={"smoke": smoke(), "reduced": reduced(task, 50), "full": Budget()},
        figure="curves",
        logarithmic=True,
    )


def selection(task: Glue) -> Entry:
    """A column of Table 4.2: the rates that reach the best accuracy, and that accuracy."""
    rows = fed_opt(task.rates)
    published: Cells = {}
    for row, value in SELECTED[task.key].items():
        server, client = task.rates[row]
        note = (
            f"at the thesis' choice: server 1e{server}, clients 1e{client}; accuracy from the "
            "authors' logs"
        )
        published[row, "best accuracy"] = Published(value, note=note)
    return Entry(
        id=f"fda/table4.2-{task.key}",
        title="Learning rates of server and clients chosen for each FedOpt method on "
        f"{task.label}; best test accuracy over the rounds, as in the thesis",
        rows=rows,
        columns={"best accuracy": Column("test_accuracy", statistic="best", scale=100.0)},
        base=task.base,
        budgets={"smoke": smoke(), "reduced": reduced(task, 20), "full": Budget(seeds=SEEDS)},
        published=published,
        tuning=tuning(task, rows),
    )


def heat_map(figure: str, task: Glue) -> Entry:
    """Best accuracy over the grid of rates: a row for each method and server rate, a column for
    each client rate.
    """
    rows: dict[str, Settings] = {
        _server(name, lr): (*method(server), f"server_optimizer.lr={lr}")
        for name, server in SERVERS.items()
        for lr in server_rates(name, task)
    }
    columns = {
        _clients(n): Column("test_accuracy", (f"local.lr=1.0e{n}",), "best", scale=100.0, digits=1)
        for n in CLIENT
    }
    few = tuple(_clients(n) for n in (-3, -2, -1))
    cells = heat_cells() if task is MNLI_M else logged_cells(task)
    return Entry(
        id=f"fda/{figure}",
        title=f"Best test accuracy over the rounds on {task.label} (as in the thesis; of which "
        "round, the test data decide) over client and server learning rates, by FedOpt method",
        rows=rows,
        columns=columns,
        base=task.base,
        budgets={
            "smoke": smoke((), few[-1:]),
            "reduced": reduced(task, 20, (), few),
            "full": Budget(),
        },
        published=cells | better_cells(task),
    )


def server_rates(name: str, task: Glue) -> tuple[float, ...]:
    """Of a heat map: FedAvg's server has the rate 1 only."""
    return (1.0,) if name == "FedAvg" else task.server_grid(name)


def heat_cells() -> Cells:
    """Figure 4.13, which alone has its numbers printed."""
    return {
        (_server(name, lr), _clients(n)): Published(line[i])
        for name in SERVERS
        for i, lr in enumerate(server_rates(name, MNLI_M))
        for n, line in zip(CLIENT, HEAT_MNLI[name], strict=True)
    }


def logged_cells(task: Glue) -> Cells:
    """The cell of each method that was selected."""
    return {
        _cell(name, *task.rates[name]): Published(value, note=LOGGED)
        for name, value in SELECTED[task.key].items()
    }


def better_cells(task: Glue) -> Cells:
    """Cells that are as good, or better."""
    return {
        _cell(name, server, client): Published(value, note=LOGGED)
        for name, (server, client, value) in BETTER.get(task.key, {}).items()
    }


def _cell(name: str, server: int, client: int) -> tuple[str, str]:
    """Row and column of a method's powers of ten."""
    return _server(name, float(f"1e{server}")), _clients(client)


def _clients(power: int) -> str:
    return f"clients 1e{power}"


def _server(method: str, lr: float) -> str:
    return f"{method}, server {lr:g}"


def table(task: Glue) -> Entry:
    """Two columns of Table 4.4, rounds to two parts of the best centralised accuracy, as the thesis
    has them: FDA-Opt with the rates that were selected for FedOpt (Table 4.2). Beside them, what
    these rounds are in steps and bytes.
    """
    first, stand_in = both(task.rates), both(STAND_IN_RATES, (), BAG)
    columns, easy = costs_to(task)
    text, rounds = "takes fewer rounds than", rounds_of({**columns, **easy})
    return Entry(
        id=f"fda/table4.4-{task.key}",
        title=f"{COSTS} of FedOpt and FDA-Opt, both at the rates selected for FedOpt, to a share "
        f"of the best centralised accuracy on {task.label}; {UNEQUAL_ROUNDS}",
        rows={**first, **stand_in},
        columns={**columns, **easy},
        base=(*task.base, f"stop={{test_accuracy: {task.targets[1]}}}"),
        budgets={
            "smoke": smoke(rows=tuple(first)),
            "reduced": reduced(
                task, 30, tuple(stand_in), tuple(easy), stop=True, chosen=BY_TEST_ACCURACY
            ),
            "full": Budget(seeds=SEEDS, rows=tuple(first), columns=tuple(columns)),
        },
        published=table_cells(task, rounds_of(columns)),
        claims=(*pairs(text, columns=rounds), *pairs(text, ending=BAG, columns=rounds)),
    )


def tuned_table(task: Glue) -> Entry:
    """The same with equal tuning: each row's own rates, from the same grid for both rounds."""
    rows = both(task.rates)
    columns, easy = costs_to(task)
    return Entry(
        id=f"fda/table4.4-{task.key}-tuned",
        title=f"{COSTS} of FedOpt and FDA-Opt, each with rates of its own, to a share of the best "
        f"centralised accuracy on {task.label}; {UNEQUAL_ROUNDS}",
        rows=rows,
        columns={**columns, **easy},
        base=(*task.base, f"stop={{test_accuracy: {task.targets[1]}}}"),
        budgets={
            "smoke": smoke(),
            "reduced": reduced(task, 10, columns=tuple(easy), stop=True),
            "full": Budget(seeds=SEEDS, columns=tuple(columns)),
        },
        published=table_cells(task, rounds_of(columns)),
        claims=pairs("takes fewer rounds than", columns=rounds_of({**columns, **easy})),
        tuning=tuning(task, rows),
    )


def costs_to(task: Glue) -> tuple[dict[str, Column], dict[str, Column]]:
    """Rounds, local steps and gigabytes to the thesis' two targets, and to the stand-in's."""
    names = tuple(f"{percent} % of {task.best} %" for percent in task.percents)
    own = dict(zip(names, task.targets, strict=True))
    return _costs(own), _costs({f"{100 * task.easy:g} % accuracy": task.easy})


def _costs(targets: Mapping[str, float]) -> dict[str, Column]:
    """``targets``: name -> accuracy. The columns of rounds have the names alone, and are first."""
    return {
        f"{before}{name}": Column(
            "test_accuracy", (), statistic, target=target, better="low", digits=digits
        )
        for before, statistic, digits in KINDS
        for name, target in targets.items()
    }


def rounds_of(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Names of the columns that count rounds: what the thesis prints, and claims."""
    return tuple(name for name, column in columns.items() if column.statistic == "rounds_to")


def table_cells(task: Glue, names: tuple[str, ...]) -> Cells:
    """The task's part of Table 4.4, under the ``names`` of its two columns."""
    published: Cells = {
        (row, name): Published(float(rounds))
        for row, pair in ROUNDS[task.key].items()
        for name, rounds in zip(names, pair, strict=True)
    }
    if task is QNLI:
        published["FDA-Adam", names[1]] = Published(20.0, note="22 in the authors' logs")
    return published


def losses(figure: str, left: Glue, right: Glue) -> Entry:
    """Training loss over rounds on two tasks; the right one's rows carry its data."""
    words = (
        f"{{name: glue, task: {right.data}, tokenizer: {right.tokenizer}, length: {right.length}}}"
    )
    data: Settings = (
        f"name=fda_opt_{right.key}",
        f"rounds={right.rounds}",
        f"data.dataset={words}",
        f"data.clients={right.clients}",
        f"cohort={right.cohort}",
    )
    first = of_task(left, both(left.rates))
    second = of_task(right, both(right.rates, data))
    stand_in = of_task(left, both(STAND_IN_RATES, (), BAG))
    text = "has a lower training loss than"
    return Entry(
        id=f"fda/{figure}",
        title=f"Training loss of FedOpt and FDA-Opt over rounds, {left.label} and {right.label}; "
        f"{UNEQUAL_ROUNDS}",
        rows={**first, **second, **stand_in},
        columns={"training loss": Column("train_loss", better="low", digits=4)},
        base=left.base,
        budgets={
            "smoke": smoke(rows=tuple(first)),
            "reduced": reduced(left, 60, tuple(stand_in), chosen=BY_TEST_ACCURACY),
            "full": Budget(seeds=SEEDS, rows=(*first, *second)),
        },
        claims=(
            *pairs(text, f"{left.label} "),
            *pairs(text, f"{right.label} "),
            *pairs(text, f"{left.label} ", BAG),
        ),
        figure="curves",
    )


def of_task(task: Glue, rows: Mapping[str, Settings]) -> dict[str, Settings]:
    """The rows with their task's name before their own."""
    return {f"{task.label} {row}": settings for row, settings in rows.items()}


EPOCHS = (1, 3, 5, 15, 20, 30)


def local_work(task: Glue, target: int) -> Entry:
    """Figure 4.17 for one task: rounds to a target by the epochs that FedOpt's round lasts."""
    first, stand_in = both(task.rates), both(STAND_IN_RATES, (), BAG)
    own, easy = by_epochs(task.targets[target]), by_epochs(task.easy, STAND_IN)
    failed = MRPC_FAILED if task is MRPC else ()
    text = "takes fewer rounds than"
    return Entry(
        id=f"fda/figure4.17-{task.key}",
        title=f"Rounds to {task.percents[target]} % of the best accuracy on {task.label} by local "
        f"epochs τ; {UNEQUAL_ROUNDS}",
        rows={**first, **stand_in},
        columns={**own, **easy},
        base=(*task.base, f"stop={{test_accuracy: {task.targets[target]}}}"),
        budgets={
            "smoke": smoke(rows=tuple(first), columns=tuple(own)[:1]),
            "reduced": reduced(
                task, 30, tuple(stand_in), tuple(easy)[:3], stop=True, chosen=BY_TEST_ACCURACY
            ),
            "full": Budget(seeds=SEEDS, rows=tuple(first), columns=tuple(own)),
        },
        published={(row, f"τ={e}"): Published(None, note="did not converge") for row, e in failed},
        claims=(*pairs(text), *pairs(text, ending=BAG)),
        figure="axis",
        along="τ",
    )


def by_epochs(target: float, group: str = "") -> dict[str, Column]:
    """Rounds to a target for each number of local epochs."""
    return {
        ", ".join(filter(None, (group, f"τ={epochs}"))): Column(
            "test_accuracy", (f"local.epochs={epochs}",), "rounds_to", target=target, better="low",
            digits=0, panel=group, x=epochs, group=group,
        )
        for epochs in EPOCHS
    }  # fmt: skip


ENTRIES: tuple[Entry, ...] = (
    variance("figure4.2", MRPC, "MRPC"),
    variance("figure4.3", RTE, "RTE"),
    variance("figure4.4", QNLI, "QNLI"),
    variance("figure4.5", SST2, "SST-2"),
    variance("figure4.6", MNLI_M, "MNLI"),
    *(heat_map(f"figure4.{n}", task) for n, task in enumerate(TASKS, start=9)),
    *(selection(task) for task in TASKS),
    *(table(task) for task in TASKS),
    *(tuned_table(task) for task in TASKS),
    losses("figure4.15", MRPC, SST2),
    losses("figure4.16", RTE, QNLI),
    local_work(MRPC, 1),
    local_work(SST2, 1),
)
