"""Text datasets as token ids. Words are hashed to ids, so that no vocabulary has to be fitted or shipped."""

from __future__ import annotations

import csv
import re
import zlib
from abc import abstractmethod
from typing import Literal

import numpy as np

from algorithms.part import option
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import find, missing, read_rows
from orchestrator.errors import UserError

Texts = list[tuple[str, int]]
WORD = re.compile(r"\w+|[^\w\s]")


class _TextDataset(Dataset):
    length: int = option(64, "tokens kept of each text; shorter ones are padded with 0", ge=1)
    vocabulary: int = option(20_000, "number of ids that words are hashed to (id 0 is padding)", ge=2)

    @abstractmethod
    def read(self) -> tuple[Texts, Texts, int]:
        """(train texts, test texts, number of classes)."""

    def load(self, request: Request) -> Samples:
        train, test, classes = self.read()
        x = np.zeros((len(train) + len(test), self.length), np.int32)
        for row, (text, _) in zip(x, [*train, *test], strict=True):
            ids = [1 + zlib.crc32(w.encode()) % (self.vocabulary - 1) for w in WORD.findall(text.lower())]
            row[: len(ids)] = ids[: self.length]
        y = np.array([label for _, label in [*train, *test]], np.int64)
        return Samples(x, y, len(train), classes)


class AgNews(_TextDataset):
    """AG News topic classification, 4 classes: ``ag_news/{train,test}.csv`` with columns label and text."""

    name: str = "ag_news"

    def read(self) -> tuple[Texts, Texts, int]:
        train, test = (self._split(s) for s in ("train", "test"))
        return train, test, 4

    def _split(self, split: str) -> Texts:
        path = find(f"ag_news/{split}.csv")
        if path is not None:
            rows = read_rows(path, ",", csv.QUOTE_MINIMAL)
            return [(_field(r, "text", str(path)), int(_field(r, "label", str(path)))) for r in rows]
        return _hub("ag_news", [f"ag_news/{split}.csv"], ("fancyzhx/ag_news", None), split, ("text",))


GLUE = {
    "mrpc": ("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("sentence1", "sentence2")),
    "rte": ("RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment"), ("sentence1", "sentence2")),
    "sst2": ("SST-2", ("sentence",), "label", ("0", "1"), ("sentence",)),
    "qnli": ("QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment"), ("question", "sentence")),
    "mnli": (
        "MNLI",
        ("sentence1", "sentence2"),
        "gold_label",
        ("entailment", "neutral", "contradiction"),
        ("premise", "hypothesis"),
    ),
}


class Glue(_TextDataset):
    """A GLUE task from its TSV folder ``glue/TASK/{train,dev}.tsv``; the validation split is the test set."""

    name: str = "glue"
    task: Literal["mrpc", "rte", "sst2", "qnli", "mnli"] = option("sst2", "which task")

    def read(self) -> tuple[Texts, Texts, int]:
        labels = GLUE[self.task][3]
        dev = "dev_matched" if self.task == "mnli" else "dev"
        return self._split("train", "train"), self._split(dev, dev.replace("dev", "validation")), len(labels)

    def _split(self, file: str, split: str) -> Texts:
        folder, columns, target, labels, hub_columns = GLUE[self.task]
        relative = f"glue/{folder}/{file}.tsv"
        path = find(relative)
        if path is None:
            return _hub(f"glue/{self.task}", [relative], ("nyu-mll/glue", self.task), split, hub_columns)
        rows = read_rows(path, "\t", csv.QUOTE_NONE)
        label = {name: i for i, name in enumerate(labels)}
        where = str(path)
        return [
            (" [SEP] ".join(_field(r, c, where) for c in columns), label[_field(r, target, where)])
            for r in rows
            if r.get(target) in label
        ]


def _field(row: dict[str, str], column: str, path: str) -> str:
    value = row.get(column)
    if value is None:
        raise UserError(f"{path} has no column {column!r} in every row; it has {', '.join(map(str, row))}")
    return value


def _hub(what: str, files: list[str], source: tuple[str, str | None], split: str, columns: tuple[str, ...]) -> Texts:
    """The split by the Hugging Face ``datasets`` library's own download."""
    try:
        import datasets

        rows = datasets.load_dataset(*source, split=split)
    except Exception as error:
        raise missing(what, files, error) from error
    return [(" [SEP] ".join(r[c] for c in columns), int(r["label"])) for r in rows]
