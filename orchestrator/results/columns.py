"""What the columns of a run's tables mean, in a person's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from algorithms.part import Part, members

OF_A_ROUND = {
    "round": "communication round, from 1",
    "train_loss": "loss of local training: mean over each client's steps, then over the cohort's "
    "honest clients that did any",
    "update_norm": "L2 norm of a client's update as it is sent (compressed; fednova's by its "
    "steps), mean over the cohort's honest clients",
    "steps": "local steps, mean over the cohort's honest clients",
    "steps_total": "local steps in lock step: each round's longest client (of server_only the "
    "server), added up",
    "epochs_total": "the same in passes over the largest client's training rows",
    "evaluated_steps": "local steps at which the metrics were measured (evaluation.every_steps)",
    "judged": "how often models were judged within and after the round; the numbers are of the "
    "last time",
    "cohort": "clients that were asked to train",
    "contacted": "clients that sent or were sent anything",
    "unjudged": "clients that were too late when their own models were judged",
    "dropped": "clients of the cohort that were lost, too late, or came to NaN (those that the "
    "aggregator gave no weight are not among them)",
    "bytes_up": "bytes from clients to the server in this round",
    "bytes_down": "bytes from the server to clients in this round",
    "bytes_questions": "bytes of answers in the middle of the round (states, snapshots), among "
    "bytes_up",
    "effective_clients": "1/Σp² of the weights p in the aggregate: how many clients it is like a "
    "plain mean of",
    "malicious_selected": "part of the clients that the aggregate used which are malicious",
    "malicious_weight": "part of the aggregate's weight that malicious clients had",
    "seconds": "seconds of the round, by the clock on the wall",
    "seconds_train": "its part in which client actors computed",
    "seconds_transfer": "its part in which the server waited for something else",
    "seconds_aggregate": "its part that the server worked itself",
    "seconds_evaluate": "its part in which models were judged",
    "seconds_client": "what one client computed, mean over the cohort; independent of the actors",
}
OF_A_CLIENT = {
    "round": "the evaluated round",
    "client": "number of the client, from 0",
    "malicious": "whether it is an attacker",
    "test_rows": "rows of its own that it is tested on",
    "validation_rows": "rows of its own that are kept back for choices",
    "steps": "local steps that it has done so far",
    "bytes_up": "bytes that it has sent so far",
    "bytes_down": "bytes that it was sent so far",
    "joules": "energy that it has spent so far (section energy)",
    "weight": "part of the round's aggregate that its update was, by magnitude; none of those that "
    "sent nothing",
}
WHOSE = {
    "test": "the judged model on the test set",
    "validation": "the judged model on the server's validation rows (without these: on all "
    "clients')",
    "heldout": "the judged model on the rows held out at the server",
}
CLIENTS = {
    "client": "the judged model on each honest client's own rows",
    "personal": "the own model of each honest client that has one (with "
    "evaluation.local_models: that was just trained), on its own rows",
}
OF_ONE_MODEL = tuple(f"{who}_" for who in (*WHOSE, "client"))
"""How names of metrics begin that one model for all is judged by."""
OF_CLIENTS = tuple(f"{who}_" for who in CLIENTS)
"""The same of models that are judged by clients."""
OVER = {
    "mean": "mean over clients",
    "weighted": "mean over all their rows",
    "worst": "the worst client",
    "worst10": "mean of the worst tenth of the clients",
    "best10": "mean of the best tenth of the clients",
    "std": "standard deviation over clients",
    "var": "variance over clients",
    "jain": "Jain's index over clients, from 1/K to 1 (all alike)",
    "angle": "degrees between the clients' values and all alike (q-FFL)",
    "kl": "KL divergence of the clients' shares from equal ones, in nats (q-FFL)",
}
ABOUT = {"accuracy": "part of the rows that is right", "loss": "mean loss"}
_OF_CLIENTS = re.compile(rf"({'|'.join(CLIENTS)})_(validation_)?(.+?)_({'|'.join(OVER)})")
_OF_ROWS = re.compile(rf"({'|'.join(WHOSE)})_(.+)")
_OF_ONE = re.compile(r"(personal_)?(.+?)(_validation)?")
_NUMBERED = re.compile(r"_\d+$")


def of_round(column: str) -> str:
    """What a column of ``rounds.parquet`` says; "" for one that nobody has declared."""
    for known in (OF_A_ROUND, declared()):
        if found := known.get(column) or known.get(_NUMBERED.sub("_*", column)):
            return found
    if column.startswith("gradient_norm/"):
        layer = column.removeprefix("gradient_norm/")
        return f"norm of layer {layer}'s mini-batch gradients, mean over steps and clients"
    if match := _OF_CLIENTS.fullmatch(column):
        who, kept_back, metric, over = match.groups()
        rows = " (kept back for choices)" if kept_back else ""
        return f"{_about(metric)}: {OVER[over]}, of {CLIENTS[who]}{rows}"
    if match := _OF_ROWS.fullmatch(column):
        return f"{_about(match[2])}, of {WHOSE[match[1]]}"
    return ""


def of_client(column: str) -> str:
    """What a column of ``clients.parquet`` says."""
    if found := OF_A_CLIENT.get(column) or declared().get(f"client/{column}"):
        return found
    match = _OF_ONE.fullmatch(column)
    assert match is not None
    model = "its own model" if match[1] else "the judged model"
    rows = "rows that it keeps back for choices" if match[3] else "its test rows"
    return f"{_about(match[2])}, of {model} on {rows}"


def declared() -> Mapping[str, str]:
    """What parts add to the records, those of a user's own among them."""
    return {name: text for part in members(Part) for name, text in part.records.items()}


def all_of_them() -> Iterator[tuple[str, str, str]]:
    """(table, column, meaning) of every column; names that are put together as patterns."""
    for name, text in (OF_A_ROUND | dict(sorted(declared().items()))).items():
        if not name.startswith("client/"):
            yield "rounds", name, text
    for who, text in WHOSE.items():
        yield "rounds", f"{who}_METRIC", f"accuracy, loss or another metric, of {text}"
    for who, text in CLIENTS.items():
        yield "rounds", f"{who}_METRIC_OVER", f"the same over clients, of {text}"
        yield "rounds", f"{who}_validation_METRIC_OVER", "the same on rows kept back for choices"
    for over, text in OVER.items():
        yield "rounds", f"..._{over}", text
    yield "rounds", "gradient_norm/LAYER", "norm of a layer's gradients (evaluation.gradient_norms)"
    for name, text in OF_A_CLIENT.items():
        yield "clients", name, text
    for name, text in sorted(declared().items()):
        if name.startswith("client/"):
            yield "clients", name.removeprefix("client/"), text
    for name in ("METRIC", "personal_METRIC", "METRIC_validation"):
        yield "clients", name, of_client(name)


def _about(metric: str) -> str:
    return ABOUT.get(metric, metric.replace("_", " "))
