"""What users' programs are made of."""

from __future__ import annotations

BLOCKS: dict[str, tuple[str, str]] = {
    # what anybody writes
    "linear": ("self.a# = nn.Linear(12, 12)", "h = torch.tanh(self.a#(h))"),
    "residual": ("self.a# = nn.Linear(12, 12, bias=False)", "h = h + F.gelu(self.a#(h))"),
    "matrix": ("self.w# = nn.Parameter(torch.randn(12, 12) / 4)", "h = torch.tanh(h @ self.w#)"),
    "einsum": (
        "self.w# = nn.Parameter(torch.randn(3, 4, 12) / 4)",
        "h = torch.tanh(torch.einsum('bi,oji->boj', h, self.w#).flatten(1))",
    ),
    "gate": ("self.g# = nn.Parameter(torch.zeros(12))", "h = h * torch.sigmoid(self.g#)"),
    "scalar": ("self.s# = nn.Parameter(torch.tensor(0.7))", "h = h * self.s#"),
    "layer_norm": ("self.n# = nn.LayerNorm(12)", "h = self.n#(h)"),
    "group_norm": ("self.n# = nn.GroupNorm(3, 12)", "h = self.n#(h)"),
    "batch_norm": ("self.n# = nn.BatchNorm1d(12)", "h = self.n#(h)"),
    "cumulative": ("self.n# = nn.BatchNorm1d(12, momentum=None)", "h = self.n#(h)"),
    "convolution": (
        "self.c# = nn.Conv1d(1, 3, 3, padding=1)",
        "h = torch.tanh(self.c#(h.unsqueeze(1)).mean(1))",
    ),
    "images": (
        "self.c# = nn.Conv2d(1, 4, 3, padding=1, stride=2)",
        "h = torch.tanh(self.c#(h.view(-1, 1, 3, 4)).flatten(1).repeat(1, 2)[:, :12])",
    ),
    "recurrent": (
        "self.r# = nn.GRU(4, 12, batch_first=True)",
        "h = self.r#(h.view(-1, 3, 4))[1][0]",
    ),
    "attention": (
        "self.m# = nn.MultiheadAttention(4, 2, batch_first=True)",
        "v = h.view(-1, 3, 4); h = h + self.m#(v, v, v, need_weights=False)[0].flatten(1)",
    ),
    "embedding": (
        "self.e# = nn.Embedding(12, 12)",
        "h = h + self.e#(h.argmax(1))",
    ),
    "list": (
        "self.l# = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))",
        "h = torch.tanh(sum(one(h) for one in self.l#) / 3)",
    ),
    "dictionary": (
        "self.d# = nn.ParameterDict({'a': torch.ones(12), 'b': torch.zeros(12)})",
        "h = h * self.d#['a'] + self.d#['b']",
    ),
    # one tensor in several places
    "tied": (
        "self.a# = nn.Linear(12, 12); self.b# = nn.Linear(12, 12); self.b#.weight = self.a#.weight",
        "h = torch.tanh(self.b#(torch.tanh(self.a#(h))))",
    ),
    "called_twice": ("self.a# = nn.Linear(12, 12)", "h = torch.tanh(self.a#(self.a#(h)))"),
    "two_names": ("self.a# = self.b# = nn.Linear(12, 12)", "h = torch.tanh(self.b#(h))"),
    "shared_storage": (
        "self.a# = nn.Parameter(torch.ones(12)); self.b# = nn.Parameter(self.a#.data[:6])",
        "h = h * self.a# + F.pad(self.b#, (0, 6))",
    ),
    "decoder": (
        "self.a# = nn.Linear(12, 12); self.t# = self.a#.weight.t()",
        "h = torch.tanh(self.a#(h)) @ self.t#.t()",
    ),
    "alias": (
        "self.a# = nn.Linear(12, 12); self.t# = [self.a#.weight.detach().t()]",
        "h = torch.tanh(self.a#(h)) @ self.t#[0]",
    ),
    "beside": (
        "w = torch.randn(24, 12) / 4; self.w# = nn.Parameter(w[:12]); self.f# = w[12:]",
        "h = torch.tanh(h @ self.w# + h @ self.f#)",
    ),
    "known": (
        "self.a# = nn.Linear(12, 12); self.own# = [*self.a#.parameters()]",
        "h = torch.tanh(h @ self.own#[0] + self.own#[1])",
    ),
    "spectral_before": (
        "self.a# = nn.utils.spectral_norm(nn.Linear(12, 12))",
        "h = torch.tanh(self.a#(h))",
    ),
    "weight_norm_before": (
        "self.a# = nn.utils.weight_norm(nn.Linear(12, 12))",
        "h = torch.tanh(self.a#(h))",
    ),
    "transposed": (
        "self.w# = nn.Parameter((torch.randn(12, 12) / 4).t())",
        "h = torch.tanh(h @ self.w#)",
    ),
    "expanded": (
        "self.w# = nn.Parameter(torch.ones(1, 1).expand(1, 12).clone())",
        "h = h * self.w#.expand(len(h), 12)",
    ),
    # parameters that are not those that are trained, or not by themselves
    "weight_norm": (
        "self.a# = nn.utils.parametrizations.weight_norm(nn.Linear(12, 12))",
        "h = torch.tanh(self.a#(h))",
    ),
    "orthogonal": (
        "self.a# = nn.utils.parametrizations.orthogonal(nn.Linear(12, 12))",
        "h = torch.tanh(self.a#(h))",
    ),
    "old_weight_norm": (
        "self.a# = nn.utils.weight_norm(nn.Linear(12, 12))",
        "h = torch.tanh(self.a#(h))",
    ),
    "frozen": (
        "self.a# = nn.Linear(12, 12).requires_grad_(False)",
        "h = torch.tanh(self.a#(h))",
    ),
    "half_frozen": (
        "self.a# = nn.Linear(12, 12); self.a#.weight.requires_grad = False",
        "h = torch.tanh(self.a#(h))",
    ),
    "unused": ("self.a# = nn.Linear(5, 7)", "pass"),
    "empty": ("self.z# = nn.Parameter(torch.zeros(0, 3))", "h = h + self.z#.sum()"),
    "detached": ("self.a# = nn.Linear(12, 12)", "h = h + self.a#(h).detach()"),
    "half_detached": (
        "self.a# = nn.Linear(12, 12)",
        "h = torch.tanh(F.linear(h, self.a#.weight.detach(), self.a#.bias))",
    ),
    "data": (
        "self.a# = nn.Linear(12, 12)",
        "h = torch.tanh(F.linear(h, self.a#.weight.data, self.a#.bias))",
    ),
    "no_grad": (
        "self.a# = nn.Linear(12, 12)",
        "\n        with torch.no_grad():\n            v = self.a#(h)\n        h = h + v",
    ),
    "sliced": ("self.w# = nn.Parameter(torch.ones(24))", "h = h * self.w#[::2]"),
    # constants and statistics
    "constant": ("self.register_buffer('k#', torch.linspace(0.5, 1, 12))", "h = h * self.k#"),
    "hidden_constant": (
        "self.register_buffer('k#', torch.linspace(0.5, 1, 12), persistent=False)",
        "h = h * self.k#",
    ),
    "plain_tensor": ("self.k# = torch.linspace(0.5, 1, 12)", "h = h * self.k#"),
    "whole_numbers": (
        "self.register_buffer('k#', torch.arange(12).flip(0))",
        "h = h[:, self.k#]",
    ),
    "double_buffer": (
        "self.register_buffer('k#', torch.linspace(0.5, 1, 12).double())",
        "h = (h * self.k#).float()",
    ),
    "moving_mean": (
        "self.register_buffer('m#', torch.zeros(12))",
        "\n        if self.training:\n            self.m#.mul_(0.9).add_(0.1 * h.detach().mean(0))"
        "\n        h = h - self.m#",
    ),
    "assigned_mean": (
        "self.register_buffer('m#', torch.zeros(12))",
        "\n        if self.training:\n            self.m# = 0.9 * self.m# + 0.1 * h.detach().mean(0)"
        "\n        h = h - self.m#",
    ),
    "latest_mean": (
        "self.register_buffer('m#', torch.zeros(12))",
        "\n        if self.training:\n            self.m# = h.detach().mean(0)\n        h = h - self.m#",
    ),
    "written_mean": (
        "self.register_buffer('m#', torch.zeros(12))",
        "\n        if self.training:\n            self.m#.copy_(h.detach().mean(0))\n        h = h - self.m#",
    ),
    "tied_by_data": (
        "self.a# = nn.Linear(12, 12); self.b# = nn.Linear(12, 12); "
        "self.b#.weight.data = self.a#.weight.data",
        "h = torch.tanh(self.b#(torch.tanh(self.a#(h))))",
    ),
    "watched_weights": (
        "self.a# = nn.Linear(12, 12); self.register_buffer('v#', self.a#.bias.detach())",
        "h = torch.tanh(self.a#(h)) + self.v#",
    ),
    "in_training": (
        "self.a# = nn.Linear(12, 12)",
        "h = torch.tanh(self.a#(h)) if self.training else torch.tanh(self.a#(h)) * 0.9",
    ),
    # hooks
    "forward_hook": (
        "self.a# = nn.Linear(12, 12); "
        "self.a#.register_forward_hook(lambda module, given, made: torch.tanh(made) * 2)",
        "h = self.a#(h)",
    ),
    "pre_hook": (
        "self.a# = nn.Linear(12, 12); "
        "self.a#.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))",
        "h = torch.tanh(self.a#(h))",
    ),
    "backward_hook": (
        "self.a# = nn.Linear(12, 12); "
        "self.a#.register_full_backward_hook(lambda module, given, made: (given[0] * 0.5,))",
        "h = torch.tanh(self.a#(h))",
    ),
    "parameter_hook": (
        "self.a# = nn.Linear(12, 12); self.a#.weight.register_hook(lambda g: g * 0.3)",
        "h = torch.tanh(self.a#(h))",
    ),
    "accumulated_hook": (
        "self.a# = nn.Linear(12, 12); self.a#.weight.register_post_accumulate_grad_hook("
        "lambda p: setattr(p, 'grad', p.grad * 0.3))",
        "h = torch.tanh(self.a#(h))",
    ),
    "activation_hook": (
        "pass",
        "\n        h = h * 1.0\n        if h.requires_grad:\n            h.register_hook(lambda g: g * 0.5)",
    ),
    # closures and functions over the module
    "closure": (
        "self.a# = nn.Linear(12, 12); self.f# = lambda v: torch.tanh(self.a#(v))",
        "h = self.f#(h)",
    ),
    "partial": (
        "self.w# = nn.Parameter(torch.ones(12)); self.f# = partial(torch.mul, self.w#)",
        "h = self.f#(h)",
    ),
    "kept_reference": (
        "self.a# = nn.Linear(12, 12); self.w# = [self.a#.weight]",
        "h = torch.tanh(F.linear(h, self.w#[0]))",
    ),
    # computations that cannot be seen through, or are not only forward
    "in_place": ("pass", "h = h.clone(); h.mul_(0.5).add_(0.1)"),
    "masked": ("pass", "h = h.masked_fill(h < 0, 0.1)"),
    "sorted": ("pass", "h = h.sort(1).values"),
    "top": ("pass", "h = torch.cat([h.topk(6, 1).values, h[:, :6]], 1)"),
    "fourier": ("pass", "h = torch.cat([torch.fft.rfft(h).abs(), h[:, :5]], 1)"),
    "doubled": ("pass", "h = h.double().exp().log1p().float()"),
    "by_value": ("pass", "h = h * 2 if float(h.detach().mean()) > 0 else h"),
    "item": ("pass", "h = h / (1 + h.detach().abs().max().item())"),
    "numpy": ("pass", "h = h * torch.from_numpy(np.linspace(0.5, 1, 12, dtype=np.float32))"),
    "through_numpy": ("pass", "h = h + torch.from_numpy(np.tanh(h.detach().numpy()))"),
    "function": ("pass", "h = Halved.apply(h)"),
    "checkpoint": (
        "self.a# = nn.Linear(12, 12)",
        "h = torch.tanh(torch.utils.checkpoint.checkpoint(self.a#, h, use_reentrant=False))",
    ),
    "inner_gradient": (
        "self.a# = nn.Linear(12, 12)",
        "\n        with torch.enable_grad():\n            v = h if h.requires_grad else "
        "h.detach().requires_grad_()\n            (g,) = torch.autograd.grad("
        "torch.tanh(self.a#(v)).sum(), v, create_graph=True)\n        h = h + g",
    ),
    "solved": (
        "self.w# = nn.Parameter(torch.eye(12))",
        "h = torch.linalg.solve(self.w#.T @ self.w# + torch.eye(12), h.T).T",
    ),
    "loop": (
        "self.a# = nn.Linear(12, 12)",
        "\n        for _ in range(3): h = torch.tanh(self.a#(h))",
    ),
    "asked_for_gradients": (
        "self.a# = nn.Linear(12, 12)",
        "h = torch.tanh(self.a#(h)) * (1.0 if torch.is_grad_enabled() else 0.5)",
    ),
    "kept_output": ("pass", "self.last# = h"),
    "counted": ("self.n# = 0", "self.n# += 1; h = h * (1 + 0.1 * (self.n# % 3))"),
}
LOSSES: dict[str, str] = {
    "plain": "return F.cross_entropy(outputs, targets, reduction='none')",
    "focal": "p = F.cross_entropy(outputs, targets, reduction='none'); return (1 - (-p).exp()) ** 2 * p",
    "squares": "return (outputs.softmax(1) - F.one_hot(targets, outputs.shape[1])).square().sum(1)",
    "hinge": "return F.multi_margin_loss(outputs, targets, reduction='none')",
    "gathered": "return -outputs.log_softmax(1).gather(1, targets[:, None]).squeeze(1)",
    "indexed": "return outputs.logsumexp(1) - outputs[torch.arange(len(targets)), targets]",
    "rows": "return torch.stack([F.cross_entropy(o, t) for o, t in zip(outputs, targets)])",
    "distilled": "p = outputs.detach().softmax(1); return -(p * outputs.log_softmax(1)).sum(1) + "
    "F.cross_entropy(outputs, targets, reduction='none')",
    "weighted": "w = torch.linspace(0.5, 2, outputs.shape[1]); "
    "return F.cross_entropy(outputs, targets, weight=w, reduction='none')",
    "clipped": "return F.cross_entropy(outputs, targets, reduction='none').clamp(max=1.5)",
    "mean": "return F.cross_entropy(outputs, targets)",
    "kept": "seen.append(len(targets)); return F.cross_entropy(outputs, targets, reduction='none')",
}
STATES: dict[str, tuple[str, str]] = {
    "count": ("0", "self.kept += 1; part = 1 / self.kept"),
    "large": ("10**400", "self.kept += 1; part = 1 / (1 + self.kept % 7)"),
    "infinite": ("math.inf", "part = 0.5 if self.kept == math.inf else 1.0"),
    "nan": ("math.nan", "part = 0.5 if self.kept != self.kept else 1.0"),
    "float64": (
        "np.float64(1)",
        "self.kept = self.kept * np.float64(0.9); part = float(self.kept)",
    ),
    "float32": (
        "np.float32(1)",
        "self.kept = self.kept * np.float32(0.9); part = float(self.kept)",
    ),
    "array": ("np.ones(3)", "self.kept[0] *= 0.9; part = float(self.kept[0])"),
    "column": ("np.ones((3, 3)).T[1:]", "self.kept[0] *= 0.9; part = float(self.kept[0, 0])"),
    "empty": ("np.ones((0, 3))", "part = 0.5 if self.kept.shape == (0, 3) else 1.0"),
    "texts": ("np.array(['a', 'b'])", "part = 0.5 if self.kept[1] == 'b' else 1.0"),
    "tensor": ("torch.ones(())", "self.kept.mul_(0.9); part = float(self.kept)"),
    "half": ("torch.ones(3).half()", "self.kept *= 0.9; part = float(self.kept[0])"),
    "bfloat": ("torch.ones(3).bfloat16()", "self.kept *= 0.9; part = float(self.kept[0])"),
    "truths": ("torch.tensor([True, False])", "self.kept = ~self.kept; part = float(self.kept[0])"),
    "velocity": (
        "torch.zeros_like(self.w)",
        "self.kept = 0.9 * self.kept + 0.1 * self.w; part = 1 - float(self.kept.norm()) * 1e-3",
    ),
    "view": ("self.w[:3]", "self.kept.mul_(0.9); part = 0.5 + float(self.w[0])"),
    "list": ("[]", "self.kept.append(1); part = 1 / len(self.kept)"),
    "tuple": ("()", "self.kept += (1,); part = 1 / len(self.kept)"),
    "set": ("set()", "self.kept.add(len(self.kept)); part = 1 / len(self.kept)"),
    "queue": ("deque([1.0], maxlen=2)", "self.kept.append(0.5); part = sum(self.kept) / 2"),
    "counter": ("Counter()", "self.kept['a'] += 1; part = 1 / self.kept['a']"),
    "nested": (
        "{'a': {'b': [1.0, {'c': np.ones(2)}]}}",
        "self.kept['a']['b'][1]['c'] *= 0.9; part = float(self.kept['a']['b'][1]['c'][0])",
    ),
    "by_number": ("{1: 1.0}", "self.kept[1] *= 0.9; part = self.kept[1]"),
    "by_pair": ("{(1, 2): 1.0}", "self.kept[1, 2] *= 0.9; part = self.kept[1, 2]"),
    "nothing": (
        "None",
        "self.kept = 0.5 if self.kept is None else self.kept / 2; part = self.kept",
    ),
    "truth": ("True", "self.kept = not self.kept; part = 1.0 if self.kept is True else 0.5"),
    "text": ("''", "self.kept += 'é'; part = 1 / len(self.kept)"),
    "twice": (
        "[torch.ones(1)] * 2",
        "self.kept[0].mul_(0.9); part = float(self.kept[1])",
    ),
    "both": (
        "dict.fromkeys('ab', np.ones(1))",
        "self.kept['a'] *= 0.9; part = float(self.kept['b'][0])",
    ),
    "ordered": (
        "OrderedDict(a=0.2, b=0.9)",
        "self.kept.move_to_end('a'); part = next(iter(self.kept.values()))",
    ),
    "named": ("Enum('Half', 'A B', type=int).A", "part = 0.5 if self.kept.name == 'A' else 1.0"),
    "parameter": (
        "nn.Parameter(torch.ones(2))",
        "g, = torch.autograd.grad(self.kept.square().sum(), self.kept); "
        "self.kept.data -= 0.1 * g; part = float(self.kept[0].detach())",
    ),
    "leaf": (
        "torch.ones(2, requires_grad=True)",
        "self.kept.square().sum().backward(); self.kept.data -= 0.1 * self.kept.grad; "
        "self.kept.grad = None; part = float(self.kept[0].detach())",
    ),
    "halves": (
        "(lambda flat: {'flat': flat, 'low': flat[:2], 'high': flat[2:]})(torch.ones(4))",
        "self.kept['flat'].mul_(0.9); self.kept['low'].mul_(0.9); part = float(self.kept['low'][0])",
    ),
    "rows": (
        "(lambda t: [t, t[1], t.T])(np.ones((2, 3)))",
        "self.kept[1] *= 0.9; self.kept[2][0] *= 0.9; part = float(self.kept[0][1, 0])",
    ),
    "turned": (
        "torch.linspace(0, 1, 3000).view(30, 100).T",
        "self.kept.mul_(0.9); part = float((self.kept.T @ self.kept).sum() % 1)",
    ),
    "spread": (
        "torch.linspace(0, 1, 600).view(200, 3)[:, 1]",
        "self.kept.mul_(0.9); part = float(self.kept.sum() % 1)",
    ),
    "backwards": (
        "np.linspace(0, 1, 500)[::-1]",
        "self.kept *= 0.9; part = float(self.kept @ self.kept % 1)",
    ),
    "rate": ("torch.tensor(0.5).expand(3)", "part = float(self.kept.sum()) / 2"),
    "counts": (
        "{np.int64(1): np.float32(1)}",
        "self.kept[np.int64(1)] *= np.float32(0.9); part = float(self.kept[1])",
    ),
    "pair": (
        "(lambda both: {'best': (1, 2.0), 'a': both, 'b': both})([1.0])",
        "self.kept['a'][0] *= 0.9; part = self.kept['b'][0]",
    ),
    "bests": ("{}", "self.kept.setdefault(len(self.kept), math.inf); part = 1 / len(self.kept)"),
    "windows": (
        "torch.ones(5).unfold(0, 3, 1)",
        "self.kept = self.kept * 0.9; part = float(self.kept[0, 0])",
    ),
    "generator": ("np.random.default_rng(1)", "part = float(self.kept.random())"),
    "drawing": ("torch.Generator()", "part = float(torch.rand(1, generator=self.kept))"),
    "object": ("SimpleNamespace(a=1.0)", "self.kept.a *= 0.9; part = self.kept.a"),
    "module": (
        "nn.Linear(2, 1)",
        "self.kept.bias.data.mul_(0.9); part = 1 + float(self.kept.bias.detach())",
    ),
    "optimizer": (
        "torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])",
        "g = self.kept.param_groups[0]; g['lr'] *= 0.9; part = 1 - g['lr']",
    ),
}
"""What an algorithm keeps: its first value, and a round's change of it, which makes ``part`` of the
aggregate count."""
NETWORK = """from functools import partial

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

seen = []


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g / 2


def loss(outputs, targets):
    {loss}


class Own(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.enter = nn.Linear(features, 12)
{made}
        self.leave = nn.Linear(12, classes)

    def forward(self, x):
        h = torch.tanh(self.enter(x.flatten(1)))
{called}
        return self.leave(h)
"""
SERVER = '''import math
from collections import Counter, OrderedDict, deque
from enum import Enum
from types import SimpleNamespace

import fedorch
import numpy as np
import torch
from torch import nn


class Keeping(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        """An algorithm that keeps something."""

        name: str = "keeping"

    options: Options
    server_state = (*fedorch.FedAvg.server_state, "kept")

    def start(self):
        super().start()
        self.kept = {first}

    def apply(self, updates):
        {then}
        self.w = self.w + part * self.aggregate(updates, "delta")
        self.take_buffers(updates)
'''
RULES: dict[str, str] = {
    "plain": "pass",
    "momentum": """
    def direction(self, gradient, work):
        return work.state["m"].mul_(0.9).add_(gradient)""",
    "replaced": """
    def direction(self, gradient, work):
        work.state["m"] = 0.9 * work.state["m"] + gradient
        return work.state["m"]""",
    "pulled": """
    def direction(self, gradient, work):
        return gradient + 0.1 * (work.w - work.start)""",
    "by_its_loss": """
    def direction(self, gradient, work):
        return gradient * work.loss.clamp(0.1, 2)[:, None]""",
    "of_length_one": """
    def direction(self, gradient, work):
        return gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-6)""",
    "noise": """
    def upload(self, work):
        drawn = [fedorch.generator(3, "own", int(k)) for k in work.clients]
        noise = [g.standard_normal(work.w.shape[1], np.float32) for g in drawn]
        return {"delta": work.w - work.start + 0.01 * torch.from_numpy(np.stack(noise))}""",
    "counting": """
    def after_step(self, work):
        work.state["n"] += 1
        work.w.mul_(1 - 0.001 * work.state["n"][:, None])""",
    "counting_anew": """
    def after_step(self, work):
        work.state["n"] = work.state["n"] + 1
        work.w = work.w * (1 - 0.001 * work.state["n"][:, None])""",
    "swapped": """
    def after_step(self, work):
        work.state["m"], work.state["x"] = work.state["x"], work.state["m"] + work.w""",
    "anchored": """
    def direction(self, gradient, work):
        v = gradient + 0.9 * (work.state["m"] - work.state["x"])
        work.state["m"], work.state["x"] = v, gradient
        return v""",
    "part_of_it": """
    def direction(self, gradient, work):
        kept = work.state["m"][:, :5].sum(1, keepdim=True)
        work.state["m"] = gradient
        return gradient + 0.01 * kept""",
    "halved": """
    watches_accuracy = True

    def epoch(self, work, starting, accuracy):
        work.w = torch.where(starting[:, None], 0.9 * work.w, work.w)
        work.state["n"] = work.state["n"] + torch.where(starting, accuracy, 0.0)""",
    "alias": """
    def after_step(self, work):
        work.w = 0.9 * work.w + 0.1 * work.state["m"]
        work.state["m"] = work.w""",
    "extras": """
    def begin(self, work):
        work.extras["sum"] = torch.zeros(len(work.clients), work.spec.size)
        return super().begin(work)

    def after_step(self, work):
        work.extras["sum"] += work.w

    def upload(self, work):
        return {"delta": work.extras["sum"] / work.steps[:, None] - work.start}""",
    "moved": """
    def begin(self, work):
        return super().begin(work) * (1 + 0.01 * work.clients[:, None])""",
    "further": """
    def upload(self, work):
        work.state["m"] = work.w.clone()
        return {"delta": work.w - work.start, "further": work.state["n"] + 1}""",
    "watching": """
    watches_accuracy = True

    def epoch(self, work, starting, accuracy):
        work.state["n"] += torch.where(starting, accuracy, 0.0)

    def direction(self, gradient, work):
        return gradient / (1 + work.state["n"][:, None])""",
    "mean": """
    def direction(self, gradient, work):
        return gradient - 0.1 * gradient.mean(0)""",
    "by_all_losses": """
    def after_step(self, work):
        work.w.mul_(1 - 0.01 * float(work.loss.mean()))""",
    "drawing": """
    def direction(self, gradient, work):
        return gradient + 0.01 * torch.randn_like(gradient)""",
    "adding": """
    def after_step(self, work):
        work.extras["new"] = work.w.clone()""",
    "elsewhere": """
    def after_step(self, work):
        work.w.data = work.w.data * 0.99""",
    "popped": """
    def begin(self, work):
        work.extras["first"] = torch.ones(len(work.clients))
        return super().begin(work)

    def direction(self, gradient, work):
        return gradient * (1 + work.extras.pop("first", torch.zeros(()))).reshape(-1, 1)""",
    "unnamed": """
    def begin(self, work):
        work.state.setdefault("q", torch.zeros(len(work.clients)))
        return super().begin(work)""",
    "last": """
    def direction(self, gradient, work):
        work.state["m"] = gradient
        return gradient""",
    "drifting": """
    def direction(self, gradient, work):
        drift = work.w - work.start
        return gradient + 0.1 * drift / (drift.norm() + 1e-8)""",
    "consensus": """
    def direction(self, gradient, work):
        return gradient + 0.1 * (work.w - work.w.mean(0))""",
    "sent": """
    def sent(self, work, messages):
        work.state["m"] = messages["delta"].clone()

    def direction(self, gradient, work):
        return gradient - 0.1 * work.state["m"]""",
    "sent_by_all": """
    def sent(self, work, messages):
        work.state["m"] = messages["delta"].mean(0).expand_as(work.w).clone()

    def direction(self, gradient, work):
        return gradient - 0.1 * work.state["m"]""",
    "alone": """
    def direction(self, gradient, work):
        return gradient / len(work.clients)""",
}
"""The client side of an algorithm, each client of which keeps m and x [d], and n."""
RULE = '''from dataclasses import dataclass

import fedorch
import numpy as np
import torch


@dataclass(frozen=True)
class Rule(fedorch.LocalRule):
    def state(self, received, spec):
        zero = torch.zeros(spec.size)
        return {"m": zero, "x": zero.clone(), "n": torch.zeros(())}
{rule}


class Ruled(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        """An algorithm whose clients do something."""

        name: str = "ruled"

    options: Options

    def rule(self):
        return Rule()
'''


def network(blocks: list[str], loss: str) -> str:
    """A user's file with a network and a loss."""
    made, called = [], []
    for number, name in enumerate(blocks):
        first, then = (text.replace("#", str(number)) for text in BLOCKS[name])
        made.append(f"        {first}")
        called.append(f"        {then}")
    return NETWORK.format(loss=LOSSES[loss], made="\n".join(made), called="\n".join(called))


def server(state: str) -> str:
    """A user's file with an algorithm that keeps something."""
    first, then = STATES[state]
    return SERVER.replace("{first}", first).replace("{then}", then)


def clients(rule: str) -> str:
    """A user's file with an algorithm whose clients do something."""
    return RULE.replace("{rule}", "" if RULES[rule] == "pass" else RULES[rule])
