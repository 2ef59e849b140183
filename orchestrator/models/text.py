"""Models for token ids [B, L]; 0 is padding."""

from __future__ import annotations

from torch import Tensor, nn

from algorithms.part import Width, option
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


class LstmTagger(Model):
    """Word embeddings, LSTM layers in both directions, and a dense layer for each token (Huang et
    al. 2015, without their conditional random field).
    """

    name: str = "lstm_tagger"
    vocabulary: int = option(
        20_000,
        "rows of the embedding; the tokenizer's vocabulary must not be larger",
        ge=2,
        le=1_000_000,
    )
    embedding: Width = option(64, "embedding width")
    width: Width = option(64, "units of each direction")
    layers: int = option(1, "LSTM layers", ge=1, le=8)

    @property
    def tags(self) -> bool:
        return True

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"model {self.name!r} needs token ids [L], and the inputs have shape {shape}"
            )
        words = nn.Embedding(self.vocabulary, self.embedding, padding_idx=0)
        reader = nn.LSTM(
            self.embedding, self.width, self.layers, batch_first=True, bidirectional=True
        )
        return nn.Sequential(words, _States(reader), nn.Linear(2 * self.width, classes))


class _States(nn.Module):
    """A recurrent network's outputs, without the states that it ends in."""

    def __init__(self, reader: nn.LSTM) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.reader(x)[0]
        return states


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
