"""Tables: a row is a sample, columns are its inputs, its label, and whose it is."""

from __future__ import annotations

import re
import warnings
from abc import abstractmethod
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from algorithms.part import nearest, option
from orchestrator.data.columns import (
    Column,
    encoded,
    inputs_of_rows,
    of_numbers,
    of_texts,
    plain,
    texts_of,
)
from orchestrator.data.own.splitting import (
    Part,
    Wanted,
    assembled,
    drawn,
    numbered,
    place_of,
    require_another,
)
from orchestrator.data.room import need
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import reading
from orchestrator.errors import UserError
from orchestrator.terminal import told

if TYPE_CHECKING:
    import pandas as pd

ColumnName = Annotated[str, Field(max_length=200)]
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""A name that is a whole number as these are written."""
FRACTION = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?(e[+-]?\d+)?")
"""One that is a number, perhaps with a point."""
MARKS = {"test": True, "1": True, "true": True, "train": False, "0": False, "false": False}
"""What a column says that tells test rows from training rows."""


class Table(Dataset):
    """Rows of a file. Inputs are its numeric columns, and its columns of texts as one column for
    each text (one-hot). Numbers are standardised by mean and deviation over all clients' training
    rows.
    """

    path: str = option(
        "",
        "the file: its path (./ is the config's folder), or its name in a data folder",
        file=True,
    )
    label: ColumnName | tuple[ColumnName, ...] = option(
        "label", "the column that is to be predicted, or several of numbers", max_length=10_000
    )
    task: Literal["classes", "numbers"] = option(
        "classes", "what label says: a class, or numbers (with loss mse, l1 or huber; 0 and 1: bce)"
    )
    features: tuple[ColumnName, ...] = option(
        (), "columns that are inputs; unset: all that are nothing else", max_length=100_000
    )
    client: ColumnName = option(
        "", "the column that says whose a row is, for data.partition natural; unset: nobody's"
    )
    test: Part | str = option(
        0.2,
        "test rows: a part of each client's rows (without client: of each class's); or a column "
        "that says train or test (0 or 1); or another file with the same columns",
        file=True,
    )
    standardize: bool = option(True, "numbers have mean 0 and deviation 1 over the training rows")
    categories: int = option(
        100, "most distinct texts that a column of inputs may have", ge=2, le=100_000
    )
    missing: Literal["refuse", "drop"] = option(
        "refuse", "rows with an empty field, or NaN: end with a sentence, or leave the row out"
    )

    @abstractmethod
    def _frame(self, path: Path, texts: Set[str]) -> pd.DataFrame:
        """All rows of a file, in which the columns ``texts`` are texts as they are written there,
        if the file does not say itself what they are.
        """

    def rows(self, path: Path, texts: Set[str] = frozenset()) -> pd.DataFrame:
        """The same; raises UserError if the file cannot be read."""
        with reading(path):
            need(path.stat().st_size, path)
            return self._frame(path, texts)

    def read(self, request: Request) -> Samples:
        key, texts = f"dataset {self.name!r}", texts_of(request.columns)
        path = place_of(self.path, f"{key}: path")
        known = tuple(column["name"] for column in request.columns)
        frame = self._complete(path, texts, known)
        marks = None
        if isinstance(self.test, str) and self.test in frame:
            marks = frame.pop(self.test)
        elif isinstance(self.test, str):
            place = place_of(self.test, f"{key}: test (no column has that name)")
            if request.trains:
                require_another(place, path, f"{key}: test")
            frame, test = _joined(*self._two(path, place, texts, known), path)
        owner, owners = None, list[str]()
        if self.client:
            owner, owners = numbered(self._keys(frame, self.client, path))
        wanted = self._wanted(frame, path)
        if isinstance(self.test, float):
            test = drawn(wanted.y if owner is None else owner, self.test, not request.trains)
        elif marks is not None:
            test = _marked(marks, f"{path}, column {self.test!r}")
        inputs, columns = self._inputs(frame, ~test, path, request.columns)
        samples = assembled(inputs, wanted, test, owner, path, columns)
        return replace(samples, owners=tuple(owners))

    @property
    def _predicted(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    def _two(
        self, path: Path, place: Path, texts: Set[str], known: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows of two files, in which what is a text in one is a text in both."""
        first, second = self._complete(path, texts, known), self._complete(place, texts, known)
        columns = [first[name] for name in first] + [second[name] for name in second]
        words = {str(column.name) for column in columns if not _numeric(column)}
        if any(_numeric(column) and column.name in words for column in columns):
            texts = texts | words
            return self._complete(path, texts, known), self._complete(place, texts, known)
        return first, second

    def _complete(self, path: Path, texts: Set[str], known: Sequence[str]) -> pd.DataFrame:
        """The columns of a file that count, without the rows that are to be dropped: of inputs
        those that a model has ``known``, if it is for one.
        """
        frame = self.rows(path, texts)
        if not len(frame):
            raise UserError(f"{path}: it holds no rows")
        inputs = [*known] or [*self.features]
        named = [*self._predicted, *([self.client] if self.client else []), *inputs]
        for name in named:
            if name not in frame:
                there = [str(column) for column in frame.columns]
                raise UserError(f"{path} has no column {name!r}; {nearest(name, there)}"[:500])
        marks = [self.test] if isinstance(self.test, str) and self.test in frame else []
        frame = frame[list(dict.fromkeys([*named, *marks]))] if inputs else frame
        empty = frame.isna()
        if self.missing == "drop":
            lost = int(empty.any(axis=1).sum())
            if lost:
                told(
                    "note",
                    f"{path}: {lost:,} of {len(frame):,} rows have empty fields, and are "
                    "left out (missing: drop)",
                )
            return frame[~empty.any(axis=1)].copy()
        if empty.to_numpy().any():
            row, column = np.argwhere(empty.to_numpy())[0]
            raise UserError(
                f"{path}, column {str(frame.columns[column])!r}: row {row + 1} is empty or NaN "
                f"({int(empty.any(axis=1).sum())} rows have such fields); fill them, or set "
                "data.dataset.missing to drop"
            )
        return frame.copy()

    def _keys(self, frame: pd.DataFrame, name: str, path: Path) -> np.ndarray:
        """A column that names things: whole numbers, or texts."""
        column = frame[name]
        if column.dtype.kind in "iub":
            return column.to_numpy()
        texts = column.astype(str).to_numpy(str)
        if column.dtype.kind != "f":
            names = np.unique(texts)
            # 07 and 7 are two names
            if all(WHOLE.fullmatch(one) for one in names):
                return texts.astype(np.int64)
            if not all(FRACTION.fullmatch(one) for one in names):
                return texts
            # 1e5 is a number, unless 100000 is somebody else
            if len(np.unique(names.astype(np.float64))) < len(names) and "e" in "".join(names):
                return texts
        values = texts.astype(np.float64)
        # from 2^53 on, not every whole number is one
        broken = ~((values == np.floor(values)) & (np.abs(values) < 2**53))
        if broken.any():
            row = int(np.argmax(broken))
            raise UserError(
                f"{path}, column {name!r}: row {row + 1} is {texts[row][:50]}, and a name is a "
                "whole number or a text"
            )
        return values.astype(np.int64)

    def _wanted(self, frame: pd.DataFrame, path: Path) -> Wanted:
        if self.task == "numbers":
            return Wanted.numbers(
                np.stack(
                    [plain(frame[name], f"{path}, column {name!r}") for name in self._predicted], 1
                )
            )
        if len(self._predicted) != 1:
            raise UserError(
                f"{path}: classes are in one column; data.dataset.task is numbers for more"
            )
        name = self._predicted[0]
        wanted = Wanted.named(self._keys(frame, name, path))
        if wanted.classes > max(100, len(frame) // 2):
            raise UserError(
                f"{path}, column {name!r}: {wanted.classes} distinct labels in {len(frame)} rows "
                "are no classes; are they numbers (data.dataset.task)?"
            )
        return wanted

    def _inputs(
        self, frame: pd.DataFrame, train: np.ndarray, path: Path, known: Sequence[Column]
    ) -> tuple[np.ndarray, list[Column]]:
        """Inputs [n, p] float32 of the rows, of which ``train`` (mask [n]) are trained on; and the
        columns that they are made of, which may be ``known``.
        """
        if known:
            return inputs_of_rows(known, frame), list(known)
        names = self._features(frame, path)
        blocks: list[np.ndarray] = []
        columns: list[Column] = []
        width = 0
        for name in names:
            where = f"{path}, column {str(name)!r}"
            columns.append(self._column(frame[name], train, where))
            blocks.append(encoded(columns[-1], frame[name], where))
            width += blocks[-1].shape[1]
            need(8 * len(frame) * width, where)
        if not blocks:
            raise UserError(f"{path}: beside the label there is no column that could be an input")
        return np.concatenate(blocks, axis=1), columns

    def _features(self, frame: pd.DataFrame, path: Path) -> list[str]:
        """Names of the columns that are inputs; raises UserError for one that is predicted."""
        for name in self.features:
            if name in self._predicted or name == self.test:
                raise UserError(
                    f"{path}: column {name!r} is the label or says what the test is, and no input; "
                    "take it out of data.dataset.features"
                )
        if len({*self.features}) < len(self.features):
            raise UserError(f"{path}: a column is twice in data.dataset.features")
        others = (*self._predicted, self.client)
        return [*self.features] or [str(c) for c in frame if c not in others]

    def _column(self, column: pd.Series, train: np.ndarray, where: str) -> Column:
        """How a column becomes inputs, by its training rows (mask [n])."""
        name = str(column.name)
        if _numeric(column):
            return of_numbers(name, plain(column, where)[train], self.standardize)
        if column.dtype.kind in "Mm":
            raise UserError(f"{where} holds dates; make numbers of them, or leave it out")
        _require_texts(column, where)
        texts = column.astype(str)
        _require_no_numbers(texts, where)
        found = of_texts(name, texts[train])
        if len(found["texts"] or ()) > self.categories:
            raise UserError(
                f"{where} has {len(found['texts'] or ())} distinct texts; leave it out of "
                f"data.dataset.features, or set data.dataset.categories, which is {self.categories}"
            )
        return found


def _numeric(column: pd.Series) -> bool:
    """Whether a column is one of numbers."""
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column.dtype) and column.dtype.kind not in "cO"


def _require_texts(column: pd.Series, where: str) -> None:
    """Raise UserError for a column of lists, mappings, bytes or their like."""
    if column.dtype.kind == "O":
        for row, value in enumerate(column):
            if not isinstance(value, str | bool | int | float | np.generic):
                raise UserError(
                    f"{where}: row {row + 1} is a {type(value).__name__}, and neither a number nor "
                    "a text; make columns of it, or leave it out"
                )


def _require_no_numbers(texts: pd.Series, where: str) -> None:
    """Raise UserError for a column of which most are numbers, and some are not."""
    import pandas as pd

    if texts.str.fullmatch(r"[+-]?\d+(,\d+)+(\.\d+)?").mean() > 0.5:
        raise UserError(
            f"{where}: most rows are numbers with a comma, such as {texts.iloc[0]!r}; write 12.5 "
            "for 12,5, and thousands without a mark"
        )
    numeric = pd.to_numeric(texts, errors="coerce").notna().to_numpy()
    # all: the file itself says that they are texts (codes in a Parquet file, say)
    if 0.5 < numeric.mean() < 1:
        row = int(np.argmin(numeric))
        raise UserError(
            f"{where}: row {row + 1} is {texts.iloc[row]!r}, and most rows are numbers"[:500]
        )


def _joined(train: pd.DataFrame, test: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of both files, and which of them are the second's."""
    import pandas as pd

    lost = [str(column) for column in train if column not in test]
    if lost:
        raise UserError(f"{path} has a column {lost[0]!r}, which the test's file has not")
    both = pd.concat([train, test[list(train)]], ignore_index=True)
    return both, np.arange(len(both)) >= len(train)


def _marked(marks: pd.Series, where: str) -> np.ndarray:
    words = marks.astype(str).str.lower().str.removesuffix(".0")
    found = words.map(MARKS)
    if found.isna().any():
        row = int(np.argmax(found.isna().to_numpy()))
        raise UserError(
            f"{where}: row {row + 1} is {marks.iloc[row]!r}; it must be train or test (0 or 1)"[
                :500
            ]
        )
    return found.to_numpy(bool)


class CsvTable(Table):
    """A CSV file (also .gz or .xz) with a header. Inputs are its numeric columns, standardised, and
    its columns of texts as one column for each text (one-hot).
    """

    name: str = "csv"
    separator: Annotated[str, Field(pattern="^(.|tab)$")] = option(
        ",", 'what stands between two fields: a character, or "tab"'
    )

    @property
    def _between(self) -> str:
        return "\t" if self.separator == "tab" else self.separator

    def _frame(self, path: Path, texts: Set[str]) -> pd.DataFrame:
        import pandas as pd

        header = pd.read_csv(
            path, sep=self._between, header=None, nrows=1, dtype=str, keep_default_na=False
        )
        nameless = header.iloc[0] == ""
        if nameless.any():
            raise ValueError(
                f"its column {int(np.argmax(nameless.to_numpy())) + 1} has no name; give it one in "
                "the header, or leave it out (pandas: to_csv(index=False))"
            )
        columns = header.iloc[0].astype(str).tolist()
        if len(set(columns)) < len(columns):
            twice = next(c for c in columns if columns.count(c) > 1)
            raise ValueError(f"two of its columns are named {twice[:100]!r}")
        # columns that name things are texts, too
        classes = self._predicted if self.task == "classes" else ()
        texts = {self.client, *classes, *texts} & {*columns}
        frame = self._parsed(path, texts)
        # pandas makes true and false of texts, also where other fields are empty
        words = {
            name
            for name in columns
            if name not in texts
            and not _numeric(frame[name])
            and pd.api.types.infer_dtype(frame[name]) != "string"
        }
        return self._parsed(path, texts | words) if words else frame

    def _parsed(self, path: Path, texts: Set[str]) -> pd.DataFrame:
        import pandas as pd

        # a field is missing where it is empty; words such as NA and None are texts
        with warnings.catch_warnings():
            # fields that the header has no name for would be lost
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path, sep=self._between, keep_default_na=False, na_values=[""], low_memory=False,
                index_col=False, encoding="utf-8-sig", dtype=dict.fromkeys(texts, str),
            )  # fmt: skip


class ParquetTable(Table):
    """A Parquet file. Inputs are its numeric columns, standardised, and its columns of texts as one
    column for each text (one-hot).
    """

    name: str = "parquet"

    def _frame(self, path: Path, texts: Set[str]) -> pd.DataFrame:
        import pandas as pd

        frame = pd.read_parquet(path)
        for name in frame:
            # numbers of databases, which pandas leaves as objects
            if pd.api.types.infer_dtype(frame[name]) == "decimal":
                frame[name] = frame[name].astype(np.float64)
        # a named index is a column of the file like any other
        named = [name for name in frame.index.names if name is not None]
        return frame.reset_index(level=named) if named else frame


def reader_of(file: Path, trained: Dataset) -> Table | None:
    """What reads a file's rows: what its name says, with the options of the dataset ``trained``
    where that is of such files; else ``trained``, if it is of tables. None: nothing that is known.
    """
    endings = [ending.lower() for ending in file.suffixes[:-3:-1]]
    named = next((ENDINGS[ending] for ending in endings if ending in ENDINGS), None)
    if named is None or isinstance(trained, named):
        return trained if isinstance(trained, Table) else None
    return named()


ENDINGS: dict[str, type[CsvTable | ParquetTable]] = {".csv": CsvTable, ".parquet": ParquetTable}
"""Of the names of tables; a compression's may stand behind."""
