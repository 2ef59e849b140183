"""``fedorch data show``: which client holds how many rows of each label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.analysis.written import Written
from orchestrator.config import Config
from orchestrator.data import FederatedData
from orchestrator.data.federated import called
from orchestrator.plugins.blame import blamed
from orchestrator.results.pictures import write_picture
from orchestrator.terminal import console


def show_data(config: Config, plot: Path | None) -> None:
    """The client x label histogram, in numbers and (if asked for) as a picture."""
    with blamed(config.plugins):
        data = FederatedData.build(config.data, config.seed)
    histogram = data.histogram()
    shown = min(data.samples.classes, 20)
    names, classes = called(config.data, data), data.samples.names
    labels = [classes[c] if classes else str(c) for c in range(shown)]
    rows = {
        f"{k} {names[k]}" if names else str(k): [
            str(data.train.sizes[k]),
            str(data.test.sizes[k]),
            *(str(n) if n else "·" for n in histogram[k, :shown]),
        ]
        for k in range(min(data.clients, 100))
    }
    table = pd.DataFrame.from_dict(rows, "index", columns=["train", "test", *labels])
    Written("", table.rename_axis("client")).as_("terminal")
    hidden = [f"{data.clients - 100} more clients"] * (data.clients > 100)
    hidden += [f"labels from {shown} on"] * (data.samples.classes > shown)
    if hidden:
        console.print(f"not shown: {', '.join(hidden)}")
    console.print(_summary(data, histogram))
    console.print(_use(data, config.data.pool == "all"))
    if plot is not None:
        from orchestrator.results import plots

        write_picture(plots.label_map(histogram), plot)


def _summary(data: FederatedData, histogram: np.ndarray) -> str:
    sizes, held = data.train.sizes, (histogram > 0).sum(1)
    dominant = (histogram.max(1) / histogram.sum(1)).mean()
    return (
        f"{data.clients} clients, {sizes.sum()} training rows (least {sizes.min()}, median "
        f"{np.median(sizes):g}, most "
        f"{sizes.max()}); {held.mean():.2f} labels a client, the commonest makes up "
        f"{dominant:.0%}; "
        f"{len(data.test_rows)} test rows, {len(data.validation_rows)} for validation (and "
        f"{data.validation.sizes.sum()} that clients keep back), "
        f"{len(data.heldout_rows)} held out at the server"
    )


def _use(data: FederatedData, both_splits: bool) -> str:
    """How much of the dataset is trained on, and how often."""
    times = np.bincount(data.train.rows, minlength=len(data.samples.y))
    all_rows = len(data.samples.y) if both_splits else data.samples.train
    used, again = (times > 0).sum(), (times > 1).sum()
    where = "both splits" if both_splits else "the training split"
    repeated = f"{again} rows are there more than once (at most {times.max()} times)"
    return (
        f"clients train on {used} of the {all_rows} rows of {where} ({used / all_rows:.1%}); "
        f"{repeated if again else 'no row is there twice'}"
    )
