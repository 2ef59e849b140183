"""``python -m tests.fuzz --minutes 120 --seed 0``: a campaign, or one of its cases once more."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.families import FAMILIES
from tests.fuzz.judge import brief, judged, smaller
from tests.fuzz.worker import prepare


def main() -> int:
    """Exit 1 if a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--family", choices=FAMILIES, action="append", help="only these (repeatable)"
    )
    parser.add_argument("--cases", type=int, help="end when each family has had so many")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="counts and failures")
    parser.add_argument(
        "--case", type=int, help="play this one case of --family, and make it small"
    )
    words = parser.parse_args()
    if words.case is not None:
        return show((words.family or ["configs"])[0], words.seed, words.case)
    campaign = Campaign(words.folder, words.seed, words.family or FAMILIES, words.workers)
    campaign.run(words.minutes, words.cases)
    print(campaign.table())
    return int(any(c.failed for c in campaign.counts.values()))


def show(name: str, seed: int, number: int) -> int:
    """What one case is, and how it ends."""
    prepare()
    family = FAMILIES[name]
    pieces = family.pieces(seed, number)
    verdict = judged(family, pieces)
    if verdict.outcome == "failed":
        pieces = smaller(family, pieces, verdict.cause)
    print(brief(repr(pieces)), verdict.outcome, verdict.cause, brief(verdict.said), sep="\n")
    return int(verdict.outcome == "failed")


if __name__ == "__main__":
    sys.exit(main())
