"""What becomes of a message on its way: forged by a malicious client, compressed, weighed."""

import math

import numpy as np
import torch
from scipy.special import ndtri

from algorithms.draws import generator, torch_generator

SURE = 5e-6
"""How near two numbers may be (relatively) for which of them is larger to be left open: the product
adds up in another order."""


def malicious(attack, seed: int, clients: int) -> set[int]:
    if attack["name"] == "none":
        return set()
    if attack["ids"] is not None:
        return set(attack["ids"])
    rng = generator(seed, "malicious")
    size = round(attack["fraction"] * clients)
    return {int(k) for k in rng.choice(clients, size, replace=False)}


def forges(attack) -> bool:
    return attack["name"] not in ("none", "label_flip")


def forged(attack, purpose, seed, when, honest, benign):
    """What the malicious clients send in place of ``honest`` {k: vector}; the ``benign`` {k: vector}
    are what the others of the cohort send.
    """
    return {
        k: _one(attack, v, torch_generator(seed, purpose, *when, k), honest, benign)
        for k, v in honest.items()
    }


def _one(attack, v, draw, honest, benign):
    name = attack["name"]
    if "knowledge" in attack:
        known = benign if attack["knowledge"] == "benign" and benign else honest
        x = torch.stack([v for v in known.values() if finite(v)] or list(known.values())).double()
        return _agreed(attack, x, len(honest) + len(benign), len(honest)).to(v)
    if name == "gaussian":
        return attack["tau"] * torch.randn(len(v), generator=draw)
    m = attack["tau"] * float(torch.randn((), generator=draw, dtype=torch.float64))
    return {"same_value": torch.zeros_like(v) + m, "sign_flip": -abs(m) * v, "scale": abs(m) * v}[
        name
    ]


def _agreed(attack, x, cohort, liars):
    """What colluders send who know the rows x."""
    name, mean = attack["name"], x.mean(0)
    if name == "ipm":
        return -attack["epsilon"] * mean
    spread = (x - mean).square().mean(0).sqrt()
    if name == "alie":
        return mean - spread * _hidden(attack, cohort, liars)
    p = {"std": -spread, "sign": -mean.sign(), "unit": -mean / mean.norm().clamp_min(1e-30)}[
        attack["direction"]
    ]
    apart = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()

    def fits(gamma):
        away = (mean + gamma * p - x).square().sum(1)
        # the mean itself always does
        if gamma == 0:
            return True
        if name == "min_max":
            return bool((away <= apart.max()).all())
        return bool(away.sum() <= apart.sum(1).max())

    return mean + _most(fits, p) * p


def _most(fits, p):
    """The largest γ ≥ 0 that fits, by halving."""
    if not p.any():
        return 0.0
    low, high = 0.0, 1.0
    while fits(high) and high < 1e30:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _hidden(attack, cohort, liars):
    """ALIE's z."""
    if attack["z"] is not None:
        return attack["z"]
    honest = cohort - liars
    if honest <= 1:
        return 0.0
    needed = max(1, cohort // 2 + 1 - liars)
    return max(0.0, float(ndtri((honest - needed) / honest)))


def weight(compressor, size: int) -> int:
    """Bytes of a float32 vector of that size."""
    name = compressor["name"]
    if name == "none":
        return 4 * size
    if name in ("bf16", "fp16"):
        return 2 * size
    if name == "qsgd":
        bits = 1 + math.ceil(math.log2(compressor["levels"] + 1))
        norms = math.ceil(size / (compressor["bucket"] or size))
        return math.ceil(bits * size / 8) + 4 * norms
    # where the receiver cannot know the places, an index goes with each
    return max(1, round(compressor["fraction"] * size)) * (8 if name == "top_k" else 4)


def compressed(compressor, v, draw, doubts):
    """What the receiver makes of ``v``; what could have gone either way is noted in ``doubts``."""
    name = compressor["name"]
    if name in ("bf16", "fp16"):
        return v.to(torch.bfloat16 if name == "bf16" else torch.float16).float()
    if name == "qsgd":
        noise = torch.rand(len(v), generator=draw)
        size = compressor["bucket"] or len(v)
        pieces = zip(v.split(size), noise.split(size), strict=True)
        return torch.cat([_quantized(p, u, compressor["levels"], doubts) for p, u in pieces])
    k = max(1, round(compressor["fraction"] * len(v)))
    if name == "random_k":
        places = torch.randperm(len(v), generator=draw)[:k]
        factor = len(v) / k if compressor["scale"] else 1.0
    else:
        order = v.abs().argsort(descending=True, stable=True)
        places, factor = order[:k], 1.0
        if k < len(v):
            last, next_ = (float(v[order[i]].abs()) for i in (k - 1, k))
            # not the other way round: NaN are equals, too; and v may be what is left of two weights
            # near one, each of which float32 holds to half of 2^-23
            if not last - next_ > SURE * last + 2**-24:
                doubts.append(f"top_k: {last} or {next_}")
    sent = torch.zeros_like(v)
    sent[places] = v[places] * factor
    return sent


def _quantized(v, u, s, doubts):
    # its squares may be more than float32 holds, though it is not; it travels as float32
    norm = float(v.norm() if v.norm().isfinite() else v.double().norm().to(v.dtype))
    if norm == 0:
        return v
    level = v.abs().double() / norm * s + u
    # v may be what is left of two weights near one, each of which float32 holds to half of 2^-23
    near = (level - level.round()).abs() <= SURE * level.clamp_min(1e-2) + 2**-24 / norm * s
    if near.any():
        doubts.append(f"qsgd: {level[near][0]}")
    return (norm * v.sign() * level.floor().clamp_max(s) / s).float()


class Uplink:
    """A client's end: what it left out of earlier messages is added to the next, where it is fed back."""

    def __init__(self, compressor, seed, when, k, memory, doubts):
        self.compressor, self.memory, self.doubts = compressor, memory, doubts
        self.key = (seed, when, k)

    def send(self, name, v):
        if self.compressor["name"] == "none":
            return v
        seed, when, k = self.key
        left = f"error/{name}"
        wanted = v + self.memory.get(left, torch.zeros_like(v))
        draw = torch_generator(seed, f"compress {name}", *when, k)
        sent = compressed(self.compressor, wanted, draw, self.doubts)
        if self.compressor["error_feedback"]:
            self.memory[left] = wanted - sent
        return sent


def finite(*tensors) -> bool:
    return all(np.isfinite(np.asarray(t, np.float64)).all() for t in tensors)
