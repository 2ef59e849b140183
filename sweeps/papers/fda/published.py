"""The numbers of chapter 4 of the FDA thesis, and of its authors' logs."""

from __future__ import annotations

from collections.abc import Mapping

ROUNDS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "mrpc": {
        "FedAvg": (26, 30), "FDA-SGD": (6, 10),
        "FedAvgM": (21, 31), "FDA-SGDM": (5, 16),
        "FedAdam": (20, 40), "FDA-Adam": (7, 11),
        "FedAdamW": (17, 25), "FDA-AdamW": (14, 16),
        "FedAdaGrad": (29, 35), "FDA-AdaGrad": (21, 23),
    },
    "rte": {
        "FedAvg": (67, 103), "FDA-SGD": (16, 20),
        "FedAvgM": (111, 182), "FDA-SGDM": (41, 126),
        "FedAdam": (118, 153), "FDA-Adam": (72, 188),
        "FedAdamW": (118, 160), "FDA-AdamW": (71, 176),
        "FedAdaGrad": (20, 96), "FDA-AdaGrad": (18, 54),
    },
    "sst2": {
        "FedAvg": (8, 93), "FDA-SGD": (7, 43),
        "FedAvgM": (30, 91), "FDA-SGDM": (12, 41),
        "FedAdam": (12, 42), "FDA-Adam": (8, 25),
        "FedAdamW": (12, 35), "FDA-AdamW": (8, 14),
        "FedAdaGrad": (21, 67), "FDA-AdaGrad": (7, 24),
    },
    "qnli": {
        "FedAvg": (35, 71), "FDA-SGD": (9, 23),
        "FedAvgM": (38, 81), "FDA-SGDM": (11, 44),
        "FedAdam": (11, 22), "FDA-Adam": (6, 20),
        "FedAdamW": (11, 22), "FDA-AdamW": (6, 20),
        "FedAdaGrad": (12, 24), "FDA-AdaGrad": (6, 20),
    },
    "mnli-m": {
        "FedAvg": (12, 16), "FDA-SGD": (4, 8),
        "FedAvgM": (29, 35), "FDA-SGDM": (12, 15),
        "FedAdam": (11, 12), "FDA-Adam": (9, 10),
        "FedAdamW": (57, 66), "FDA-AdamW": (43, 54),
        "FedAdaGrad": (8, 15), "FDA-AdaGrad": (14, 15),
    },
    "mnli-mm": {
        "FedAvg": (12, 15), "FDA-SGD": (4, 6),
        "FedAvgM": (29, 35), "FDA-SGDM": (12, 15),
        "FedAdam": (11, 12), "FDA-Adam": (9, 10),
        "FedAdamW": (57, 66), "FDA-AdamW": (42, 52),
        "FedAdaGrad": (8, 11), "FDA-AdaGrad": (6, 14),
    },
}  # fmt: skip
"""Table 4.4."""
SELECTED: Mapping[str, Mapping[str, float]] = {
    "mrpc": {
        "FedAvg": 88.73, "FedAvgM": 88.48, "FedAdam": 87.5, "FedAdamW": 90.2,
        "FedAdaGrad": 88.97,
    },
    "rte": {
        "FedAvg": 80.87, "FedAvgM": 79.06, "FedAdam": 79.06, "FedAdamW": 77.98,
        "FedAdaGrad": 75.81,
    },
    "sst2": {
        "FedAvg": 94.5, "FedAvgM": 94.61, "FedAdam": 95.3, "FedAdamW": 94.95,
        "FedAdaGrad": 94.84,
    },
    "qnli": {
        "FedAvg": 90.94, "FedAvgM": 90.21, "FedAdam": 92.07, "FedAdamW": 92.18,
        "FedAdaGrad": 91.36,
    },
    "mnli-m": {
        "FedAvg": 89.19, "FedAvgM": 90.08, "FedAdam": 89.92, "FedAdamW": 89.87,
        "FedAdaGrad": 88.49,
    },
    "mnli-mm": {
        "FedAvg": 89.48, "FedAvgM": 89.75, "FedAdam": 90.05, "FedAdamW": 90.03,
        "FedAdaGrad": 88.87,
    },
}  # fmt: skip
"""Best accuracy of the authors' runs at the selected rates."""
BETTER: Mapping[str, Mapping[str, tuple[int, int, float]]] = {
    "mrpc": {"FedAvgM": (-1, -3, 88.48), "FedAdam": (-4, -5, 89.71)},
    "sst2": {"FedAdaGrad": (-4, -3, 94.95)},
    "mnli-mm": {"FedAdam": (-4, -5, 90.08), "FedAdamW": (-4, -2, 90.06)},
}
"""Where another cell of the grid (server, client) is as good as the selected one, or better."""
HEAT_MNLI: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "FedAvg": ((32.7,), (44.9,), (88.0,), (89.2,), (35.4,)),
    "FedAvgM": (
        (31.8, 32.7, 41.1), (32.6, 41.6, 87.3), (42.9, 87.3, 90.1),
        (84.4, 51.7, 84.2), (53.6, 35.4, 49.6),
    ),
    "FedAdam": (
        (82.2, 89.8, 35.4), (84.5, 89.8, 35.4), (85.1, 88.4, 35.4),
        (88.1, 89.9, 38.5), (35.4, 86.1, 35.4),
    ),
    "FedAdamW": (
        (82.2, 89.8, 35.4), (84.5, 89.9, 35.4), (85.1, 88.5, 35.4),
        (88.1, 89.6, 38.5), (35.4, 85.5, 35.4),
    ),
    "FedAdaGrad": (
        (53.0, 87.5, 35.4), (50.3, 85.7, 35.4), (47.0, 85.4, 35.5),
        (64.1, 88.5, 39.1), (35.4, 35.4, 43.5),
    ),
}  # fmt: skip
"""Figure 4.13: a line for each client rate from 1e-5 up, in it the server rates in ascending
order."""
LOGGED = "from the authors' logs"
MRPC_FAILED = (("FedAvgM", 15), ("FedAdaGrad", 3), ("FedAdaGrad", 5), ("FedAdaGrad", 20))
"""Rows and epochs of Figure 4.17 that did not converge."""
