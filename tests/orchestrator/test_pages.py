"""Reports, comparisons and their figures: what stands in them is what the run recorded, every chart
is one that Vega-Lite can compile, and nothing from outside is read as markup."""

import json
import math
import re
import shutil
import subprocess
import threading
import time
import urllib.request
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import vl_convert

from algorithms.contract import Influence
from algorithms.figure import Figure
from algorithms.part import Part, members
from algorithms.parts.round_ends import Fixed
from orchestrator.cli import quickstart
from orchestrator.cli.live import LivePage, answering
from orchestrator.errors import UserError
from orchestrator.pages import library
from orchestrator.pages.bands import is_cut, points
from orchestrator.pages.figures import Figures
from orchestrator.pages.report import _clients, figures_of, report_of
from orchestrator.pages.table import MOST_ROUNDS, Table
from orchestrator.results import checkpoint, locks
from orchestrator.results.run_folder import RunFolder
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import run_into

KINDS = {
    "attacked": ["attack=sign_flip", "aggregator=krum", "cohort=6"],
    "fda": ["round_end=fda", "local.steps=3"],
    "drdm": ["algorithm=drdm", "local.steps=3"],
    "scaffold": ["algorithm=scaffold"],
    "fedaa": ["algorithm=fedaa", "algorithm.agent=uniform", "data.heldout.per_class=2"],
    "gossip": ["algorithm=drdsgd"],
    "clusters": ["algorithm=clustered"],
    "barycenter": ["aggregator=barycenter", "aggregator.layers=1"],
}
OWN = {
    "attacked": {"attackers", "weights"},
    "fda": {"variance", "intervals"},
    "drdm": {"lambda", "spread", "mixture"},
    "scaffold": {"control"},
    "fedaa": {"reward", "weights"},
    "gossip": {"consensus"},
    "clusters": {"clusters"},
    "barycenter": {"barycenter", "collapsed"},
}
VOID = {"meta", "input", "br", "link"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    for name, settings in KINDS.items():
        run_into(RunFolder(place / name), small("rounds=3", f"name={name}", *settings))
    return place


class Balanced(HTMLParser):
    """Counts what is open, and keeps ids and text."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.said = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)


def parts_of(page):
    """The parsed page, and what its script is given."""
    parsed = Balanced()
    parsed.feed(page)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    given = re.search(r'<script type="application/json" id="page">(.*?)</script>', page, re.S)
    return parsed, json.loads(given[1])


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_is_one_that_the_library_compiles(runs, kind):
    folder = RunFolder.viewed(str(runs / kind))
    figures = figures_of(folder)
    names = {drawing.name for drawing in figures}
    assert OWN[kind] <= names
    others = set().union(*(own for other, own in OWN.items() if other != kind)) - OWN[kind]
    assert not names & (others - {"weights", "attackers"})
    for drawing in figures:
        for over in ("round", "mb", "seconds", "steps") if drawing.over else ("round",):
            for still in (False, True):
                data = {"rounds": figures.table.rows(), **drawing.data}
                spec = {**drawing.spec(over, still), "datasets": data, "width": 200}
                vl_convert.vegalite_to_vega(spec, library.VERSION)


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(runs):
    page = (runs / "drdm" / "report.html").read_text()
    assert len(page) < 1_500_000
    parsed, given = parts_of(page)
    assert not re.search(r'(src|href)\s*=\s*"https?:', page.split("<script>")[0])
    charts = {chart["id"] for chart in given["charts"]}
    assert {f"chart-{name}" for name in charts} <= set(parsed.ids)
    recorded = pd.read_parquet(runs / "drdm" / "rounds.parquet")
    table = given["tables"]["rounds"]
    assert table["round"] == [1, 2, 3]
    sent = (recorded["bytes_up"] + recorded["bytes_down"]).cumsum() / 1e6
    np.testing.assert_allclose(table["mb"], sent, rtol=1e-5)
    accuracy = next(chart for chart in given["charts"] if chart["id"] == "accuracy")
    (name,) = {*re.findall(r"'(c\d+)': 'test set'", json.dumps(accuracy["spec"]))}
    np.testing.assert_allclose(table[name], recorded["test_accuracy"], rtol=1e-5)
    said = " ".join(parsed.said)
    assert f"a test accuracy of {recorded['test_accuracy'].iloc[-1]:.4f}" in said
    assert "mean loss, of the judged model on the test set" in said


def test_nothing_from_outside_is_markup(tmp_path):
    folder = RunFolder(tmp_path / "run")
    name = "</script><script>alert(1)</script><b>'&"
    run_into(folder, small("rounds=1").model_copy(update={"name": name}))
    parsed, _ = parts_of((folder.path / "report.html").read_text())
    assert name in "".join(parsed.said)


def test_the_clients_are_the_last_round_s_and_the_worst_come_first(runs):
    parsed, _ = parts_of((runs / "attacked" / "report.html").read_text())
    last = pd.read_parquet(runs / "attacked" / "clients.parquet").query("round == 3")
    worst = last.sort_values("accuracy", kind="stable").iloc[0]
    said = [text for text in parsed.said if text.strip()]
    first = said[said.index("joules") + 1 :]
    assert first[0] == f"{worst['client']:.0f}"


@pytest.mark.parametrize("kind", ["attacked", "scaffold", "fda"])
def test_weights_are_shares_of_the_aggregate(runs, kind):
    clients = pd.read_parquet(runs / kind / "clients.parquet")
    sums = clients.groupby("round")["weight"].sum()
    np.testing.assert_allclose(sums, 1.0)
    sent = clients.groupby("round")["weight"].count()
    cohort = pd.read_parquet(runs / kind / "rounds.parquet")["cohort"]
    assert sent.tolist() == cohort.tolist()


def test_a_client_that_was_drawn_twice_has_both_shares():
    who = Influence(np.array([4, 1, 4, 7]), np.array([0.25, -0.25, 0.25, 0.25]))
    shares = who.shares(5)  # 7 is the server, which has the rest
    np.testing.assert_allclose(shares[[1, 4]], [0.25, 0.5])
    assert np.isnan(shares[[0, 2, 3]]).all()


def test_many_rounds_keep_what_was_reported_last():
    rounds = pd.DataFrame({
        "round": range(1, 2401), "test_accuracy": np.nan, "bytes_up": 1e6, "bytes_down": 0.0,
        "seconds": 0.5,
    })  # fmt: skip
    measured = rounds["round"] % 100 == 0
    rounds.loc[measured, "test_accuracy"] = rounds["round"] / 2400
    short = Table.of(rounds, ["test_accuracy"]).frame
    assert len(short) <= MOST_ROUNDS
    assert short["round"].iloc[-1] == 2400
    assert short["mb"].iloc[-1] == 2400
    assert short["seconds"].iloc[-1] == 1200
    assert short["c0"].dropna().tolist() == [k / 24 for k in range(1, 25)]


def test_a_thousand_clients_share_cells_that_hold_their_mean():
    rng = np.random.default_rng(0)
    clients = pd.DataFrame({
        "round": np.repeat([5, 10], 1000), "client": np.tile(np.arange(1000), 2),
        "weight": rng.random(2000),
    })  # fmt: skip
    rounds = pd.DataFrame({
        "round": [5, 10], "bytes_up": 1.0, "bytes_down": 1.0, "seconds": 1.0,
    })  # fmt: skip
    held = rng.integers(0, 9, (1000, 300))
    figures = Figures.of(rounds, clients, held)
    cells = figures.named("weights").data["clients-map"]
    assert len(cells) == 2 * 100
    last = [c["value"] for c in cells if c["round"] == 10]
    expected = clients["weight"].to_numpy()[1000:].reshape(100, 10).mean(1)
    np.testing.assert_allclose(last, expected, rtol=1e-5)
    assert cells[0]["client"] == "0–9"
    squares = figures.named("holdings").data["holdings"]
    assert len(squares) == 100 * 100
    np.testing.assert_allclose(squares[1]["value"], held[:10, 3:6].sum() / 10, rtol=1e-5)


def test_of_many_clients_the_page_has_the_worst():
    many = 3000
    clients = pd.DataFrame({
        "round": 5, "client": np.arange(many), "accuracy": np.arange(many)[::-1] / many,
        **{name: 1e9 + np.arange(many) for name in ("loss", "bytes_up", "bytes_down", "joules")},
    })  # fmt: skip
    text = _clients(clients)
    assert len(text) < 200_000
    assert text.count("<tr>") == 1 + 1000
    assert "The 1,000 worst of 3,000 are here" in text
    assert text.split("<td>")[1].startswith("2,999<")
    # of targets that are numbers there is no accuracy: the first thousand were called the worst
    text = _clients(clients.drop(columns="accuracy"))
    assert "The 1,000 worst of 3,000 are here" in text
    assert text.split("<td>")[1].startswith("2,999<")
    # one of NaN was behind all others
    lost = clients["loss"].where(clients["client"] != 7)
    text = _clients(clients.drop(columns="accuracy").assign(loss=lost, test_rows=3))
    assert text.split("<td>")[1].startswith("7<")
    text = _clients(clients[["round", "client", "bytes_up"]])
    assert "The 1,000 first of 3,000 are here" in text
    assert "the worst first" not in text


def test_a_band_is_mean_and_standard_error_over_the_rounds_of_all():
    def one(values, seconds):
        many = len(values)
        return pd.DataFrame({
            "round": range(1, many + 1), "loss": values, "bytes_up": 1e6, "bytes_down": 1e6,
            "seconds": seconds, "steps_total": range(many),
        })  # fmt: skip

    rows = points({"a": [one([1.0, 3.0, 9.0], 1.0), one([2.0, 5.0], 3.0)]}, "loss")
    assert [row["round"] for row in rows] == [1, 2]
    assert rows[1]["value"] == 4.0
    assert rows[1]["low"] == 3.0  # the error of (3, 5) is 1
    assert rows[1]["high"] == 5.0
    assert rows[1]["seconds"] == 4.0
    assert rows[1]["mb"] == 4.0
    assert {row["line"] for row in rows} == {"a"}


def test_a_column_with_dots_is_no_path():
    spent = {"round": [1], "bytes_up": [1e6], "bytes_down": [0.0], "seconds": [2.0]}
    table = Table.of(
        pd.DataFrame({**spent, "gradient_norm/a.b[0]": [2.5]}), ["gradient_norm/a.b[0]"]
    )
    assert table.rows() == [{"round": 1.0, "mb": 1.0, "seconds": 2.0, "c0": 2.5}]


def test_columns_that_are_called_like_axes_are_not_those():
    """What a round takes was drawn as what all of them took, in a band of each run twice."""
    spent = {"round": [1, 2], "bytes_up": [1e6, 1e6], "bytes_down": [0.0, 0.0]}
    runs = [
        pd.DataFrame({**spent, "seconds": [s, s], "steps": [3.0, 3.0], "steps_total": [4.0, 8.0]})
        for s in (1.0, 3.0)
    ]
    rows = points({"a": runs}, "seconds")
    assert [(row["value"], row["low"], row["high"]) for row in rows] == [(2, 1, 3), (2, 1, 3)]
    assert [row["seconds"] for row in rows] == [2, 4]
    rows = points({"a": runs}, "steps")
    assert [(row["value"], row["steps"]) for row in rows] == [(3, 4), (3, 8)]
    assert [row["value"] for row in points({"a": runs}, "round")] == [1, 2]
    own = Table.of(runs[0].assign(mb=[7.0, 9.0]), ["mb", "steps"])
    assert own.values()[own.name("mb")] == [7, 9]
    assert own.values()["mb"] == [1, 2]
    assert own.values()[own.name("steps")] == [3, 3]


def test_seeds_that_are_looked_at_by_a_clock_of_steps_are_joined_by_it():
    """Their rounds are of other lengths: none was in common, and there was no curve."""
    runs = [
        pd.DataFrame({
            "round": rounds, "bytes_up": 1e6, "bytes_down": 0.0, "seconds": 1.0,
            "steps_total": [5.0, 9.0, 13.0], "evaluated_steps": [4.0, 8.0, 12.0],
            "test_accuracy": [base, base + 0.2, base + 0.4],
        })
        for rounds, base in (([1, 3, 5], 0.1), ([2, 4, 6], 0.3))
    ]  # fmt: skip
    rows = points({"a": runs}, "test_accuracy")
    assert [row["steps"] for row in rows] == [4, 8, 12]
    assert [row["value"] for row in rows] == pytest.approx([0.2, 0.4, 0.6])
    assert [row["round"] for row in rows] == [1.5, 3.5, 5.5]
    assert not is_cut({"a": runs}, "test_accuracy")
    assert is_cut({"a": [runs[0], runs[1][:2]]}, "test_accuracy")
    # what is of a round has no other clock
    assert points({"a": [run.assign(update_norm=1.0) for run in runs]}, "update_norm") == []


def test_who_is_joined_by_rounds_ends_by_rounds():
    """Runs that all end with round 2, at steps of their own, were said to end at others."""
    each = [
        pd.DataFrame({
            "round": [1, 2], "bytes_up": 1e6, "bytes_down": 0.0, "seconds": 1.0,
            "steps_total": steps, "evaluated_steps": steps, "test_accuracy": [0.2, 0.4],
        })
        for steps in ([11.0, 23.0], [10.0, 21.0])
    ]  # fmt: skip
    assert [row["round"] for row in points({"a": each}, "test_accuracy")] == [1, 2]
    assert not is_cut({"a": each}, "test_accuracy")


def test_figures_that_are_called_alike_are_each_of_their_own_columns():
    """A metric called as a figure of FDA's was drawn as that one's columns, or not at all."""

    class Loud(Fixed):
        name: str = "loud"
        figures = (Figure("loss", "What was lost", "seconds", "s", {"lost": "lost"}),)

    rounds = pd.DataFrame({
        "round": [1, 2], "bytes_up": 1.0, "bytes_down": 1.0, "seconds": 1.0, "cohort": 2.0,
        "effective_clients": 2.0, "dropped": 0.0, "update_norm": 1.0, "test_loss": [0.5, 0.4],
        "lost": [7.0, 8.0], "test_variance": [0.1, 0.2], "variance_estimate": [3.0, 4.0],
        "theta": 5.0,
    })  # fmt: skip
    figures = Figures.of(rounds, pd.DataFrame())
    names = [drawing.name for drawing in figures]
    assert len({*names}) == len(names)
    assert {"loss", "loss_2", "test_variance", "variance"} <= {*names}
    values = figures.table.values()

    def drawn(name):
        spec = json.dumps(figures.named(name).spec("round", still=True))
        return [values[c] for c in sorted({*re.findall(r"\bc\d+\b", spec)})]

    assert drawn("loss") == [[0.5, 0.4]]
    assert drawn("loss_2") == [[7, 8]]
    assert drawn("test_variance") == [[0.1, 0.2]]
    assert [3, 4] in drawn("variance")


def test_a_part_s_own_figures_are_drawn_whatever_ours_of_that_name_would_say():
    """Those that say nothing in a usual run are not, and by their name neither were a part's: or
    the page failed for a column that only ours needs.
    """

    class Odd(Fixed):
        name: str = "odd"
        figures = (
            Figure("influence", "Its own", "seconds", "s", {"stall": "stall"}),
            Figure("dropped", "Its own, too", "seconds", "s", {"torn": "torn"}),
        )

    rounds = pd.DataFrame({
        "round": [1, 2], "bytes_up": 1.0, "bytes_down": 1.0, "seconds": 1.0, "cohort": 2.0,
        "dropped": 0.0, "stall": [1.0, 2.0], "torn": [3.0, 4.0],
    })  # fmt: skip
    figures = Figures.of(rounds, pd.DataFrame())
    assert figures.named("influence").title == "Its own"
    assert figures.named("dropped").title == "Its own, too"


def test_a_part_of_one_s_own_has_its_figures():
    class Slow(Fixed):
        name: str = "slow"
        figures = (Figure("slowness", "How slow", "seconds lost", "s", {"lost": "lost"}),)

    assert Slow in members(Part)
    rounds = pd.DataFrame({
        "round": [1, 2], "lost": [3.0, 4.0], "bytes_up": 1.0, "bytes_down": 1.0, "seconds": 1.0,
    })  # fmt: skip
    figures = Figures.of(rounds, pd.DataFrame())
    assert figures.named("slowness").title == "How slow"
    with pytest.raises(UserError, match="has no 'slownes'; did you mean 'slowness'"):
        figures.named("slownes")


def test_figures_become_pictures_in_the_size_of_a_paper(runs, tmp_path):
    code, text = here("plot", runs / "fda", "--figure", "variance", "--out", tmp_path / "v.svg")
    assert code == 0, text
    svg = ET.parse(tmp_path / "v.svg").getroot()
    words = [element.text for element in svg.iter() if element.text and element.text.strip()]
    assert "H, estimated" in words
    assert "variance" in words
    code, text = here("plot", runs / "fda", runs / "drdm", "--out", tmp_path / "b.pdf")
    assert code == 0, text
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    both = (runs / "fda", runs / "drdm", "--figure", "variance", "--out", tmp_path / "w.pdf")
    code, text = here("plot", *both)
    assert (code, "--figure variance: it is of one run; name one" in text) == (2, True)
    code, text = here("plot", runs / "drdm")
    assert code == 0
    assert "lambda" in text
    for wrong, why in {
        ("--out", tmp_path / "x.gif"): "must end in .svg, .pdf, .png",
        ("--out", tmp_path / "x.pdf", "--over", "rund"): "did you mean 'round'",
        ("--out", tmp_path / "x.pdf", "--figure", "variance"): "the run has no 'variance'",
    }.items():
        code, text = here("plot", runs / "drdm", *wrong)
        assert code == 2, text
        assert why in text
        assert not (tmp_path / "x.pdf").exists()


def test_a_page_has_the_name_of_a_page(runs, tmp_path):
    for words in (("compare", runs / "fda", "--report"), ("report", runs / "fda", "--out")):
        code, text = here(*words, tmp_path / "x.pdf")
        assert code == 2
        assert "a page's name ends in .html" in text
    assert not (tmp_path / "x.pdf").exists()


def test_a_picture_is_as_wide_as_its_plane_and_its_labels(runs, tmp_path):
    """A legend that has many names takes more lines, and no more room beside the plane."""
    code, text = here("plot", runs / "drdm", "--figure", "clients", "--out", tmp_path / "c.svg")
    assert code == 0, text
    width = float(ET.parse(tmp_path / "c.svg").getroot().attrib["width"].removesuffix("px"))
    assert 3.0 * 72 < width < 3.0 * 72 + 55


def test_attackers_are_marked_and_are_no_clients_that_are_served(runs):
    figures = figures_of(RunFolder.viewed(str(runs / "attacked")))
    clients = pd.read_parquet(runs / "attacked" / "clients.parquet").query("round == 3")
    (bad,) = clients.query("malicious == 1")["client"]
    cells = figures.named("weights").data["clients-map"]
    assert {c["client"] for c in cells if "attacks" in c["client"]} == {f"{bad} attacks"}
    assert len(figures.named("distribution").data["clients"]) == (clients["malicious"] == 0).sum()


def test_the_quick_start_takes_no_other_run_s_place(runs):
    code, text = here("quickstart", "--in-process", "--out", runs / "fda")
    assert code == 2
    assert "a run is there; choose another folder" in text


def test_a_page_is_written_anew_and_hides_no_damage(runs, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=2"))
    before = (folder.path / "report.html").read_text()
    (folder.path / "report.html").unlink()
    assert here("report", folder.path)[0] == 0
    assert (folder.path / "report.html").read_text() == before
    assert RunFolder.viewed(str(folder.path)).result()["rounds"] == 2
    with (folder.path / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x00")
    code, text = here("report", folder.path)
    assert code == 2
    assert "model.safetensors is damaged" in text


def test_a_comparison_is_a_page(runs, tmp_path):
    out = tmp_path / "c.html"
    code, text = here("compare", runs / "fda", runs / "drdm", "--report", out, "--format", "json")
    assert code == 0, text
    parsed, given = parts_of(out.read_text())
    assert "test accuracy" in parsed.said
    (first, *_) = given["charts"]
    recorded = pd.read_parquet(runs / "drdm" / "rounds.parquet")["test_accuracy"]
    drawn = [row["value"] for row in first["data"]["points"] if row["line"] == "drdm"]
    np.testing.assert_allclose(drawn, recorded, rtol=1e-5)


def test_the_quick_start_compares_two_methods_from_one_start(tmp_path, monkeypatch):
    little = ["rounds=2", "local.steps=2", "data.limit=300", "model=linear", "cohort=3"]
    monkeypatch.setattr(quickstart, "ALIKE", little)
    code, text = here("quickstart", "--in-process", "--out", tmp_path / "q")
    assert code == 0, text
    results = {
        name: json.loads((tmp_path / "q" / name / "result.json").read_text())
        for name in ("fedavg", "drdm")
    }
    assert len({r["initial_sha256"] for r in results.values()}) == 1
    worst = [f"{r['metrics']['client_accuracy_worst']:.3f}" for r in results.values()]
    row = next(line for line in text.splitlines() if "clients, worst  " in line)
    assert [word for word in row.split() if "." in word] == worst
    _, given = parts_of((tmp_path / "q" / "comparison.html").read_text())
    assert given["charts"][0]["id"] == "client_accuracy_worst10"
    code, text = here("quickstart", "--in-process", "--out", tmp_path / "q")
    assert code == 0, text
    assert "drdm is finished already" in text
    code, text = here("compare", tmp_path / "q", "--format", "json")
    assert code == 0, text
    assert {run["group"] for run in json.loads(text)["runs"]} == {"fedavg", "drdm"}


def test_a_page_is_made_for_one_browser_after_the_other(tmp_path, monkeypatch):
    """The second was given a part of a library that the first had begun to import."""
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=1"))
    page, busy, together = LivePage(str(folder.path)), threading.Lock(), threading.Barrier(3)

    def making():
        alone = busy.acquire(blocking=False)
        time.sleep(0.05)
        if alone:
            busy.release()
        return str(alone)

    monkeypatch.setattr(page, "_now", making)

    def ask(_):
        together.wait()
        return page.now()

    with ThreadPoolExecutor(3) as browsers:
        assert [*browsers.map(ask, range(3))] == ["True"] * 3


def test_a_run_under_way_is_shown_to_browsers_here(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=3", "checkpoint.every=1"), stop_at=2)
    page = LivePage(str(folder.path))
    kept = {name: (folder.path / name).read_bytes() for name in ("result.json", "manifest.sha256")}
    for name in kept:  # which a run that goes on has not written yet
        (folder.path / name).unlink()
    with answering(page, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        text = urllib.request.urlopen(url, timeout=20).read().decode()
        _, given = parts_of(text)
        assert given["tables"]["rounds"]["round"] == [1, 2]
        assert "Round 2 of 3" in text
        assert 'http-equiv="refresh"' in text
        for name, content in kept.items():
            (folder.path / name).write_bytes(content)
        assert 'http-equiv="refresh"' not in urllib.request.urlopen(url, timeout=20).read().decode()
        # one that goes on after a stop has the results of before, until it ends
        lock = locks.take(folder.path / ".lock")
        again = urllib.request.urlopen(url, timeout=20).read().decode()
        assert "Round 2 of 3" in again
        assert 'http-equiv="refresh"' in again
        lock.close()
        taken = server.server_address[1]
        with pytest.raises(UserError, match=f"--port {taken}"):
            answering(page, taken)
        server.shutdown()


def test_a_checkpoint_that_makes_room_while_it_is_read_is_not_damaged(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    run_into(folder, small("rounds=3", "checkpoint={every: 1, keep: 1}"), stop_at=2)
    (tmp_path / "result.json").unlink()
    read, newest = checkpoint.load_latest, folder.checkpoints / "round-000002"

    def meanwhile(place):
        if newest.exists():
            newest.rename(newest.with_name("round-000003"))
            raise UserError(f"checkpoint {newest} is damaged")
        shutil.copytree(kept, newest)
        shutil.rmtree(newest.with_name("round-000003"))
        return read(place)

    kept = shutil.copytree(newest, tmp_path / "kept")
    monkeypatch.setattr(checkpoint, "load_latest", meanwhile)
    assert "Round 2 of 3" in LivePage(str(tmp_path)).now()

    def torn(place):
        raise UserError("checkpoint is damaged")

    monkeypatch.setattr(checkpoint, "load_latest", torn)
    assert "checkpoint is damaged" in LivePage(str(tmp_path)).now()


def test_a_report_says_what_sets_a_run_apart(runs):
    page = (runs / "attacked" / "report.html").read_text()
    assert "with attack sign_flip" in page
    assert "by 1 of 6 clients; aggregator krum" in page


def test_the_library_is_kept_and_a_torn_copy_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.script.cache_clear()
    whole = library.script()
    (kept,) = (tmp_path / "fedorch").iterdir()
    kept.write_text(whole[:1000])
    library.script.cache_clear()
    assert library.script() == whole
    assert kept.read_text() == whole
    assert "</script" not in whole


def test_a_report_of_before_without_holdings_can_be_written(runs, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run_into(folder, small("rounds=1"))
    (folder.path / "holdings.parquet").unlink()
    page = report_of(RunFolder.viewed(str(folder.path)), folder.config())
    assert "Who holds what" not in page


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("kind", ["drdm", "fda"])
def test_a_browser_draws_every_chart(runs, tmp_path, kind):
    page = runs / kind / "report.html"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=15000", "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    _, given = parts_of(page.read_text())
    for chart in given["charts"]:
        place = done.stdout.split(f'id="chart-{chart["id"]}"')[1]
        figure = place.split("</figure>")[0]
        assert "<svg" in figure, chart["id"]
        assert '<summary aria-label="Save this chart">' in figure
    assert done.stdout.count('<tr class="">') + done.stdout.count("<tr>") > 0


def test_what_judges_is_drawn_at_the_steps_at_which_it_was_measured():
    """In the middle of a round; and what the round did, at its end."""
    rounds = pd.DataFrame({
        "round": [1, 2], "steps_total": [54.0, 104.0], "evaluated_steps": [50.0, math.nan],
        "test_accuracy": [0.5, 0.6], "train_loss": [1.0, 0.9], "test_loss": [2.0, 1.5],
        "bytes_up": [1.0, 1.0], "bytes_down": [1.0, 1.0], "seconds": [1.0, 1.0],
    })  # fmt: skip
    seen = {row["steps"]: row["value"] for row in points({"a": [rounds]}, "test_accuracy")}
    assert seen == {50.0: 0.5, 104.0: 0.6}
    assert {row["steps"] for row in points({"a": [rounds]}, "train_loss")} == {54.0, 104.0}
    clients = pd.DataFrame({"round": [1], "client": [0]})
    figures = Figures.of(rounds, clients)
    spec = figures.named("loss").still("steps", {"rounds": figures.table.rows()})
    # points, whose places an SVG tells
    spec["layer"] = [{**spec["layer"][0], "mark": "point"}]
    svg = vl_convert.vegalite_to_svg(spec)
    told = re.findall(r"local steps, in lock step: (\d+); loss[^:]*: ([\d.]+)", svg)
    assert {(int(x), float(y)) for x, y in told} == {(54, 1), (104, 0.9), (50, 2), (104, 1.5)}
