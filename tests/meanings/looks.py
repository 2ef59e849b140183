"""What a clock of local steps sees: the mean of the clients' models, in the middle of rounds."""

from tests.meanings import channel


def last(fed, t, before, start):
    """(local steps, the model [d] and its statistics [b], or None of the round's own end) of the
    last look in round ``t``, which began after ``before`` steps at ``start``; None without one.
    """
    every = fed.config["evaluation"]["every_steps"]
    if every is None or t == fed.config["rounds"]:
        return fed.stepped, None
    if (done := _together(fed)) is not None:
        ticks = [k for k in range(1, done + 1) if (before + k) % every == 0]
        return (before + ticks[-1], _mean(fed, start, ticks[-1])) if ticks else None
    return (fed.stepped, None) if fed.stepped // every > before // every else None


def _together(fed):
    """As many steps as all clients do side by side; None where nobody looks before the end."""
    config, names = fed.config, ("mean", "weighted_mean")
    plain = config["server_optimizer"]["name"] == "sgd" and config["server_optimizer"]["lr"] == 1
    averages = fed.algorithm["name"] == "fedavg" and config["aggregator"]["name"] in names
    lossy = any(config["compression"][way]["name"] != "none" for way in ("uplink", "downlink"))
    forged = channel.forges(config["attack"]) and len(fed.world.bad)
    if not averages or not plain or lossy or forged or config["output"]["name"] != "last":
        return None
    end, local = config["round_end"], config["local"]
    counted = end["name"] in ("fda", "fda_opt") or end.get("steps") == "longest" or local["steps"]
    return max(s.steps for s in fed.sents) if counted else None


def _mean(fed, start, k):
    """The mean model after step k of each, which nobody has sent."""
    w, statistics = start
    rows = {s.k: (s.path[k - 1] - w if s.path else w * 0, *s.stats[k - 1 : k]) for s in fed.sents}
    ids = list(rows)
    drops = fed.config["non_finite"] == "drop"
    there = [i for i in ids if not drops or channel.finite(*rows[i])] or ids
    p = fed._weights(ids, fed.counts, None, there)
    moved = sum(p[i] * rows[i][0].double() for i in there)
    if len(statistics) and fed.config["buffers"] != "exclude":
        seen = [(p[i], rows[i][1]) for i in there if len(rows[i]) > 1]
        statistics = sum(q * v for q, v in seen) / sum(q for q, _ in seen)
    return (w + moved).float(), statistics
