"""Draw the screenshots of docs/reports.md anew: ``python docs/images/draw.py FOLDER``.

Makes the runs in FOLDER (ten minutes on two cores; what is there already is taken), and has a
Chromium draw their pages.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
METHODS = ("fedavg", "scaffold", "drdm")
WIDE, LONG, PHONE = (1240, 1500), (1240, 2250), (500, 1000)
DARK = "--blink-settings=preferredColorScheme=0"
COLOURS = 128
"""In a picture: a third of the bytes, and nothing that an eye misses."""
BROWSER = ("chromium", "google-chrome")
ALONE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync",
    "--disable-background-networking", "--virtual-time-budget=15000",
)  # fmt: skip
"""A browser without a screen, which asks nobody for anything."""


def fedorch(*words: object) -> None:
    """A command, in its own process; raises CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", "fedorch", *map(str, words)], check=True)


def runs(place: Path) -> dict[str, Path]:
    """Name of a picture -> its page; makes the runs that are not there."""
    quick, three, sweep = place / "quickstart", place / "three", place / "sweep"
    if not quick.exists():
        fedorch("quickstart", "--in-process", "--out", quick)
    for system in ("fedaa", "fda"):
        if not (place / system).exists():
            fedorch(
                "run", EXAMPLES / system / "small.yaml", "--in-process", "--out", place / system
            )
    work = ("--set", "rounds=20", "--set", "local.steps=8", "--seeds", "0-2", "--in-process")
    for method in METHODS:
        if not (three / method).exists():
            fedorch("run", "--set", f"algorithm={method}", *work, "--out", three / method)
    if not sweep.exists():
        fedorch("sweep", EXAMPLES / "sweeps" / "small.yaml", "--out", sweep)
    pages = {name: place / f"{name}.html" for name in ("comparison", "sweep")}
    several = (three / method for method in METHODS)
    worst = ("--metric", "client_accuracy_worst10")
    fedorch("compare", *several, *worst, "--report", pages["comparison"])
    fedorch("compare", sweep, "--report", pages["sweep"])
    pages["quickstart"] = quick / "comparison.html"
    for name, run in {
        "drdm": quick / "drdm",
        "fedaa": place / "fedaa",
        "fda": place / "fda",
    }.items():
        fedorch("report", run)
        pages[f"report_{name}"] = run / "report.html"
    return pages


def draw(page: Path, picture: Path, size: tuple[int, int], *flags: str) -> None:
    """A page as a browser's window of such a size shows it first."""
    browser = next(filter(None, map(shutil.which, BROWSER)))
    with tempfile.TemporaryDirectory() as profile:
        window = f"--window-size={size[0]},{size[1]}"
        own = (f"--user-data-dir={profile}", window, f"--screenshot={picture}", *flags)
        subprocess.run([browser, *ALONE, *own, page.absolute().as_uri()], check=True)
    Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """All of them."""
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    pages = runs(place)
    for name, page in pages.items():
        draw(page, HERE / f"{name}.png", LONG if name.startswith("report") else WIDE)
    draw(pages["report_drdm"], HERE / "report_dark.png", WIDE, DARK)
    draw(pages["report_drdm"], HERE / "report_phone.png", PHONE)


if __name__ == "__main__":
    main()
