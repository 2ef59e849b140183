"""The numbers of FedDUAL's tables as the paper prints them, a line a row: ``value`` or
``value±spread``, and ``*`` where it has an asterisk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sweeps.entry import Published

Cells = dict[tuple[str, str], Published]

ACCURACIES = {
    "FedAvg": "46.68±0.25 26.88±0.18 81.70±0.20",
    "FedProx": "47.58±0.30 26.89±0.22 80.54±0.28",
    "FedNova": "48.44±0.35 * *",
    "FedBN": "* 26.88±0.19 81.36±0.23",
    "FedDyn": "43.97±0.40 18.27±0.32 71.86±0.45",
    "MOON": "46.57±0.28 28.50±0.25 80.09±0.27",
    "SCAFFOLD": "* * *",
    "FedPVR": "42.26±0.42 23.78±0.31 80.32±0.33",
    "Proposed": "48.70±0.20 29.15±0.24 81.99±0.21",
}
"""Table 1: CIFAR-10, CIFAR-100, Fashion-MNIST."""
HALVES = {
    "adaptive loss": "41.05±0.12 25.05±0.11 80.70±0.22",
    "dynamic aggregation": "46.50±0.15 27.01±0.17 80.91±0.25",
    "both": "48.70±0.20 29.15±0.24 81.99±0.18",
}
"""Table 2: the same."""
SECONDS = {
    "FedAvg": "17.71 0.44 2.14 0.05",
    "Proposed": "27.49 1.94 2.62 1.95",
}
"""Table 3: of a client and of the server on CIFAR-10, then on Fashion-MNIST."""
HOURS = {
    "FedAvg": "2.66 1.75",
    "FedProx": "2.90 1.90",
    "FedNova": "3.10 *",
    "FedBN": "* 1.80",
    "FedDyn": "4.89 2.91",
    "MOON": "3.80 2.40",
    "SCAFFOLD": "* *",
    "FedPVR": "4.50 2.90",
    "Proposed": "5.33 3.01",
}
"""Table 4: CIFAR-10, Fashion-MNIST."""
HOURS_TO_TARGET = {
    "FedAvg": "0.76 1.46",
    "FedProx": "1.61 1.90",
    "FedNova": "1.24 *",
    "FedBN": "* 1.80",
    "FedDyn": "4.89 2.91",
    "MOON": "1.27 1.47",
    "SCAFFOLD": "* *",
    "FedPVR": "1.31 1.21",
    "Proposed": "0.67 1.02",
}
"""Table 5: CIFAR-10, Fashion-MNIST."""


def line(row: str, columns: tuple[str, ...], printed: str) -> Cells:
    """A row as printed."""
    cells = zip(columns, printed.split(), strict=True)
    return {(row, column): _number(cell) for column, cell in cells}


def _number(cell: str) -> Published:
    value, _, spread = cell.partition("±")
    if value == "*":
        return Published(None, note="an asterisk in the paper")
    return Published(float(value), float(spread) if spread else None)


def lines(columns: tuple[str, ...], printed: Mapping[str, str]) -> Cells:
    """All rows of a table as printed."""
    cells: Cells = {}
    for row, text in printed.items():
        cells |= line(row, columns, text)
    return cells


def beside_standins(numbers: Cells, standins: Mapping[str, str]) -> Cells:
    """Published CIFAR numbers once more beside their stand-ins (column -> stand-in's), with a note
    that another network made them.
    """
    again = {
        (row, standins[column]): replace(number, note=number.note or "of VGG16 on all of CIFAR")
        for (row, column), number in numbers.items()
        if column in standins
    }
    return {**numbers, **again}
