"""Models for token ids [B, L]; 0 is padding."""

from __future__ import annotations

import torch

from algorithms.part import option
from orchestrator.models.base import Model


class FastText(Model):
    """Bag of word embeddings and a linear classifier (Joulin et al. 2017)."""

    name: str = "fasttext"
    vocabulary: int = option(
        20_000,
        "rows of the embedding; the tokenizer's vocabulary must not be larger",
        ge=2,
        le=1_000_000,
    )
    width: int = option(32, "embedding width", ge=1, le=4096)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"model {self.name!r} needs token ids [L], and the inputs have shape {shape}"
            )
        from orchestrator.models.modules import MeanEmbedding

        return MeanEmbedding(self.vocabulary, self.width, classes)
