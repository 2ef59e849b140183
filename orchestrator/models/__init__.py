"""Models: the zoo of the papers' architectures, and the network that trainers work on."""

from orchestrator.models import deep, given, images, own, text, transformers, vision
from orchestrator.models.base import Model
from orchestrator.models.net import Net

__all__ = ["Model", "Net", "deep", "given", "images", "own", "text", "transformers", "vision"]
