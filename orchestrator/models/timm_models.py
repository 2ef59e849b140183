"""The classifiers of the timm library (Wightman 2019) by their names there."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import JsonValue

from algorithms.part import nearest, option
from orchestrator.models.base import image_shape
from orchestrator.models.layers import group_norm
from orchestrator.models.pretrained import LibraryModel, load_weights


class TimmModel(LibraryModel):
    """A network of timm for images, with as many outputs and channels as the data have."""

    name: str = "timm"
    of: str = option("resnet18", "the network's name in timm", max_length=100)
    norm: Literal["batch", "group"] = option(
        "batch", "batch norm (where the network has it), or group norm in its place"
    )
    groups: int = option(2, "group norm: most groups of channels a layer", ge=1, le=4096)
    weights: str = option(
        "none", "a file with the network's state dict (.safetensors, or torch's), or none",
        file=True,
    )  # fmt: skip
    options: dict[str, JsonValue] = option(
        {}, "keyword arguments of the network in timm, such as img_size"
    )

    @property
    def foreign(self) -> str:
        # dropout and dropped paths, which timm has in many ways, are found by trying
        return f"timm's {self.of}"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, _, _ = image_shape(shape, 4, f"timm {self.of}")
        self._require_known()
        if self.weights == "none":
            net = self._made(in_chans=channels, num_classes=classes)
        else:
            net = self._weighted(channels, classes)
        if self.norm == "group":
            group_norm(net, self.groups)
        return net

    def _require_known(self) -> None:
        import timm

        if not timm.is_model(self.of):
            # there are more than a thousand names
            near = nearest(self.of, timm.list_models())
            raise ValueError(f"model.of: timm has no {self.of!r}; {near}"[:300])

    def _made(self, **facts: int) -> Any:
        """The network; raises ValueError for options that it does not take."""
        import timm

        taken = [name for name in ("in_chans", "num_classes", "pretrained") if name in self.options]
        if taken:
            raise ValueError(f"model.options: {taken[0]} is not for them to say")
        given: dict[str, Any] = {**self.options, **facts}
        try:
            return timm.create_model(self.of, pretrained=False, **given)
        except Exception as error:  # whatever the code of any network raises
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"model.options: timm's {self.of}: {why}") from error

    def _weighted(self, channels: int, classes: int) -> Any:
        """The network as it was published, with a file's weights, and a fresh last layer."""
        net = self._made()
        if channels != net.default_cfg.get("input_size", (3,))[0]:
            raise ValueError(
                f"model.weights: those of timm's {self.of} are for images of other channels than "
                f"these have ({channels})"
            )
        load_weights(net, self.weights, "model.weights", f"timm's {self.of}")
        net.reset_classifier(classes)
        return net
