"""Text datasets as token ids: hashed words, which need no vocabulary, or a tokenizer's."""

from __future__ import annotations

import csv
import hashlib
import re
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from algorithms.part import option
from algorithms.parts.losses import IGNORED
from orchestrator.data.room import need
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import Form, missing, read_rows, stored
from orchestrator.errors import UserError
from orchestrator.extras import named_if_missing

Texts = list[tuple[tuple[str, ...], int]]
"""(the one or two pieces of a text, label)"""
WORD = re.compile(r"\w+|[^\w\s]")


DIGEST = "sha256 "
"""What follows it in :attr:`Dataset.made_by` is of what a tokenizer does, wherever it lies."""
PROBE = (
    "Seven grey herons don't fly\tby night, do they?  ÉTÉ x²=1.5e-3 ffi 東京 😀",
    "Yes: 1,024.",
)


class Tokens(Dataset):
    """A dataset whose inputs are token ids, made of texts."""

    length: int = option(64, "tokens kept of each text; shorter ones are padded", ge=1, le=8192)
    tokenizer: str | None = option(
        None, "Hugging Face tokenizer by name or folder, for transformers; unset: words"
    )
    vocabulary: int = option(
        20_000, "number of ids that words are hashed to (id 0 is padding)", ge=2, le=1_000_000
    )

    @property
    def made_by(self) -> str:
        if self.tokenizer is None:
            return f"words, hashed to {self.vocabulary} (vocabulary)"
        return f"tokenizer {self.tokenizer}, {DIGEST}{_does(_tokenizer(self.tokenizer))}"

    @property
    def padding(self) -> int | None:
        return int(_tokenizer(self.tokenizer).pad_token_id) if self.tokenizer else 0

    def ids(self, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        """Token ids [n, length] int32 of texts of one or two pieces; of a tokenizer, ids and types
        [n, 2, length].
        """
        # ids and, of a tokenizer, types, too
        need(8 * self.length * len(texts), "data.dataset.length")
        if self.tokenizer is None:
            return self._words(texts)
        return _tokenized(self.tokenizer, texts, self.length)

    def tagged(
        self, words: Sequence[Sequence[str]], tags: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same of texts in words, and the class of each token [n, length] int64: of a word's
        first token its own, else ``IGNORED``.
        """
        need(8 * self.length * len(words), "data.dataset.length")
        targets = np.full((len(words), self.length), IGNORED, np.int64)
        if self.tokenizer is None:
            x = np.zeros((len(words), self.length), np.int32)
            for row, wanted, some, theirs in zip(x, targets, words, tags, strict=True):
                ids = [self._hashed(word.lower()) for word in some[: self.length]]
                row[: len(ids)], wanted[: len(ids)] = ids, theirs[: self.length]
            return x, targets
        x, heads = _tokenized_words(self.tokenizer, words, self.length)
        for wanted, places, theirs in zip(targets, heads, tags, strict=True):
            for place, word in places.items():
                wanted[place] = theirs[word]
        return x, targets

    def _hashed(self, word: str) -> int:
        # not hash(), which differs from process to process; 0 is padding
        return 1 + zlib.crc32(word.encode(errors="surrogatepass")) % (self.vocabulary - 1)

    def _words(self, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        """Hashed words [n, length], 0 for padding."""
        x = np.zeros((len(texts), self.length), np.int32)
        for row, pieces in zip(x, texts, strict=True):
            words = WORD.findall(" [SEP] ".join(pieces).lower())
            ids = [self._hashed(word) for word in words]
            row[: len(ids)] = ids[: self.length]
        return x


class _TextDataset(Tokens):
    @abstractmethod
    def texts(self) -> tuple[Texts, Texts, int]:
        """(train texts, test texts, number of classes)."""

    def read(self, request: Request) -> Samples:
        train, test, classes = self.texts()
        both = [*train, *test]
        y = np.array([label for _, label in both], np.int64)
        return Samples(self.ids([pieces for pieces, _ in both]), y, len(train), classes)


AG_NEWS = {str(label): label for label in range(4)}
"""Labels as the files have them, and as numbers."""


class AgNews(_TextDataset):
    """AG News topic classification, 4 classes: ``ag_news/{train,test}.csv`` with columns label and
    text.
    """

    name: str = "ag_news"

    def texts(self) -> tuple[Texts, Texts, int]:
        splits = ("train", "test")
        form = Form(tuple(f"ag_news/{split}.csv" for split in splits), _each(self._split))
        train, test = stored(self.name, form) or [
            _hub(self.name, form, ("fancyzhx/ag_news", None), split, ("text",)) for split in splits
        ]
        return train, test, 4

    def _split(self, path: Path) -> Texts:
        return [
            ((_field(r, "text", path),), _label(_field(r, "label", path), AG_NEWS, path))
            for r in read_rows(path, ",", csv.QUOTE_MINIMAL)
        ]


MNLI = (
    "MNLI",
    ("sentence1", "sentence2"),
    "gold_label",
    ("entailment", "neutral", "contradiction"),
    ("premise", "hypothesis"),
)
GLUE = {
    "mrpc": ("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("sentence1", "sentence2")),
    "rte": (
        "RTE",
        ("sentence1", "sentence2"),
        "label",
        ("entailment", "not_entailment"),
        ("sentence1", "sentence2"),
    ),
    "sst2": ("SST-2", ("sentence",), "label", ("0", "1"), ("sentence",)),
    "qnli": (
        "QNLI",
        ("question", "sentence"),
        "label",
        ("entailment", "not_entailment"),
        ("question", "sentence"),
    ),
    "mnli": MNLI,
    "mnli_mm": MNLI,
}
"""Folder, columns and label of the TSV files, the labels in order, and the columns of the
download."""
UNDECIDED = "-"
"""The label of MNLI's rows that its annotators did not agree on; they are left out."""
TEST = {"mnli": "dev_matched", "mnli_mm": "dev_mismatched"}
"""File of the test rows where it is not ``dev``."""


class Glue(_TextDataset):
    """A GLUE task from its TSV folder ``glue/TASK/{train,dev}.tsv``; the validation split is the
    test set.
    """

    name: str = "glue"
    task: Literal["mrpc", "rte", "sst2", "qnli", "mnli", "mnli_mm"] = option(
        "sst2", "which task; MNLI has two test sets, of matched and mismatched (mnli_mm) genres"
    )

    def texts(self) -> tuple[Texts, Texts, int]:
        folder, _, _, labels, columns = GLUE[self.task]
        dev = TEST.get(self.task, "dev")
        form = Form(tuple(f"glue/{folder}/{f}.tsv" for f in ("train", dev)), _each(self._split))
        source = ("nyu-mll/glue", folder.lower().replace("-", ""))
        train, test = stored(f"glue/{self.task}", form) or [
            _hub(f"glue/{self.task}", form, source, split, columns)
            for split in ("train", dev.replace("dev", "validation"))
        ]
        return train, test, len(labels)

    def _split(self, path: Path) -> Texts:
        folder, columns, target, labels, _ = GLUE[self.task]
        # quotation marks are text in these files
        rows = read_rows(path, "\t", csv.QUOTE_NONE)
        label = {name: i for i, name in enumerate(labels)}
        left_out = UNDECIDED if folder == "MNLI" else None
        return [
            (tuple(_field(r, c, path) for c in columns), _label(found, label, path))
            for r in rows
            if (found := _field(r, target, path)) != left_out
        ]


def _each(read: Callable[[Path], Texts]) -> Callable[..., list[Texts]]:
    """What reads several files one by one."""
    return lambda *paths: [read(path) for path in paths]


def _field(row: dict[str, str], column: str, path: Path) -> str:
    value = row.get(column)
    if value is None:
        raise UserError(f"{path} has no column {column!r}; it has {', '.join(row)}"[:500])
    return value


def _label(found: str, known: dict[str, int], path: Path) -> int:
    if found not in known:
        raise UserError(
            f"{path}: there is a label {found[:50]!r}; the labels of this dataset are "
            f"{', '.join(known)}"
        )
    return known[found]


def _hub(
    what: str,
    form: Form[list[Texts]],
    source: tuple[str, str | None],
    split: str,
    columns: tuple[str, ...],
) -> Texts:
    """The split by the Hugging Face ``datasets`` library's own download."""
    with named_if_missing():
        import datasets
    try:
        rows = datasets.load_dataset(*source, split=split)
    except Exception as error:
        raise missing(what, [form], error) from error
    return [(tuple(r[c] for c in columns), int(r["label"])) for r in rows]


def _tokenized(name: str, texts: Sequence[tuple[str, ...]], length: int) -> np.ndarray:
    """Token ids and types [n, 2, length] by a checkpoint's tokenizer; raises UserError for none."""
    columns = [list(column) for column in zip(*texts, strict=True)]
    tokenizer = _tokenizer(name)
    return _stacked(tokenizer, tokenizer(*columns, **_cut(length)))


def _tokenized_words(
    name: str, texts: Sequence[Sequence[str]], length: int
) -> tuple[np.ndarray, list[dict[int, int]]]:
    """The same of texts in words; and for each, the place of every word's first token -> the word's
    number.
    """
    tokenizer = _tokenizer(name)
    if not tokenizer.is_fast:
        raise UserError(
            f"data.dataset.tokenizer: {name!r} cannot say which tokens are of which word; take a "
            "fast one"
        )
    if _glues(tokenizer):
        # byte-level ones, whose words begin with the space before them
        tokenizer = _tokenizer(name, add_prefix_space=True)
    if _glues(tokenizer):
        raise UserError(
            f"data.dataset.tokenizer: {name!r} makes one word of a list of words, without spaces "
            "between them; save one with add_prefix_space=True"
        )
    rows = tokenizer([list(words) for words in texts], is_split_into_words=True, **_cut(length))
    heads: list[dict[int, int]] = []
    for i in range(len(texts)):
        words = rows.word_ids(i)
        first = {word: place for place, word in reversed([*enumerate(words)]) if word is not None}
        heads.append({place: word for word, place in first.items()})
    return _stacked(tokenizer, rows), heads


def _tokenizer(name: str, **settings: Any) -> Any:
    """Which leaves the words where texts begin, as models take them that cut padding off."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="right", **settings)
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"data.dataset.tokenizer: cannot load {name!r} (a folder with its files is taken, "
            f"too): {reason}"
        ) from error
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"data.dataset.tokenizer: {name!r} has no token for padding; give it one (pad_token; "
            "that of the end of texts will do), save it into a folder with the checkpoint, and set "
            "pad_token_id in that one's config.json"
        )
    return tokenizer


def _glues(tokenizer: Any) -> bool:
    """Whether words of a list become others than those of a text, behind a space or not."""
    words = ["good", "film"]
    whole = [tokenizer(text)["input_ids"] for text in (" ".join(words), " ".join(["", *words]))]
    return tokenizer(words, is_split_into_words=True)["input_ids"] not in whole


def _does(tokenizer: Any) -> str:
    """Digest of it: the ids of its tokens, and what becomes of texts, with whatever version of the
    library.
    """
    vocabulary = sorted(tokenizer.get_vocab().items())
    ids = [tokenizer(PROBE[0])["input_ids"], tokenizer(*PROBE, **_cut(16))["input_ids"]]
    return hashlib.sha256(repr([vocabulary, ids]).encode()).hexdigest()[:16]


def _cut(length: int) -> dict[str, Any]:
    return {
        "truncation": True,
        "max_length": length,
        "padding": "max_length",
        # not every tokenizer returns them unasked
        "return_token_type_ids": True,
    }


def _stacked(tokenizer: Any, rows: Any) -> np.ndarray:
    ids = np.array(rows["input_ids"], np.int32)
    # a model whose tokenizer does not say them takes all for the first piece's
    said = "token_type_ids" in tokenizer.model_input_names
    types = np.array(rows["token_type_ids"], np.int32) if said else np.zeros_like(ids)
    return np.stack([ids, types], 1)
