"""When a round ends: what FDA asks the clients, what it makes of it, and what that costs."""

import numpy as np
import torch

from algorithms.draws import generator, torch_generator
from tests.meanings.channel import finite
from tests.meanings.client import each_pass

LEAST = 1e-6
"""Steps below this part of the model are of rounding, and so is the way that they go."""
NEAR = 1e-4
"""How near to Θ (of the states' size) H may be for it to be left open on which side it is."""


def xi(fed, ids):
    """(ξ [d] or None, whether it has to be sent)."""
    monitor = fed.config["round_end"].get("monitor", {})
    if monitor.get("name") != "linear":
        return None, False
    last = fed.past.get("previous")
    follows = monitor["direction"] == "last" and last is not None
    step = fed.w - last if follows else torch.zeros_like(fed.w)
    if follows and step.norm() <= LEAST * fed.w.norm():
        fed.doubts.append(f"xi: {step.norm()}")
    if not step.any():
        step = torch.randn(len(fed.w), generator=torch_generator(0, "xi"))
    fed.past["previous"] = fed.w
    plain = fed.config["compression"]["downlink"]["name"] == "none"
    all_know = plain and len(ids) == fed.clients
    return (step / step.double().norm()).float(), follows and not all_know


def steps(fed, t, ids, counts, there, direction):
    """{k: local steps}, None for what the client has planned itself."""
    end, name = fed.config["round_end"], fed.config["round_end"]["name"]
    longest, work = longest_of(fed, ids)
    if name == "fixed":
        return dict.fromkeys(fed.all_of(ids), work if end["steps"] == "longest" else None)
    weights = fed._weights(ids, counts, None, ids)
    if weights is None:
        weights = {k: c / counts.sum() for k, c in zip(ids, counts, strict=True)}
    cap = 2 * work + 8 * longest if name == "fda_opt" else work
    asked = Questions(fed, t, ids, weights, there, direction, cap)
    ways = {"fda": _fda, "fda_opt": _fda_opt, "fda_async": _fda_async}
    done = ways[name](fed, asked, cap, longest)
    # the server keeps pace with the clients
    return done | {fed.clients: max(1, round(np.mean(list(done.values()))))}


def longest_of(fed, ids):
    """Mini-batches of the longest client's pass, and its local work."""
    local = fed.config["local"]
    one = max(1, *(each_pass(local, int(fed.sizes[k])) for k in ids))
    return one, local["steps"] or (local["epochs"] or 1) * one


class Questions:
    """To clients whose ways are known to their end."""

    def __init__(self, fed, t, ids, weights, there, direction, cap):
        self.fed, self.t, self.ids, self.weights, self.direction = fed, t, ids, weights, direction
        self.start = there["w"]
        self.paths = {k: fed._trained(t, k, there, cap).path for k in ids}
        self.monitor = fed.config["round_end"]["monitor"]["name"]

    def drift(self, k, done):
        path = self.paths[k][:done]
        moved = (path[-1] - self.start).double() if path else torch.zeros(len(self.start)).double()
        moved = moved if finite(moved) else moved * torch.nan
        return torch.where(self.fed.private, 0.0, moved)

    def states(self, done):
        """What the clients {k: steps} answer."""
        fed, answers = self.fed, {}
        for k, n in done.items():
            drift = self.drift(k, n)
            square = (drift @ drift)[None]
            more = {
                "exact": [drift],
                "naive": [],
                "linear": []
                if self.direction is None
                else [(drift @ self.direction.double())[None]],
            }[self.monitor]
            answers[k] = torch.cat([square, *more]).float()
            fed.up[k] += 4 * len(answers[k])
        return fed.lied(self.t, answers, self.ids)

    def mean(self, vectors):
        """Of all, or of those whose numbers are some where others are left out."""
        there = [k for k in self.ids if not vectors[k].isnan().any()]
        left = there if self.fed.config["non_finite"] == "drop" and there else self.ids
        total = sum(self.weights[k] for k in left) / sum(self.weights.values())
        return sum(self.weights[k] * vectors[k].double() for k in left) / total

    def estimate(self, answers):
        """H, from the answers of all."""
        mean = self.mean(answers)
        along = mean[1:] @ mean[1:] if len(mean) > 1 else 0.0
        self.size = float(mean[0])
        return float(mean[0] - along)

    def exceeds(self, found, theta):
        if abs(found - theta) <= NEAR * abs(self.size):
            self.fed.open_ended = True
        self.fed.told["variance_estimate"] = found
        return not found <= theta


def _fda(fed, asked, work, longest):
    end, done, theta = fed.config["round_end"], 0, _theta(fed)
    wanted = [*range(end["every"], work, end["every"]), work]
    for done in sorted(m for m in {*end["at"]} if m <= work) if end["at"] else wanted:
        if asked.exceeds(asked.estimate(asked.states(dict.fromkeys(asked.ids, done))), theta):
            break
    else:
        if done < work:
            # nobody asked when it ended
            fed.told.pop("variance_estimate", None)
            done = work
    fed.told["round_steps"] = done
    return dict.fromkeys(asked.ids, done)


def _fda_opt(fed, asked, cap, epoch):
    theta, done = fed.past.get("theta", -np.inf), 0
    while done < cap:
        done = min(done + epoch, cap)
        if asked.exceeds(asked.estimate(asked.states(dict.fromkeys(asked.ids, done))), theta):
            break
    drifts = {k: asked.drift(k, done) for k in asked.ids}
    mean = asked.mean(drifts)
    variance = asked.mean({k: ((v - mean) @ (v - mean))[None] for k, v in drifts.items()})
    following = float(cap / 2 / done * variance)
    if np.isfinite(following):
        fed.past["theta"] = following
    fed.told |= {"round_steps": done, "variance": float(variance)}
    return dict.fromkeys(asked.ids, done)


def _fda_async(fed, asked, work, longest):
    """Event after event: whoever is the next to finish a step tells its state."""
    end, theta, pace = fed.config["round_end"], _theta(fed), {}
    for k in asked.ids:
        draw = generator(fed.config["seed"], "speed", k)
        pace[k] = float(np.exp(end["jitter"] * draw.standard_normal()))
        pace[k] *= end["slowdown"] if draw.random() < end["stragglers"] else 1.0
    due, done = dict(pace), dict.fromkeys(asked.ids, 0)
    latest, now = {}, 0.0
    while max(done.values()) < work:
        now = min(due.values())
        ready = [k for k in asked.ids if due[k] <= now]
        for k in ready:
            done[k] += 1
            due[k] += pace[k]
        told = asked.states({k: done[k] for k in ready})
        nothing = torch.zeros_like(told[ready[0]])
        latest = {k: told.get(k, latest.get(k, nothing)) for k in asked.ids}
        if asked.exceeds(asked.estimate(latest), theta):
            break
    fed.past["clock"] = fed.past.get("clock", 0.0) + now
    mean = np.mean(list(done.values()))
    fed.told |= {
        "round_steps": mean,
        "virtual_time": fed.past["clock"],
        "round_time": now,
        "lock_step_time": mean * max(pace.values()),
    }
    return done


def _theta(fed):
    return fed.config["round_end"]["theta"]
