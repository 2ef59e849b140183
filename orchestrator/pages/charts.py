"""Charts as Vega-Lite describes them; their data are given to them by name.

What is there for a mouse is left out of pictures (``still``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.pages.library import Spec
from orchestrator.pages.table import AXES, MEASURED

BINS = {"extent": [0, 1], "step": 0.05}
"""Of accuracies."""
ROUNDS = "rounds"
"""The name of the table of rounds, which all of a page's curves share."""
ATTACKS = " attacks"
"""Ends the names of clients that attack."""
DASHES = [[1, 0], [5, 2], [2, 2], [6, 2, 2, 2], [1, 2], [8, 3]]
"""Of lines in a picture, which may be printed in black and white."""


def curves(
    lines: Mapping[str, str], y: str, over: str, ticks: bool = False,
    bounds: tuple[float, float] | None = None, still: bool = False, limits: Sequence[str] = (),
    measured: Sequence[str] = (),
) -> Spec:  # fmt: skip
    """Columns of the table of rounds -> what their lines are called, ``over`` an axis; the other
    axis shows at least the ``bounds``. With ``ticks`` they are points, but for the ``limits``.
    Over local steps those of ``measured`` are where their table says that they were measured.
    """
    names = list(lines)
    labels = [*lines.values()]
    called = ", ".join(f"{_quoted(n)}: {_quoted(label)}" for n, label in lines.items())
    folded: list[Spec] = [
        {"fold": names, "as": ["column", "value"]},
        {"filter": "isValid(datum.value)"},
        {"calculate": f"({{{called}}})[datum.column]", "as": "line"},
    ]
    if measured:
        there = f"indexof({_listed(measured)}, datum.column) >= 0 && isValid(datum.{MEASURED})"
        folded.append({"calculate": f"{there} ? datum.{MEASURED} : datum.steps", "as": "steps"})
    drawn = _lines(labels, y, over, bounds, still)
    layers = [{"transform": folded, **layer} for layer in drawn]
    if ticks:
        layers = [_ticks(over), *_pointed(layers[0], limits), *layers[1:]]
    return {"data": {"name": ROUNDS}, "layer": layers}


def _pointed(lines: Spec, limits: Sequence[str]) -> list[Spec]:
    """The layer of lines as points, of which ``limits`` stay lines."""
    encoding = {key: value for key, value in lines["encoding"].items() if key != "strokeDash"}
    encoding["color"] = {**encoding["color"]}
    if encoding["color"]["legend"]:
        encoding["color"]["legend"] = {"symbolOpacity": 1, "symbolType": "circle", "symbolSize": 40}
    few = _listed(limits)
    points: Spec = {
        **lines,
        "transform": [*lines["transform"], {"filter": f"indexof({few}, datum.column) < 0"}],
        "mark": {"type": "point", "filled": True, "size": 22},
        "encoding": encoding,
    }
    dashed: Spec = {
        "transform": [*lines["transform"], {"filter": f"indexof({few}, datum.column) >= 0"}],
        "mark": {"type": "line", "strokeDash": [4, 3], "tooltip": None},
        "encoding": {key: value for key, value in encoding.items() if key != "opacity"},
    }
    return [points, dashed] if limits else [points]


def bands(groups: Sequence[str], y: str, over: str, still: bool = False) -> Spec:
    """Means of groups of runs with a band around each: rows group, AXES, value, low, high."""
    drawn = _lines(groups, y, over, None, still)
    band: Spec = {
        "mark": {"type": "area", "opacity": 0.18, "tooltip": None},
        "encoding": {
            "x": _x(over),
            "y": {"field": "low", "type": "quantitative", "title": y, "scale": {"zero": False}},
            "y2": {"field": "high"},
            "color": _named(groups),
        },
    }
    return {"data": {"name": "points"}, "layer": [band, *drawn]}


def _lines(
    names: Sequence[str], y: str, over: str, bounds: tuple[float, float] | None, still: bool
) -> list[Spec]:
    """Lines of rows with ``line``, ``value`` and AXES, and what answers a mouse."""
    scale: Spec = {"zero": False}
    if bounds is not None:
        scale["domain"] = {"unionWith": list(bounds)}
    colour = _named(names)
    encoding: Spec = {
        "x": _x(over),
        "y": {"field": "value", "type": "quantitative", "title": y, "scale": scale},
        "color": colour,
    }
    line: Spec = {"mark": {"type": "line", "interpolate": "linear"}, "encoding": encoding}
    if still:
        if 1 < len(names) <= len(DASHES):
            dash = {"domain": list(names), "range": DASHES[: len(names)]}
            line["encoding"] = {**encoding, "strokeDash": {**colour, "scale": dash}}
        return [line]
    line["params"] = [
        {"name": "zoom", "bind": "scales", "select": {
            "type": "interval", "zoom": "wheel![event.ctrlKey || event.shiftKey]",
        }},
        {"name": "chosen", "bind": "legend", "select": {"type": "point", "fields": ["line"]}},
    ]  # fmt: skip
    line["encoding"] = {
        **encoding,
        "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.12},
    }
    near: Spec = {
        "mark": {"type": "point", "filled": True, "size": 55},
        "params": [{"name": "near", "select": {
            "type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout",
        }}],
        "encoding": {
            **encoding,
            "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0},
            "tooltip": [
                {"field": "line", "title": "curve"},
                {"field": "value", "title": y, "format": ".4~g"},
                {"field": over, "type": "quantitative", "title": AXES[over], "format": ",.6~g"},
            ],
        },
    }  # fmt: skip
    return [line, near]


def _named(lines: Sequence[str]) -> Spec:
    """A colour for each line; one alone needs no name."""
    legend = {"symbolOpacity": 1, "symbolType": "stroke", "symbolStrokeWidth": 2}
    return {
        "field": "line",
        "type": "nominal",
        "scale": {"domain": list(lines)},
        "legend": legend if len(lines) > 1 else None,
    }


def _x(over: str) -> Spec:
    """behaviour.js puts another axis in its place."""
    whole = {"tickMinStep": 1} if over in ("round", "steps") else {}
    return {
        "field": over,
        "type": "quantitative",
        "title": AXES[over],
        "scale": {"zero": False, "nice": False},
        "axis": {"labelFlush": False, "labelSeparation": 8, **whole},
    }


def _ticks(over: str) -> Spec:
    """A tick at the foot for each row."""
    return {
        "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 1, "tooltip": None},
        "encoding": {
            "x": _x(over),
            "y": {"value": {"expr": "height"}},
            "y2": {"value": {"expr": "height - 7"}},
        },
    }  # fmt: skip


def over_clients(cell: str, still: bool = False) -> Spec:
    """A number of each client in evaluated rounds, as a map: rows client, round, value."""
    drawn = _map(
        ("round", "round, as far as evaluated"), ("client", "client"), cell, "clients-map", still
    )
    # in the map, since names that are too close to others are left out
    marks: Spec = {
        "transform": [
            {"filter": f"indexof(datum.client, '{ATTACKS}') >= 0"},
            {"aggregate": [{"op": "count", "as": "cells"}], "groupby": ["client"]},
        ],
        "mark": {"type": "text", "text": "◂", "align": "right", "dx": -1, "color": "#ff6a5d"},
        "encoding": {
            "x": {"value": {"expr": "width"}},
            "y": drawn["encoding"]["y"],
            "tooltip": [{"field": "client", "title": "client"}],
        },
    }
    data, view = drawn.pop("data"), drawn.pop("view")
    return {"data": data, "view": view, "layer": [drawn, marks]}


def holdings(still: bool = False) -> Spec:
    """Training rows of each client and label, as a map: rows client, label, value."""
    return _map(("client", "client"), ("label", "label"), "training rows", "holdings", still)


def _map(x: tuple[str, str], y: tuple[str, str], cell: str, data: str, still: bool) -> Spec:
    encoding: Spec = {
        "x": {"field": x[0], "type": "ordinal", "title": x[1], "axis": _sparse(still)},
        "y": {
            "field": y[0], "type": "ordinal", "title": y[1], "sort": None,
            "axis": {"labelOverlap": True},
        },
        "color": {
            "field": "value", "type": "quantitative", "title": cell,
            "scale": {"scheme": "viridis", "domain": {"unionWith": [0]}},
            "legend": {
                "orient": "right", "titleOrient": "right", "gradientThickness": 10, "tickCount": 4,
            },
        },
        "tooltip": [
            {"field": x[0], "title": x[0]},
            {"field": y[0], "title": y[0]},
            {"field": "value", "title": cell, "format": ",.4~g"},
        ],
    }  # fmt: skip
    # what has no number is grey, and so told from 0 on light and dark pages
    return {
        "data": {"name": data}, "mark": {"type": "rect"}, "encoding": encoding,
        "view": {"fill": "#8888", "stroke": None},
    }  # fmt: skip


def _sparse(still: bool) -> dict[str, Any]:
    return {"labelOverlap": True, "labelAngle": 0, "labelFlush": still, "labelSeparation": 6}


def distribution(kinds: Sequence[str], x: str, still: bool = False) -> Spec:
    """How many clients have which value: rows kind, value."""
    spec: Spec = {
        "data": {"name": "clients"},
        "mark": {"type": "bar", "opacity": 0.75, "binSpacing": 1},
        "encoding": {
            "x": {
                "field": "value", "type": "quantitative", "title": x, "bin": BINS,
                "scale": {"domain": [0, 1]},
            },
            "y": {
                "aggregate": "count", "type": "quantitative", "title": "clients", "stack": None,
                # of few clients Vega has marks between whole numbers all the same
                "axis": {
                    "tickMinStep": 1, "format": "d",
                    "labelExpr": "datum.value % 1 ? '' : datum.label",
                },
            },
            "color": {
                "field": "kind", "type": "nominal", "sort": list(kinds),
                **({"legend": None} if len(kinds) == 1 else {}),
            },
            "tooltip": [
                {"field": "value", "bin": BINS, "title": x},
                {"aggregate": "count", "title": "clients"},
                {"field": "kind", "title": "model"},
            ],
        },
    }  # fmt: skip
    return spec


def _listed(names: Sequence[str]) -> str:
    """As an expression of Vega."""
    return f"[{', '.join(map(_quoted, names))}]"


def _quoted(text: str) -> str:
    """As a string in Vega's expressions."""
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
    return f"'{plain}'"
