"""Recurrent networks for sequences of characters or words, as ids [B, L]."""

from __future__ import annotations

import torch

from algorithms.part import Width, option
from orchestrator.models.base import Model


class CharLstm(Model):
    """LEAF's network for Shakespeare (Caldas et al. 2018): an embedding of 8, two LSTMs of 256, a
    dense layer. With ``vocabulary`` 80 and 80 characters 819,920 parameters, with 90 and 90 822,570
    (Reddi et al. 2021, who count 820,522: PyTorch's LSTM has a second bias, 2,048 numbers).
    FedProx' paper has ``width`` 100.
    """

    name: str = "char_lstm"
    vocabulary: int | None = option(
        None,
        "rows of the embedding; unset: one for each class (the next character), and one more for "
        "characters that are none of them",
        ge=2,
        le=1_000_000,
    )
    embedding: int = option(8, "width of the embedding", ge=1, le=4096)
    width: Width = option(256, "width of each LSTM")
    layers: int = option(2, "LSTMs, one on top of the other", ge=1, le=20)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"model {self.name!r} needs ids of characters [L], and the inputs have shape "
                f"{shape}"
            )
        from orchestrator.models.modules import NextCharacter

        rows = self.vocabulary or classes + 1
        return NextCharacter(rows, self.embedding, self.width, self.layers, classes)


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

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"model {self.name!r} needs token ids [L], and the inputs have shape {shape}"
            )
        from orchestrator.models.modules import Reader

        words = torch.nn.Embedding(self.vocabulary, self.embedding, padding_idx=0)
        reader = torch.nn.LSTM(
            self.embedding, self.width, self.layers, batch_first=True, bidirectional=True
        )
        return Reader(words, reader, torch.nn.Linear(2 * self.width, classes))
