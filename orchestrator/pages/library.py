"""Vega-Lite, which draws the charts: in a browser by its script, in files by vl-convert."""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.files import cache, write_text, write_whole

Spec = dict[str, Any]
"""A chart as Vega-Lite describes it."""
VERSION = "6.4"
"""Of Vega-Lite."""
NOTICE = (
    "Charts are drawn by Vega, Vega-Lite and Vega-Embed, (c) University of Washington Interactive "
    "Data Lab, under the BSD 3-Clause licence: vega.github.io"
)
COLOURS = ["#3b6fd4", "#d9730d", "#2a9d6f", "#b5418f", "#8a6d1c", "#5b8aa6", "#c0392b", "#6d5bd0"]
"""Of lines; told apart on white and on dark, also by most who confuse red and green."""
PAPER: Mapping[str, Any] = {
    "background": "white",
    "font": "Helvetica, Arial, DejaVu Sans, sans-serif",
    "range": {"category": COLOURS},
    "axis": {
        "gridColor": "#e3e3e3",
        "gridWidth": 0.5,
        "domainWidth": 0.6,
        "tickWidth": 0.6,
        "labelFontSize": 8,
        "titleFontSize": 9,
        "titleFontWeight": 400,
    },
    "legend": {
        "orient": "top",
        "labelFontSize": 8,
        "titleFontSize": 8,
        "titleFontWeight": 400,
        "title": None,
        "offset": 4,
        "rowPadding": 1,
        "columnPadding": 8,
        "labelLimit": 200,
    },
    "view": {"stroke": None},
    "line": {"strokeWidth": 1.4},
}
"""Looks of a chart in a file; behaviour.js has those of a page."""
POINTS = 72
"""To an inch: what lengths in a chart are."""


@functools.cache
def script() -> str:
    """The library for a page, 0.9 MB. It takes more than a second to put together, so it is kept in
    the user's cache.
    """
    import vl_convert

    name = f"vega-{VERSION}-{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UserError, UnicodeError):
        known = (cache() / name).read_text(encoding="utf-8")
        if known.endswith(_END):
            return known
    # in a page, this ends a script wherever it stands
    made: str = vl_convert.javascript_bundle(_NAMED, vl_version=VERSION).replace(
        "</script", r"<\/script"
    )
    made += _END
    with contextlib.suppress(OSError, UserError):
        (cache()).mkdir(parents=True, exist_ok=True)
        write_text(cache() / name, made)
    return made


_END = "\n// whole\n"
_NAMED = "window.vegaEmbed = vegaEmbed;"


def write_chart(spec: Spec, path: Path, inches: tuple[float, float]) -> None:
    """Write a chart as a picture (by its ending: .svg, .pdf, .png, .jpg), so wide and high without
    its axes' titles; raises UserError if that cannot be written.
    """
    picture = drawn(spec, path, inches)
    write_whole(path, lambda partial: partial.write_bytes(picture))


def drawn(spec: Spec, path: Path, inches: tuple[float, float]) -> bytes:
    """What :func:`write_chart` writes; raises UserError for an ending that is none of a picture,
    and where there is no room for what draws it.
    """
    _require_room()
    import vl_convert

    width, height = (POINTS * length for length in inches)
    legend = {**PAPER["legend"], "columns": _columns(spec, width)}
    sized = {**spec, "width": width, "height": height, "config": {**PAPER, "legend": legend}}
    writers: dict[str, Callable[[], bytes]] = {
        ".svg": lambda: vl_convert.vegalite_to_svg(sized, VERSION).encode(),
        ".pdf": lambda: vl_convert.vegalite_to_pdf(sized, VERSION),
        ".png": lambda: vl_convert.vegalite_to_png(sized, VERSION, scale=4),
        **dict.fromkeys(
            (".jpg", ".jpeg"), lambda: vl_convert.vegalite_to_jpeg(sized, VERSION, scale=4)
        ),
    }
    if path.suffix.lower() not in writers:
        raise UserError(f"--out {path}: its name must end in {', '.join(writers)}")
    return writers[path.suffix.lower()]()


def _require_room() -> None:
    """Raise UserError where the process may not have the addresses that V8, which draws, reserves
    (it uses little of them): it would end the process without a word.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[0]) if statm.is_file() else 0
    if limit - pages * resource.getpagesize() < RESERVED:
        raise UserError(
            f"pictures are drawn by V8, which reserves {RESERVED >> 30} GiB of addresses (no "
            f"memory), and this process may have {limit >> 30} GiB in all; ulimit -v unlimited"
        )


RESERVED = 66 << 30
"""Bytes of addresses: 64.3 GiB were seen."""


def _columns(spec: Spec, width: float) -> int:
    """How many names of a legend fit side by side into the plane."""
    longest = max(map(len, _named(spec)), default=1)
    return max(1, int(width // (26 + 4.6 * longest)))


def _named(spec: Any) -> Iterator[str]:
    """The names in the domains of its scales."""
    inner = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    for one in inner:
        yield from _named(one)
    domain = spec.get("domain") if isinstance(spec, dict) else None
    if isinstance(domain, list):
        yield from (name for name in domain if isinstance(name, str))
