"""Modules that networks are made of and that PyTorch has not.

They are imported where a network is built: a class of ``torch.nn`` needs torch itself, whose import
takes longer than all that a command does that trains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions with batch norm and a skip connection (1x1 convolution where the shape
    changes).
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut: nn.Module = (
            nn.Conv2d(inputs, outputs, 1, stride) if changes else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class MeanPool(nn.Module):
    """The mean over height and width: [B, C, H, W] -> [B, C]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


class PooledFeatures(nn.Module):
    """What EfficientNet-lite's last convolution makes of images, averaged over height and width."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.extract_features(x).mean((2, 3))


class MeanEmbedding(nn.Module):
    """Average the embeddings of a text's tokens, then a linear layer."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        # its mean leaves the padding out, so that the row has no gradient in any case
        self.masks_padding = True
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        present = (ids > 0).unsqueeze(-1)
        total = (self.embedding(ids) * present).sum(-2)
        # a text may have no word at all
        return self.head(total / present.sum(-2).clamp_min(1))


class NextCharacter(nn.Module):
    """Embedded characters [B, L] through stacked LSTMs; the last one's output is classified."""

    def __init__(self, vocabulary: int, embedded: int, width: int, layers: int, out: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedded)
        self.lstm = nn.LSTM(embedded, width, layers, batch_first=True)
        self.head = nn.Linear(width, out)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(ids))
        return self.head(states[:, -1])


class Reader(nn.Module):
    """Outputs [B, L, o] for token ids [B, L], from both sides of each token."""

    def __init__(self, embedding: nn.Embedding, lstm: nn.LSTM, head: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = embedding, lstm, head

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.lstm(self.embedding(ids))[0])
        return found


class SequenceClassifier(nn.Module):
    """A checkpoint's classifier on ids and types [B, 2, L], cut to the batch's longest text."""

    may_draw = True
    """Some architectures call dropout as a function, which no look at the modules finds."""
    depends_on_values = True
    """Which kernels run depends on the lengths of the texts."""

    def __init__(self, net: nn.Module, pad: int, types: int) -> None:
        super().__init__()
        self.net = net
        self.pad, self.types = pad, types

    def forward(self, x: Tensor) -> Tensor:
        ids, types = x[:, 0].long(), x[:, 1].long()
        present = self.present(ids)
        if not (torch.jit._trace.is_tracing() or torch.compiler.is_exporting()):
            # padding behind the longest text of the batch would only be computed and masked
            longest = max(1, int(present.sum(1).max()))
            ids, types, present = (v[:, :longest] for v in (ids, types, present))
        extra = {"token_type_ids": types} if self.types > 1 else {}
        out = self.net(input_ids=ids, attention_mask=present, **extra)
        logits: Tensor = out.logits
        return logits

    def present(self, ids: Tensor) -> Tensor:
        """1 for each token up to a text's last [B, L], 0 behind it: what stands for padding may be
        one of its words, too.
        """
        return ((ids != self.pad).long().flip(1).cumsum(1).flip(1) > 0).long()


class TokenClassifier(SequenceClassifier):
    """The same for each token: [B, L, classes], 0 behind a text."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        whole = torch.nn.functional.pad(logits, (0, 0, 0, x.shape[-1] - logits.shape[1]))
        # where the batch's longest text goes on, a network would say something of padding
        return whole.masked_fill(self.present(x[:, 0]).eq(0).unsqueeze(-1), 0.0)
