"""Random changes of training inputs, drawn anew for each mini-batch."""

from orchestrator.data.augment.augmentation import Augmentation
from orchestrator.data.augment.images import Crop, Cutout, Flip
from orchestrator.data.augment.singly import OwnAugmentation, TorchVision

__all__ = ["Augmentation", "Crop", "Cutout", "Flip", "OwnAugmentation", "TorchVision"]
