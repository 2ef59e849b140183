"""Models: the zoo of the papers' architectures, and the network that trainers work on."""

from orchestrator.models import (
    benchmarks,
    deep,
    given,
    images,
    own,
    recurrent,
    text,
    timm_models,
    transformers,
    vision,
)
from orchestrator.models.base import Model
from orchestrator.models.net import Net

__all__ = [
    "Model",
    "Net",
    "benchmarks",
    "deep",
    "given",
    "images",
    "own",
    "recurrent",
    "text",
    "timm_models",
    "transformers",
    "vision",
]
