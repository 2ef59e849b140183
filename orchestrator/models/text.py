"""Models for token ids [B, L]; 0 is padding."""

from __future__ import annotations

from torch import Tensor, nn

from algorithms.part import option
from orchestrator.models.base import Model


class MeanEmbedding(nn.Module):
    """Average the embeddings of a text's tokens, then a linear layer."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        present = (ids > 0).unsqueeze(-1)
        total = (self.embedding(ids) * present).sum(-2)
        # a text may have no word at all
        return self.head(total / present.sum(-2).clamp_min(1))


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

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"model {self.name!r} needs token ids [L], and the inputs have shape {shape}"
            )
        return MeanEmbedding(self.vocabulary, self.width, classes)
