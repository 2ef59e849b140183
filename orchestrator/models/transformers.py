"""Pre-trained transformers for classifying texts or their tokens (Hugging Face), whole or by
low-rank adapters.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import torch

from algorithms.part import option
from orchestrator.models.base import Model

HEADS = ("classifier", "score")
"""Modules that peft trains as a whole by itself in a classifier of sequences."""
TARGETS = {"distilbert": ("q_lin", "v_lin")}
"""Where adapters go, by architecture, that peft has no choice for."""


class Transformer(Model):
    """Any checkpoint of the Hugging Face library, by name or path, that classifies texts, or each
    of their tokens.

    The data must be tokenised for it: ``data.dataset.tokenizer`` with the same name or path. With
    ``lora_rank`` only low-rank adapters (Hu et al. 2022) and the classification head are trained,
    sent and averaged.
    """

    name: str = "transformer"
    init: Literal["default"] = option("default", "the checkpoint's weights; only the head is drawn")
    checkpoint: str = option(
        "distilbert-base-uncased", "name on the Hugging Face hub, or a local folder", file=True
    )
    lora_rank: int = option(0, "rank of the adapters; 0 trains all parameters", "r", ge=0, le=4096)
    lora_alpha: int = option(16, "scale of the adapters, α/r", "α", ge=1, le=1_000_000)
    lora_dropout: float = option(0.0, "dropout before the adapters", ge=0, lt=1)
    lora_targets: tuple[str, ...] = option(
        (), "modules that get adapters; unset: peft's choice, where it has one"
    )
    head: Literal["sequence", "tokens"] = option(
        "sequence", "whether a text has a class, or each of its tokens"
    )
    dropout: float | None = option(None, "all dropout rates; unset: the checkpoint's", ge=0, lt=1)

    @property
    def tags(self) -> bool:
        return self.head == "tokens"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(
                f"model {self.name!r} needs tokenised text; set data.dataset.tokenizer to "
                f"{self.checkpoint!r}"
            )
        from orchestrator.models.modules import SequenceClassifier, TokenClassifier

        net, fresh = self._load(classes)
        pad = net.config.pad_token_id
        types = int(getattr(net.config, "type_vocab_size", 0) or 0)
        if self.lora_rank:
            net = self._with_adapters(net, fresh)
        kind = TokenClassifier if self.tags else SequenceClassifier
        return kind(net, 0 if pad is None else pad, types)

    def _load(self, classes: int) -> tuple[Any, list[str]]:
        """The network, and the modules that the checkpoint does not hold (the head)."""
        import transformers

        named = "TokenClassification" if self.tags else "SequenceClassification"
        cls = getattr(transformers, f"AutoModelFor{named}")
        try:
            config = transformers.AutoConfig.from_pretrained(self.checkpoint, num_labels=classes)
            if self.dropout is not None:
                # architectures have names of their own for their dropout rates
                for key, value in config.to_dict().items():
                    if re.search("dropout|pdrop", key) and not isinstance(value, bool):
                        setattr(config, key, self.dropout)
            net, info = cls.from_pretrained(
                self.checkpoint, config=config, output_loading_info=True
            )
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise ValueError(
                f"model.checkpoint: cannot load {self.checkpoint!r}: {reason}"
            ) from error
        if self.dropout is not None:
            require_rate(net, self.dropout)
        # checkpoints may be of half precision, and the flat vector is float32
        return net.to(torch.float32), sorted(
            {key.rpartition(".")[0] for key in info["missing_keys"]}
        )

    def _with_adapters(self, net: Any, fresh: list[str]) -> Any:
        """Adapters in a frozen network; what the checkpoint does not hold is trained as a whole.

        A module must be named once: wrapped twice, its trained copy is not the one that is used.
        """
        from peft import LoraConfig, TaskType, get_peft_model

        others = [name for name in fresh if name.partition(".")[0] not in HEADS]
        targets = self.lora_targets or TARGETS.get(net.config.model_type, ())
        config = LoraConfig(
            task_type=TaskType.TOKEN_CLS if self.tags else TaskType.SEQ_CLS,
            r=self.lora_rank,
            lora_alpha=self.lora_alpha,
            lora_dropout=self.lora_dropout,
            target_modules=list(targets) or None,
            modules_to_save=others or None,
        )
        try:
            return get_peft_model(net, config)
        except ValueError as error:
            raise ValueError(f"model.lora_targets: {' '.join(str(error).split())[:160]}") from error


def require_rate(net: torch.nn.Module, rate: float) -> None:
    """Raise ValueError where some of a network's dropout has another rate, be it called as it may
    in the checkpoint's config; where none is meant (0) it may be left.
    """
    rates = {part.p for part in net.modules() if isinstance(part, torch.nn.Dropout)}
    if others := rates - {rate, 0.0}:
        raise ValueError(
            f"model.dropout: the checkpoint's network drops by {min(others):g}, too, which no key "
            "of its config.json says that has dropout or pdrop in its name; leave it unset"
        )


class RobertaBase(Transformer):
    """RoBERTa-base (125 million parameters), the first model of FDA-Opt's experiments."""

    name: str = "roberta_base"
    checkpoint: str = option(
        "roberta-base", "name on the Hugging Face hub, or a local folder", file=True
    )


class DebertaV3Base(Transformer):
    """DeBERTaV3-base, the second model of FDA-Opt's experiments."""

    name: str = "deberta_v3_base"
    checkpoint: str = option(
        "microsoft/deberta-v3-base", "name on the Hugging Face hub, or a local folder", file=True
    )
