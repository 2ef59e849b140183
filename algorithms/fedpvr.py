"""FedPVR — Li et al. (CVPR 2023), "On the Effectiveness of Partial Variance Reduction in Federated
Learning".

Algorithm 1: SCAFFOLD (option II) with control variates for the last layers only; FedAvg in the
others. All layers: SCAFFOLD. The authors' code gives the uncorrected layers momentum 0.9; here
local training is plain SGD, as SCAFFOLD's.
"""

from __future__ import annotations

from algorithms.flat import slices
from algorithms.part import Layers, option
from algorithms.scaffold import Scaffold


class FedPvr(Scaffold):
    """Control variates where the clients' gradients differ most."""

    class Options(Scaffold.Options):
        """SCAFFOLD in the last layers, FedAvg below."""

        name: str = "fedpvr"
        layers: Layers = option(
            1,
            "corrected layers: the last so many that the network declares, or a regular expression "
            "over tensor names",
        )

    options: Options

    @property
    def part(self) -> slice:
        """The corrected layers; raises ValueError if there are none such, or not side by side."""
        # one slice of a gradient is a view, to be corrected in place; several would be a copy
        parts = slices(self.setting.spec.chosen(self.options.layers))
        if len(parts) != 1:
            raise ValueError(
                f"the layers that fedpvr corrects must be neighbours, and {self.options.layers!r} "
                "are not"
            )
        return parts[0]
