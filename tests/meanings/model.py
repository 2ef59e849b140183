"""A federation that is read from top to bottom, one client after the other.

The order of a message: train → a malicious client's own forging → private entries taken out →
compression with error feedback → counting → the wire → reassembly → is it finite? → robust rows or
sum → server.
"""

import numpy as np
import torch

from algorithms.draws import generator, torch_generator
from tests.meanings import (
    channel,
    clusters,
    dual,
    ends,
    gossip,
    looks,
    minimax,
    networks,
    projections,
    selected,
    server,
)
from tests.meanings.client import Sent, Trained, fresh, rate

NEARLY_INFINITE = 1e36
"""A hundredth of float32's largest number."""
EXACT = ("buffers", "optimizer/", "xi")
"""What is not compressed."""


class Diverged(Exception):
    """The run ends, because of numbers that are none."""


class World:
    """The rows, and a network to ask."""

    def __init__(self, config, data):
        self.config, self.data = config, data
        self.module = networks.built(config["model"], data.samples.shape, data.samples.classes)
        self.bad = channel.malicious(config["attack"], config["seed"], data.clients)
        self.flipping = self.bad if config["attack"]["name"] == "label_flip" else set()

    def rows(self, k):
        """Whoever comes after the last client is the server."""
        return self.data.train[k] if k < self.data.clients else self.data.heldout_rows

    def batch(self, rows, k=None):
        """Inputs and labels as client k has them."""
        x, y = torch.tensor(self.data.samples.x[rows]), torch.tensor(self.data.samples.y[rows])
        if x.dtype == torch.uint8:
            shape = (-1, *[1] * (x.dim() - 2))
            shift, scale = (torch.tensor(v).view(shape) for v in (self.data.shift, self.data.scale))
            x = (x.float() - shift) * scale
        return x, self.data.samples.classes - 1 - y if k in self.flipping else y


class Federation:
    """Server, wire and clients under a config (resolved, as a dict)."""

    def __init__(self, config, data, w, statistics):
        self.config, self.world = config, World(config, data)
        self.clients, self.algorithm = data.clients, config["algorithm"]
        self.tied = False  # whether a client's own model has had no one most likely class
        self.sizes = np.array([len(self.world.rows(k)) for k in range(self.clients + 1)])
        self.w, self.statistics, self.initial = w, statistics, statistics
        self.private = torch.zeros(len(w), dtype=torch.bool)
        if self.algorithm["name"] == "fedbn":
            self.private = networks.of_batch_norm(self.world.module)
        self.first = w[self.private]
        self.corrects = self.algorithm["name"] in ("scaffold", "fedpvr", "scallion")
        self.corrected = slice(0, len(w))
        if self.algorithm["name"] == "fedpvr":
            last = list(self.world.module.children())[-1]
            self.corrected = slice(len(w) - sum(p.numel() for p in last.parameters()), len(w))
        self.control = torch.zeros_like(w[self.corrected])
        self.dual = minimax.first(self)
        self.gradients = dict.fromkeys(range(self.clients), torch.zeros_like(w))
        self.losses: dict[int, float] = {}
        self.reference = torch.zeros(self.algorithm.get("dimension", 0))
        self.optimizer = server.Optimizer(config["server_optimizer"], w)
        self.averaged: dict = {}
        self.memory: dict[int, dict] = {k: {} for k in range(self.clients + 1)}
        self.replicas: dict = {}
        self.heard: dict[str, set[int]] = {}
        # the last is the server's, whose bytes travel nowhere
        self.down, self.up, self.steps = (np.zeros(self.clients + 1, np.int64) for _ in range(3))
        self.iterates: list = []
        self.models: dict[int, torch.Tensor] = {}
        """Of each client, where the server holds its own."""
        self.cluster = dict.fromkeys(range(self.clients), 0)
        self.past: dict = {}
        """What the end of a round keeps for the next."""
        self.told: dict = {}
        """What a round tells."""
        self.accuracy = 0.0
        """On the server's rows, where these judge."""
        self.questions = 0
        """Of this round."""
        self.huge = False
        """Whether a liar has answered with a number at the end of float32."""
        self.open_ended = False
        """Whether a round could have ended elsewhere, but for rounding."""
        self.worked: dict[int, list] = {}
        """Of this round's cohort: (steps, mean loss of them) in each session."""
        self.shares: dict[int, float] | None = None
        """How much each of those counted of whom the round's sum is, where there is one."""
        self.stepped = 0
        """Local steps so far, of each round's longest client."""
        self.looked: tuple | None = None
        """When the round's models were judged last, and at which model; None: at its end."""
        self.norms: dict[int, float] = {}
        """Of its updates."""
        self.doubts: list[str] = []
        """Decisions that could have gone either way."""
        self.forgeries: dict = {}
        """(round, session, client, part) -> what a malicious client meant to send."""

    # A round

    def round(self, t: int) -> None:
        self.sents, start = [], (self.w, self.statistics)
        self._round(t)
        self.iterates.append((self.w, self.statistics))
        before, each = self.stepped, [sum(n for n, _ in did) for did in self.worked.values()]
        self.stepped += max(each, default=0) or self.alone
        self.looked = looks.last(self, t, before, start)

    def _round(self, t: int) -> None:
        ids, counts = self._cohort(t)
        self.worked, self.norms = {k: [] for k in ids}, {}
        self.questions, self.told, self.shares = 0, {}, None
        name = self.algorithm["name"]
        self.alone = 0
        if name == "server_only":
            self.worked = {}
            selected.alone(self, t)
            return
        if name == "fedaa" and t == 1:
            self.accuracy = selected.accuracy(self, self.w, self.statistics)
        if name == "local":
            self._personal(t, 0, ids, {"w": self.w, "buffers": self.statistics})
            return
        apart = {"lp_proj": projections, "drdsgd": gossip, "clustered": clusters}
        apart |= dict.fromkeys(minimax.NAMES, minimax)
        if name in apart:
            apart[name].play(self, t, ids, counts)
            self._require_finite()
            return
        direction, travels = ends.xi(self, ids)
        there = self._broadcast(t, self.all_of(ids), also={"xi": direction} if travels else {})
        losses = self._losses(t, ids, there) if name == "qfedavg" else None
        steps = ends.steps(self, t, ids, counts, there, direction)
        sents = [self._trained(t, k, there, steps[k]) for k in self.all_of(ids)]
        self.sents, self.counts = sents, counts
        counted = self.arrived(t, sents, there)
        weights = self._weights(ids, counts, losses, [s.k for s in counted])
        if name == "ditto":
            known = {"w": there["w"], "buffers": self.statistics}
            self._personal(t, 1, self.all_of(ids), known)
        self.shares = weights
        if name == "fedaa":
            selected.step(self, t, counted)
        else:
            self._step(counted, weights, losses)
        self._require_finite()

    def all_of(self, ids):
        """The cohort, and the server where it trains beside it."""
        return [*ids, self.clients] if self.config["aggregator"]["name"] == "fltrust" else ids

    def _cohort(self, t):
        """Distinct clients, and how often each was drawn."""
        if self.algorithm["name"] in minimax.DRAWING:
            return minimax.cohort(self, t)
        sampler, n, m = self.config["sampler"], self.clients, self.config["cohort"]
        m = max(1, round(m * n)) if isinstance(m, float) else m
        rng = generator(self.config["seed"], "cohort", t)
        if sampler["name"] == "weighted":
            p = self.sizes[:n] / self.sizes[:n].sum()
            drawn = rng.choice(n, m, replace=sampler["replace"], p=p)
        elif sampler["name"] == "cyclic":
            epoch, turn = divmod(t - 1, n // m)
            order = generator(self.config["seed"], "cohort", epoch).permutation(n)
            drawn = order[turn * m : (turn + 1) * m]
        else:
            drawn = np.arange(n) if m == n else rng.choice(n, m, replace=False)
        ids, counts = np.unique(drawn, return_counts=True)
        return [int(k) for k in ids], counts

    def _weights(self, ids, counts, losses, counted):
        """{k: p_k} of those that count, scaled to the same sum; None where each row is looked at."""
        name = self.config["aggregator"]["name"]
        if self.algorithm["name"] == "fedaa":
            return None
        if losses is not None:
            raw = {k: losses[k] ** self.algorithm["q"] for k in ids}
        elif name in ("mean", "weighted_mean"):
            sizes = self.sizes if name == "weighted_mean" else np.ones(self.clients + 1)
            raw = {k: float(sizes[k] * c) for k, c in zip(ids, counts, strict=True)}
        else:
            return None
        total = sum(raw[k] for k in counted)
        return {k: raw[k] / total for k in counted}

    # Downwards

    def _broadcast(self, t, ids, session=0, sent=None, also=()):
        """What the cohort has after it was sent the model, and what else its algorithm sends."""
        message = {"w": self.w, "buffers": self.statistics} if sent is None else dict(sent)
        message |= self.averaged | dict(also)
        if self.corrects:
            message["control"] = self.control
        there = dict(message)
        for name, v in message.items():
            if name == "buffers" and self.config["buffers"] != "aggregate":
                continue
            leaves = ~self.private if name == "w" else torch.ones(len(v), dtype=torch.bool)
            lossy = (
                not name.startswith(EXACT)
                and self.config["compression"]["downlink"]["name"] != "none"
            )
            self._book_down(name, v[leaves], ids, lossy)
            if lossy:
                there[name] = self._replica((t, session), name, v, leaves)
                self.heard[name] = set(ids)
        return there

    def _book_down(self, name, v, ids, lossy):
        whole = v.numel() * v.element_size()
        change = channel.weight(self.config["compression"]["downlink"], len(v)) if lossy else whole
        for k in ids:
            self.down[k] += change if k in self.heard.get(name, set()) else whole

    def _replica(self, when, name, v, leaves):
        """The server sends the compressed difference to what the clients have; the first time, all."""
        after = v.clone()
        if name in self.replicas:
            before = self.replicas[name][leaves]
            # as of mini-batches
            key = when if when[1] else when[:1]
            draw = torch_generator(self.config["seed"], f"broadcast {name}", *key)
            lossy = self.config["compression"]["downlink"]
            change = channel.compressed(lossy, v[leaves] - before, draw, self.doubts)
            after[leaves] = before + change
        self.replicas[name] = after
        return after

    # At a client

    def _trained(self, t, k, there, steps=None, session=0) -> Sent:
        """Client k's work on the common model, and what it would send."""
        memory, name = dict(self.memory[k]), self.algorithm["name"]
        start = there["w"].clone()
        if self.private.any():
            start[self.private] = memory.get("kept", self.first)
        kept = self.config["buffers"] != "aggregate" and len(self.initial) > 0
        stats = memory.get("buffers", self.initial) if kept else there["buffers"]
        own = memory.get("control", torch.zeros_like(self.control))
        learnt = memory.get("gradient", torch.zeros(len(start)))
        mu = self.algorithm.get("mu", 0.0) if name != "moon" else 0.0

        def correct(g, w):
            g = g + mu * (w - start) if mu else g
            if name in ("feddyn", "drdm"):
                g = g - learnt
            if self.corrects:
                g = g.clone()
                g[self.corrected] += there["control"] - own
            return g

        contrast = None
        if name == "moon":
            last = memory.get("previous", there["w"])
            contrast = self.algorithm["mu"], self.algorithm["temperature"], (start, last)
        before = None
        if name == "feddual":
            before, correct = dual.client(self, k, start)
        moments = self._moments(k, there)
        done = Trained(
            self.world, t, session, k, start, stats, moments, correct, steps, contrast, before
        )
        delta = done.w - there["w"]
        sent = Sent(k, done.steps, done.loss, {"delta": delta}, memory=memory, path=done.path)
        sent.session, sent.change, sent.stats = session, delta, done.passed
        if kept:
            memory["buffers"] = done.stats
        if self.private.any():
            memory["kept"] = done.w[self.private]
        self._remember_moments(memory, done.moments)
        if name == "moon":
            memory["previous"] = done.w
        if name in ("feddyn", "drdm"):
            memory["gradient"] = learnt - mu * delta
        if name == "scallion":
            sent.parts, sent.numbers = self._increment(done, there["control"], own, memory)
        elif self.corrects:
            change = torch.zeros_like(own)
            if done.steps:
                change = -there["control"] - delta[self.corrected] / done.reach
            memory["control"] = own + change
            sent.parts["control"] = change
        if name == "fednova":
            local = self.config["local"]
            a = _amount(done.steps, local["optimizer"]["momentum"], rate(local, t) * mu)
            sent.parts["delta"], sent.numbers["weight"] = delta / max(a, 1.0), a
        if name == "qfedavg":
            sent.numbers["square"] = float((delta * delta).sum())
        return self.with_common(sent, done)

    def with_common(self, sent, done) -> Sent:
        """What goes with every algorithm's vectors, too."""
        if self.config["local"]["optimizer_state"] == "average":
            sent.parts |= {f"optimizer/{n}": v for n, v in done.moments.items()}
        if self.config["buffers"] != "exclude" and len(done.stats):
            sent.parts["buffers"] = done.stats
        return sent

    def worked_on(self, t, session, k, there, correct, steps=None):
        """What client k sends of a session but for the vectors of its algorithm, and its work."""
        memory = dict(self.memory[k])
        kept = self.config["buffers"] != "aggregate" and len(self.initial) > 0
        stats = memory.get("buffers", self.initial) if kept else there["buffers"]
        start = fresh(self.config["local"]["optimizer"], len(self.w))
        done = Trained(self.world, t, session, k, there["w"], stats, start, correct, steps)
        sent = Sent(k, done.steps, done.loss, memory=memory, path=done.path, session=session)
        sent.change = done.change
        if kept:
            memory["buffers"] = done.stats
        return self.with_common(sent, done), done

    def arrived(self, t, sents, there):
        """Those of them that count."""
        self._uplink(t, sents, there)
        for s in sents:
            self.up[s.k] += s.nbytes
        return self._committed(sents)

    def _increment(self, done, control, own, memory):
        """What c_i lacks, of the mean gradient or its moving average."""
        scale, beta = self.algorithm["scale"], self.algorithm["momentum"]
        lacks, before = torch.zeros_like(own), memory.get("momentum", torch.zeros_like(own))
        if done.steps:
            mean = -done.change / done.reach + own - control
            average = (1 - beta) * before + beta * mean
            lacks = scale * (average - own)
        if beta < 1:
            memory["momentum"] = average if done.steps else before
        memory["control"] = own
        return {"increment": lacks}, {"reach": done.reach}

    def _moments(self, k, there):
        local = self.config["local"]
        source = self.memory[k] if local["optimizer_state"] == "keep" else there
        start = fresh(local["optimizer"], len(self.w))
        return {n: source.get(f"optimizer/{n}", v) for n, v in start.items()}

    def _remember_moments(self, memory, moments):
        if self.config["local"]["optimizer_state"] == "keep":
            memory |= {f"optimizer/{n}": v for n, v in moments.items()}

    def _personal(self, t, session, ids, there):
        """Work on the clients' own models, of which nothing is sent."""
        strength, sents = self.algorithm.get("strength", 0.0), []
        more, end = self.algorithm.get("personal_steps"), self.config["round_end"]
        if more is None and end.get("steps") == "longest":
            _, more = ends.longest_of(self, ids)

        def correct(g, w):
            return g + strength * (w - there["w"]) if strength else g

        for k in ids:
            memory = dict(self.memory[k])
            w = memory.get("model", there["w"])
            first = there["buffers"] if self.config["buffers"] == "aggregate" else self.initial
            stats = memory.get("personal/buffers", first)
            done = Trained(self.world, t, session, k, w, stats, self._moments(k, {}), correct, more)
            memory["model"] = done.w
            if len(self.initial):
                memory["personal/buffers"] = done.stats
            self._remember_moments(memory, done.moments)
            own = {"change": done.change, "stays": True}
            sents.append(Sent(k, done.steps, done.loss, memory=memory, **own))
        self._committed(sents)

    # Upwards

    def _uplink(self, t, sents, there):
        """Honest clients first, since malicious ones may know what these send."""
        attack = self.config["attack"]
        forging = self.world.bad if channel.forges(attack) else set()
        honest, liars = ([s for s in sents if (s.k in forging) == x] for x in (False, True))
        honest = [s for s in honest if s.k < self.clients]
        for s in honest:
            self._compress(t, s)
        if liars:
            self._forge(t, [s for s in honest if s.finite], liars, there)
        for s in liars:
            self._compress(t, s)

    def _forge(self, t, honest, liars, there):
        for s in liars:
            s.forger = True
        attack = self.config["attack"]
        for name in list(liars[0].parts):
            stays = name == "buffers" and self.config["buffers"] != "aggregate"
            if (
                name.startswith("optimizer/")
                or stays
                or (name == "buffers" and not attack["buffers"])
            ):
                continue
            base = there["w"] if name == "delta" and attack["target"] == "model" else 0.0
            unit = {
                s.k: (s.numbers.get("weight") or 1.0) if name == "delta" else 1.0
                for s in (*honest, *liars)
            }
            told = channel.forged(
                attack,
                "attack" if name in ("delta", "buffers") else f"attack {name}",
                self.config["seed"],
                (t, liars[0].session),
                {s.k: s.parts[name] * unit[s.k] + base for s in liars},
                {s.k: s.parts[name] * unit[s.k] + base for s in honest},
            )
            for s in liars:
                meant = (told[s.k] - base) / unit[s.k]
                # what it would not have sent it does not forge
                same = (
                    self.private if name == "delta" else torch.zeros(len(meant), dtype=torch.bool)
                )
                s.parts[name] = torch.where(same, s.parts[name], meant)
                self.forgeries[t, s.session, s.k, name] = s.parts[name]

    def _compress(self, t, s):
        """Compression and counting."""
        compressor = self.config["compression"]["uplink"]
        seed, when = self.config["seed"], (t, s.session)
        uplink = channel.Uplink(compressor, seed, when, s.k, s.memory, self.doubts)
        s.nbytes = 4 * len(s.numbers)
        for name, v in list(s.parts.items()):
            leaves = ~self.private if name == "delta" else torch.ones(len(v), dtype=torch.bool)
            if not name.startswith(EXACT):
                s.parts[name] = v.clone()
                s.parts[name][leaves] = uplink.send(name, v[leaves])
                s.nbytes += channel.weight(compressor, int(leaves.sum()))
            elif name != "buffers" or self.config["buffers"] == "aggregate":
                s.nbytes += v.numel() * v.element_size()
        if "increment" in s.parts:
            s.memory["control"] = s.memory["control"] + s.parts["increment"]

    def _committed(self, sents):
        """Those whose update counts; what they remember, and the work of all, is written down."""
        drops = self.config["non_finite"] == "drop"
        for s in sents:
            self.steps[s.k] += s.steps
            # nothing is said of a lost model of its own beside an update that counts
            beside = s.stays and drops and not s.finite and bool(self.worked.get(s.k))
            if s.k < self.clients and not beside:
                self.worked[s.k].append((s.steps, s.loss))
                self._measure(s)
        counted = [s for s in sents if s.finite or self.config["non_finite"] == "keep"]
        spoilt = any(s.k == self.clients and s not in counted for s in sents)
        alone = not any(s.k < self.clients for s in counted)
        fails = self.config["non_finite"] == "fail" and len(counted) < len(sents)
        if spoilt or alone or fails:
            raise Diverged("an update is not finite")
        for s in counted:
            keep = self.config["non_finite"] == "keep"
            if keep or not s.forger or channel.finite(*s.memory.values()):
                self.memory[s.k] = s.memory
        return counted

    def _measure(self, s):
        """How long the update is that it has sent, or if it has sent none, of its own model; a
        liar's is another.
        """
        if channel.forges(self.config["attack"]) and s.k in self.world.bad:
            self.norms[s.k] = 0.0
        elif not (s.stays and s.k in self.norms):
            self.norms[s.k] = float(s.parts.get("delta", s.change).double().norm())

    # At the server

    def _losses(self, t, ids, there):
        """What clients answer when they are asked for the loss of the model that they got."""
        told = {}
        for k in ids:
            kept = self.config["buffers"] != "aggregate" and len(self.initial)
            stats = self.memory[k].get("buffers", self.initial) if kept else there["buffers"]
            x, y = self.world.batch(self.world.data.train[k], k)
            losses, _ = networks.judged(self.world.module, there["w"], stats, x, y)
            told[k] = losses.mean()[None]
            self.up[k] += 4
            if not channel.finite(told[k]):
                raise Diverged("a loss is not finite")
        return {k: max(float(v), 1e-10) for k, v in self.lied(t, told, ids).items()}

    def lied(self, t, told, cohort):
        """What is answered to a question {k: vector} in the end."""
        attack = self.config["attack"]
        if not channel.forges(attack) or not attack["probes"] or not self.world.bad & {*cohort}:
            return told
        liars = {k: v for k, v in told.items() if k in self.world.bad}
        others = {k: v for k, v in told.items() if k not in liars and channel.finite(v)}
        when, self.questions = (t, self.questions), self.questions + 1
        lies = channel.forged(attack, "answer", self.config["seed"], when, liars, others)
        self.huge |= any(bool((v.abs() > NEARLY_INFINITE).any()) for v in lies.values())
        return told | lies

    def take(self, counted, weights):
        """The means of what is sent beside the updates."""
        self._average(counted, weights)
        if "buffers" in counted[0].parts:
            self.statistics = _sum(counted, "buffers", weights)

    def _average(self, counted, weights):
        if self.config["local"]["optimizer_state"] == "average":
            names = [n for n in counted[0].parts if n.startswith("optimizer/")]
            self.averaged = {n: _sum(counted, n, weights) for n in names}

    def _step(self, counted, weights, losses):
        self._average(counted, weights)
        if self.algorithm["name"] == "scallion":
            self._controlled(counted, weights)
            return
        update, self.statistics = self._aggregate(counted, weights)
        if losses is not None:
            self.w = self.w + self._fair(counted, losses) * update
            return
        if self.algorithm["name"] == "fednova":
            update = update * sum(weights[s.k] * s.numbers["weight"] for s in counted)
        part = len(counted) / self.clients
        if self.algorithm["name"] == "feddyn":
            mu = self.algorithm["mu"]
            self.control = self.control - mu * part * update
            self.w = self.w + update - self.control / mu
            return
        self.w = self.optimizer.step(self.w, update)
        if self.corrects:
            self.control = self.control + part * _sum(counted, "control", weights)

    def _controlled(self, counted, weights):
        """A step along c and what it lacks, as far as the clients went, of whom some did not go."""
        went = sum(weights[s.k] for s in counted if s.steps)
        reach = sum(weights[s.k] * s.numbers["reach"] for s in counted)
        lacks = _sum(counted, "increment", weights)
        along = self.control + (lacks / went if went else 0.0)
        self.w = self.optimizer.step(self.w, -reach * along)
        self.control = self.control + len(counted) / self.clients * lacks
        if "buffers" in counted[0].parts:
            self.statistics = _sum(counted, "buffers", weights)

    def _fair(self, counted, losses) -> float:
        """What the mean of the updates is multiplied by: L Σ F^q / Σ h."""
        q, lip = self.algorithm["q"], self.algorithm["lipschitz"] or 1 / self.config["local"]["lr"]
        f = {s.k: losses[s.k] for s in counted}
        h = sum(
            q * f[s.k] ** (q - 1) * lip**2 * s.numbers["square"] + lip * f[s.k] ** q
            for s in counted
        )
        return lip * sum(v**q for v in f.values()) / h

    def _aggregate(self, counted, weights, name="delta"):
        """(update [d], next statistics [b])."""
        statistics = self.statistics
        if weights is not None:
            if "buffers" in counted[0].parts:
                statistics = _sum(counted, "buffers", weights)
            return _sum(counted, name, weights), statistics
        root = next((s.parts[name] for s in counted if s.k == self.clients), None)
        if root is not None and self.private.any():
            root = torch.where(self.private, 0.0, root)  # as of the others' rows
        counted = [s for s in counted if s.k < self.clients]
        rows = torch.stack([s.parts[name] for s in counted])
        shown = torch.where(self.private, 0.0, rows) if self.private.any() else rows
        sizes = torch.tensor([float(self.sizes[s.k]) for s in counted])
        if self.config["aggregator"]["name"] == "barycenter":
            update, chosen = dual.barycenter(self, shown, sizes)
        else:
            update, chosen = server.robust(
                self.config["aggregator"], shown, self.doubts, sizes, self.past, root
            )
        usable = rows.isfinite().all(1)
        if self.private.any():
            inner = rows[usable].mean(0) if usable.any() else torch.zeros_like(update)
            update = torch.where(self.private, inner, update)
        if "buffers" in counted[0].parts:
            found = torch.stack([s.parts["buffers"] for s in counted])
            fine = found.isfinite().all(1)
            if chosen is None and fine.any():
                statistics = server.median(found[fine])
            elif chosen is not None and (chosen * fine).any():
                share = (chosen * fine).to(found)
                statistics = (share[fine] / share.sum()) @ found[fine]
        return update, statistics

    def _require_finite(self):
        held = [
            torch.from_numpy(self.dual),
            self.w,
            self.statistics,
            self.control,
            self.reference,
            self.optimizer.first,
            self.optimizer.second,
        ]
        if self.config["non_finite"] == "fail" and not channel.finite(
            *held, *self.averaged.values(), *self.replicas.values()
        ):
            raise Diverged("the server is not finite")

    # What is judged

    def train_losses(self) -> list[float]:
        """Mean over all local steps of the round, of each client of the cohort."""
        return [
            sum(n * loss for n, loss in did) / max(1, sum(n for n, _ in did))
            for did in self.worked.values()
        ]

    def shared(self):
        """Of each client its part in the sum of the round, NaN of who was not in it; None where
        there was no sum.
        """
        if self.shares is None:
            return None
        found, total = np.full(self.clients, np.nan), sum(map(abs, self.shares.values()))
        for k, p in self.shares.items():
            if k < self.clients:
                found[k] = abs(p) / total
        return found

    def judged(self):
        """(w, statistics): the mean of rounds that the config's ``output`` takes."""
        output, t = self.config["output"], len(self.iterates)
        ages = torch.arange(t).flip(0).double()
        if output["name"] == "last":
            return self.w, self.statistics
        if output["name"] == "ema":
            counts = output["decay"] ** ages
        elif output["name"] == "average":
            counts = torch.ones(t).double()
        else:
            after = 2 ** int(np.log2(t)) // 2
            counts = (torch.arange(1, t + 1) > after).double()
        shares = counts / counts.sum()
        each = zip(*self.iterates, strict=True)
        return tuple((shares @ torch.stack(v).double()).float() for v in each)

    def test_loss(self, model=None) -> float:
        x, y = self.world.batch(self.world.data.test_rows)
        losses, _ = networks.judged(self.world.module, *(model or self.judged()), x, y)
        return float(losses.double().mean())

    def personal(self):
        """Accuracy of each client's own model on its own test rows; None where there is none."""
        name = self.algorithm["name"]
        own = ("ditto", "local", "lp_proj", "drdsgd", "clustered")
        if name not in own and not self.private.any():
            return None
        return np.array([self._accuracy(k, name) for k in range(self.clients)])

    def _accuracy(self, k, name) -> float:
        memory, key = self.memory[k], "buffers" if name == "fedbn" else "personal/buffers"
        w, statistics = (v.clone() for v in self.judged())
        if name == "fedbn":
            w[self.private] = memory.get("kept", self.first)
        if name == "clustered":
            w, key = self.models[self.cluster[k]].clone(), "buffers"
        if name == "drdsgd":
            w = self.models[k].clone()
        first = statistics if self.config["buffers"] == "aggregate" else self.initial
        x, y = self.world.batch(self.world.data.test[k])
        stats = memory.get(key, first)
        self.tied |= networks.ties(self.world.module, memory.get("model", w), stats, x)
        _, hits = networks.judged(self.world.module, memory.get("model", w), stats, x, y)
        return float(hits.double().mean())


def _sum(sents, name, weights):
    """Σ p_k v_k."""
    total = torch.zeros_like(sents[0].parts[name])
    for s in sents:
        if weights[s.k]:
            total = total + weights[s.k] * s.parts[name]
    return total


def _amount(steps: int, rho: float, shrink: float) -> float:
    """FedNova's ‖a‖₁, added up step by step."""
    a = total = 0.0
    for _ in range(steps):
        if rho:
            total = rho * total + 1
            a += total
        else:
            a = a * (1 - shrink) + 1
    return a
