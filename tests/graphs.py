"""What stands in for CUDA graphs on a CPU: the same operations on the same memory, and nothing of the
Python around them.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from orchestrator.clients.plane import InProcess
from orchestrator.training.recording import Stands

LOOKS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class Operations(TorchDispatchMode):
    """Operations with their tensors, in order."""

    def __init__(self):
        super().__init__()
        self.done = []
        self.looked = False
        """Whether Python was told a number, which a GPU refuses to tell while it captures."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        # whole numbers are of how many rows count, which are on the CPU there, too
        self.looked |= function in LOOKS and args[0].is_floating_point()
        given = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs or {}))
        out = function(*args, **(kwargs or {}))
        # as they are now: torch's own code may yet turn a tensor, which moves none of its numbers
        made = tree_map_only(torch.Tensor, torch.Tensor.detach, out)
        self.done.append((function, *given, made))
        return out

    def again(self):
        with torch.no_grad():
            for function, args, kwargs, out in self.done:
                new = function(*args, **kwargs)
                if function.is_view or function._schema.is_mutable:
                    continue
                # of some it is a number, for Python to look at
                several = isinstance(out, tuple | list)
                pairs = zip(out, new, strict=True) if several else [(out, new)]
                for there, value in pairs:
                    if isinstance(there, torch.Tensor):
                        there.copy_(value)


class Graphs:
    """Records on a CPU, and counts."""

    def __init__(self):
        self.captures = self.replays = 0

    def __call__(self, function):
        self.captures += 1
        with Operations() as operations:
            function()
        if operations.looked:
            return None

        def replay():
            self.replays += 1
            operations.again()

        return replay


def recording(graphs):
    """A plane whose lanes record their steps."""

    def make(world):
        plane = InProcess(world)
        plane.host.stands = {kind: Stands(graphs) for kind in plane.host.engines}
        return plane

    return make
