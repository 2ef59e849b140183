"""Names under which several runs stand side by side."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pandas as pd

from algorithms.part import nearest
from orchestrator.analysis.judged import SOME
from orchestrator.config import Config
from orchestrator.config.defaults import implied
from orchestrator.errors import UserError
from orchestrator.files import read_json
from orchestrator.results.contents import TRIAL
from orchestrator.results.own_code import CODES, FILES
from orchestrator.results.places import is_remote
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder

T = TypeVar("T")
NO_MATTER = ("seed", "name", "resources", "track", "checkpoint")
"""Sections of a config in which runs of one experiment may differ."""
SEEDS = re.compile(r" \(seeds? ([\d, ]+)\)$")
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
MOST = 3
"""Keys that a name by what differs may be made of."""


def told_apart(folders: list[RunFolder], names: list[str] | None = None) -> list[str]:
    """The runs' ``names``, or what tells them apart: the settings in which they differ, names of
    their folders, or whole paths.

    Raises UserError for a run that is there twice.
    """
    places = [f.place for f in folders]
    twice = [place for place in places if places.count(place) > 1]
    if twice:
        raise UserError(f"{twice[0]} is named twice; a run is compared with others")
    configs = [f.config().model_dump(mode="json", exclude=set(NO_MATTER)) for f in folders]
    for known in (
        names or [],
        by_difference(configs),
        _labels(folders),
        [_split(place)[1] for place in places],
        [[*ways_to_say(place)][-1] for place in places],
    ):
        if known and all(known) and len(set(known)) == len(folders):
            return known
    return places


def _split(place: str) -> tuple[str, str]:
    """The way to a run's folder, and the folder's name."""
    above, _, last = place.partition("?")[0].rstrip("/").rpartition("/")
    return above, last


def ways_to_say(place: str) -> Iterator[str]:
    """What a user may call a run by its folder: that, or the folder of its seeds, with or without
    the way there.
    """
    above, last = _split(place)
    whole = f"{above}/{last}" if "/" in place else last
    folders = [whole, above] if last.startswith("seed-") else [whole]
    for folder in folders:
        yield folder
        if not is_remote(folder):
            yield os.path.relpath(folder)
        yield _split(folder)[1]


def relabelled(
    columns: Mapping[str, T], labels: Sequence[str], places: Mapping[str, str]
) -> dict[str, T]:
    """``columns`` with those called otherwise of which ``labels`` ("NAME=TEXT") say so; ``places``
    (folder of a run -> its column) are names, too. Raises UserError for a name that there is not,
    and for one text of two.
    """
    texts: dict[str, str] = {}
    known = {**places, **{name: name for name in columns}}
    for label in labels:
        label = label.replace("/=", "=", 1)
        # either side may hold "="
        given = max((name for name in known if label.startswith(f"{name}=")), key=len, default="")
        name, text = known.get(given, ""), label[len(given) + 1 :].strip()
        if not given or not text:
            raise UserError(
                f"--label {label!r}: give NAME=TEXT, where NAME is a run's folder or one of: "
                f"{'; '.join(columns)}"
            )
        if texts.setdefault(name, text) != text:
            raise UserError(f"--label: {name!r} is to be called {texts[name]!r} and {text!r}")
    named = [texts.get(name, name) for name in columns]
    if twice := [name for name in named if named.count(name) > 1]:
        raise UserError(f"--label: two groups of runs would be called {twice[0]!r}")
    return dict(zip(named, columns.values(), strict=True))


def by_difference(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each config by the settings in which not all are alike ("scaffold, alpha 0.1"); empty where
    these are more than a name should hold.
    """
    told = _told(configs)
    if len(told) > MOST:
        return []
    values = [{key: _at(config, key) for key in told} for config in configs]
    called = {key: _called(key, told, configs[0]) for key in told}
    called |= {key: _place(key, told) for key in told if key.endswith(".name")}
    # what one has and another has not is said of the one, where that is enough
    shorter = _joined([{k: v for k, v in one.items() if v is not None} for one in values], called)
    whole = _joined(values, called)
    return shorter if all(shorter) and len({*shorter}) == len({*whole}) else whole


def _told(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which not all configs are alike, but for those that go with others."""
    # the algorithm first, and a part's name before its options
    told = sorted(
        _apart(configs),
        key=lambda k: (
            k != "algorithm.name", k.rpartition(".")[0], not k.endswith(".name"), k,
        ),
    )  # fmt: skip
    return _without_implied(told, configs)


def _apart(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same, but for options of parts of other names."""
    keys = {key: None for other in configs for key in _differing(configs[0], other)}
    parts = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    return [key for key in keys if _matters(key, parts, configs)]


def _without_implied(told: list[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where algorithms differ: without what each of them brings along (FedAdam's Adam)."""
    if "algorithm.name" not in told:
        return told
    pairs = [*zip(configs, implied(configs), strict=True)]
    return [
        key
        for key in told
        if key == "algorithm.name" or any(_at(one, key) != _at(its, key) for one, its in pairs)
    ]


def _matters(key: str, parts: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> bool:
    """A part of another name has other options; of parts of one name they tell apart."""
    above = next((part for part in parts if key.startswith(part) and key != f"{part}name"), None)
    if above is None:
        return True
    values: dict[str, str] = {}
    told = [(str(_at(config, f"{above}name")), str(_at(config, key))) for config in configs]
    return any(values.setdefault(name, value) != value for name, value in told)


def _labels(folders: Sequence[RunFolder]) -> list[str]:
    """What a sweep calls each of its trials: its settings, and what was drawn for it; empty where
    not all are trials.
    """
    found = []
    for folder in folders:
        if not folder.holds(TRIAL):
            return []
        trial = read_json(folder.path / TRIAL, dict[str, Any])
        planned = trial.pop("planned", None)
        label = str(planned.get("label", "")) if isinstance(planned, Mapping) else ""
        found.append(", ".join([label, *(f"{path}={value}" for path, value in trial.items())]))
    return found


def _joined(values: Sequence[Mapping[str, Any]], called: Mapping[str, str]) -> list[str]:
    return [", ".join(_setting(key, v, called[key]) for key, v in one.items()) for one in values]


def _setting(key: str, value: Any, called: str) -> str:
    """A setting in a few words: a part by its name alone."""
    if key.endswith(".name"):
        return f"{called} {value}".strip()
    value = _short(value)
    return f"no {called}" if value is None else f"{called} {value}"[:60]


def _short(value: Any) -> Any:
    """Parts, that others have not at all or have other numbers of, by their names."""
    if isinstance(value, Mapping) and "name" in value:
        return value["name"]
    if isinstance(value, list):
        return ", ".join(str(_short(one)) for one in value) or "none"
    return value


def _place(key: str, others: Sequence[str]) -> str:
    """What a part is (uplink, downlink), where another one of its section is told, too."""
    sections = key.removesuffix(".name").split(".")
    beside = [k for k in others if k.endswith(".name") and k.startswith(f"{sections[0]}.")]
    return sections[-1] if len(sections) > 1 and len(beside) > 1 else ""


def _called(key: str, others: Sequence[str], config: Mapping[str, Any]) -> str:
    """The key's end, or all of it where another one ends so; with its section where that is the
    name of another section's own (data.clients, data.validation.clients).
    """
    *_, section, last = ["", *key.split(".")]
    if [k.rpartition(".")[2] for k in others].count(last) > 1:
        return key
    above = key.rpartition(".")[0].rpartition(".")[0]
    return f"{section}.{last}" if above and _at(config, f"{above}.{last}") is not None else last


def _at(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def over_seeds(folders: list[RunFolder]) -> dict[str, list[RunFolder]]:
    """Name -> the runs of one config on several seeds, in the order in which they were given.

    Raises UserError for a run that is there twice, be it as two runs of one seed.
    """
    groups = by_config(folders)
    known: dict[tuple[str, str], RunFolder] = {}
    for runs in groups:
        other = known.setdefault(_identity(runs[0]), runs[0])
        if other is not runs[0]:
            seed = runs[0].config().seed
            raise UserError(f"{runs[0].place}: another run is the same, on seed {seed}, too")
    return dict(zip(group_names(groups), groups, strict=True))


def by_config(folders: list[RunFolder]) -> list[list[RunFolder]]:
    """The runs that differ in nothing but the seed, in the order in which they were given; a second
    run of one seed begins a group of its own, but a trial that drew what another one has drawn, and
    has come to the same: it is the same run, and left out.

    Raises UserError for a group in which one run was stopped before its end.
    """
    known: dict[str, list[tuple[int, RunFolder]]] = {}
    files: dict[str, str] = {}
    for folder in folders:
        (config, had), seed = _identity(folder), folder.config().seed
        # where another run of that config had other files; runs of before do not say what they had
        if had and had != files.setdefault(config, had):
            config = f"{config} {had}"
        its = known.setdefault(config, [])
        same = [one for of, one in its if of == seed and folder.holds(TRIAL)]
        if not any(_came_to_the_same(folder, one) for one in same):
            its.append((seed, folder))
    groups: dict[tuple[str, str, int], list[RunFolder]] = {}
    for config, its in known.items():
        # where seeds come twice, there are two series, which are not to be mixed
        mixed = len({seed for seed, _ in its}) < len(its)
        seen: Counter[tuple[str, int]] = Counter()
        for seed, folder in its:
            series = folder.place.rpartition("/")[0] if mixed else ""
            groups.setdefault((config, series, seen[series, seed]), []).append(folder)
            seen[series, seed] += 1
    for runs in groups.values():
        _require_ended(runs)
    return list(groups.values())


def _came_to_the_same(one: RunFolder, other: RunFolder) -> bool:
    """Whether two trials of the same settings and seed are one run: of pbt they have histories, and
    others may have been stopped.
    """
    both, places = (one, other), {folder.place.rpartition("/")[0] for folder in (one, other)}
    # another sweep's may have other bits (by the number of threads)
    if len(places) > 1 or any(folder.ending()["status"] == "failed" for folder in both):
        return True
    return len({folder.result()["weights_sha256"] for folder in both}) == 1


def _require_ended(runs: list[RunFolder]) -> None:
    """Raises UserError if one of several seeds was stopped: a mean of them would be of no round."""
    for folder in runs if len(runs) > 1 else ():
        ended = folder.ending()
        if ended["status"] == "stopped":
            raise UserError(
                f"{folder.place}: the run was stopped after round {ended.get('rounds', 0)}, and is "
                f"no other seed of {next(f for f in runs if f is not folder).place}; "
                "--resume it, or leave it out"
            )


def names_of_data(configs: Sequence[Config]) -> list[str]:
    """The datasets of some configs, each once, with the options that tell those of one name
    apart.
    """
    found: list[dict[str, Any]] = []
    for config in configs:
        options = config.data.dataset.model_dump(mode="json")
        found += [options] if options not in found else []
    names = []
    for options in found:
        others = [one for one in found if one["name"] == options["name"]]
        apart = [
            f"{key} {value}"
            for key, value in options.items()
            if any(one.get(key) != value for one in others)
        ]
        names.append(f"{options['name']} ({', '.join(apart)})" if apart else options["name"])
    return names


def require_same_data(folders: Sequence[RunFolder], results: Sequence[Result]) -> None:
    """Raises UserError for runs whose configs name the same data (on one seed, where it decides
    about them), and that had others: their files were changed in between.
    """
    known: dict[tuple[str, ...], tuple[str, str]] = {}
    digests: list[tuple[RunFolder, tuple[str, ...], str | None]] = []
    for folder, result in zip(folders, results, strict=True):
        config = folder.config()
        named = config.data.model_dump_json(), str(config.seed)
        digests.append((folder, named, result.get("data_sha256")))
        dataset = (config.data.dataset.model_dump_json(),)
        digests.append((folder, dataset, result.get("samples_sha256")))
    for folder, about, digest in digests:
        if not digest:
            continue
        first, other = known.setdefault(about, (folder.place, digest))
        if digest != other:
            raise UserError(
                f"{folder.place}: its data are not those of {first}, though both configs name the "
                "same; their numbers cannot be compared"
            )


def stopped_said(runs: Mapping[str, RunFolder]) -> str:
    """Which runs were stopped before their last round, by somebody or a scheduler; or ""."""
    stopped = [
        f"{name} after {folder.result()['rounds']:,} of {folder.config().rounds:,} rounds"
        for name, folder in runs.items()
        if folder.ending()["status"] == "stopped"
    ]
    more = f" and {len(stopped) - SOME} more" if stopped[SOME:] else ""
    return f"stopped: {', '.join(stopped[:SOME])}{more}" if stopped else ""


def require_reported(
    metric: str, folders: Sequence[RunFolder], rounds: Sequence[pd.DataFrame], every: bool
) -> None:
    """Raises UserError for a metric that no run reports or, where it is needed of ``every`` run,
    that one does not. One that ends in "/" is all columns that begin so.
    """
    for folder, table in zip(folders, rounds, strict=True):
        family = metric.endswith("/")
        there = any(c == metric or (family and str(c).startswith(metric)) for c in table)
        if every and not there:
            raise UserError(
                f"{folder.place}: the run does not report {metric!r}; "
                f"{nearest(metric, [str(c) for c in table])}"
            )
        if there and not every:
            return
    if not every:
        known = sorted({str(c) for table in rounds for c in table})
        raise UserError(f"--metric: no run reports {metric!r}; {nearest(metric, known)}")


def require_curve(
    metric: str, folders: Sequence[RunFolder], rounds: Sequence[pd.DataFrame]
) -> None:
    """Raises UserError for a metric of which some of the runs have no curve."""
    if metric == "round":
        raise UserError("round is what curves are drawn over: give another metric")
    require_reported(metric, folders, rounds, every=True)


BROUGHT = ("local.", "cohort", "aggregator", "data.heldout")
"""Of what an algorithm brings along, what is no part of its name."""


def with_values(keys: Sequence[str], configs: Sequence[Config]) -> Iterator[str]:
    """Keys, with what each of a few configs has there, as far as it is short."""
    whole = [config.model_dump(mode="json") for config in configs]
    for key in keys:
        each = [str(_short(_at(config, key))) for config in whole]
        brief = len(each) <= FEW and all(len(one) <= LEGIBLE for one in each)
        yield f"{key} ({', '.join(each)})" if brief else key


FEW = 4
"""Configs whose values stand behind a key."""
LEGIBLE = 20
"""Characters of one that does."""


def apart_in(sections: Collection[str], configs: Sequence[Config]) -> list[str]:
    """The keys of some sections in which not all configs are alike."""
    whole = [config.model_dump(mode="json", include={*sections}) for config in configs]
    return [key.removesuffix(".name") for key in _apart(whole)]


def unsaid(configs: Mapping[str, Config]) -> list[str]:
    """The keys in which these configs differ, where their names do not say it."""
    whole = [config.model_dump(mode="json", exclude=set(NO_MATTER)) for config in configs.values()]
    told = _told(whole)
    names_say = by_difference(whole) == [SEEDS.sub("", name) for name in configs]
    keys = [*([] if names_say else told), *(key for key in _hidden(whole) if key not in told)]
    return [key.removesuffix(".name") for key in keys]


def _hidden(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that names of parts, or an algorithm's, leave unsaid, as far as several configs have
    them, with other values: how much two compressors keep, what a step is of.
    """
    keys = {key: None for other in configs for key in _differing(configs[0], other)}
    parts = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    inside = [key for key in keys if not _matters(key, parts, configs)]
    brought = [key for key in keys if key.startswith(BROUGHT) and key not in inside]
    each = {key: [_at(config, key) for config in configs] for key in [*inside, *brought]}
    there = {key: [one for one in each[key] if one is not None] for key in each}
    return [key for key, values in there.items() if any(one != values[0] for one in values)]


def group_names(groups: list[list[RunFolder]], names: list[str] | None = None) -> list[str]:
    """The name of each group: its first run's (of ``names``, or its folder's), with the seeds where
    any has several.

    Raises UserError for a run that is there twice.
    """
    told_apart([folder for runs in groups for folder in runs])
    first = told_apart([runs[0] for runs in groups], names)
    each = [sorted(folder.config().seed for folder in runs) for runs in groups]
    if all(one == each[0] for one in each) and len(each[0]) == 1:
        return first
    said = (f"seed{'s' if len(one) > 1 else ''} {', '.join(map(str, one))}" for one in each)
    # whoever has two runs of one config tells them apart by their seeds already
    return [
        name if name.endswith(f"({seeds})") else f"{name} ({seeds})"
        for name, seeds in zip(first, said, strict=True)
    ]


def require_alike(folders: Sequence[RunFolder], counts: Callable[[str], bool], why: str) -> None:
    """Raises UserError, which says ``why``, for runs whose configs differ in a key that ``counts``
    (``local.lr``, say).
    """
    configs = [folder.config().model_dump(mode="json") for folder in folders]
    for folder, config in zip(folders, configs, strict=True):
        keys = [key for key in _differing(configs[0], config) if counts(key)]
        if keys:
            first, some = folders[0].place, ", ".join(keys[:5])
            raise UserError(f"{folder.place}: differs from {first} in {some}; {why}")


def _differing(one: Any, other: Any, above: str = "") -> Iterator[str]:
    """The keys under which two configs, or parts of them, do not say the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(key), other.get(key), f"{above}.{key}" if above else key)
    elif one != other:
        yield above


def alike(folder: RunFolder) -> str:
    """The same text for all runs that differ in nothing but the seed, and in what was in files."""
    return _identity(folder)[0]


def _identity(folder: RunFolder) -> tuple[str, str]:
    """That text, and the digest of the files that the run's config names; "" of a run that does not
    say it.
    """
    # where it ran changes nothing, and a seed has often a name of its own
    config = folder.config().model_dump_json(exclude=set(NO_MATTER))
    with suppress(UserError):  # one that has not ended, or is damaged, which others say
        result = folder.result()
        # parts of one name by other code are others
        codes = (str(result.get(key, "")) for key in CODES)
        return " ".join([config, *codes]), str(result.get(FILES, ""))
    return config, ""


def without_seeds(groups: Mapping[str, T]) -> tuple[dict[str, T], str]:
    """Groups by their names without the seeds that more than half of them have, and these
    ("0, 1, 2"); as they are, and "", where no seeds are so many's.
    """
    each = [found[1] if (found := SEEDS.search(name)) else "" for name in groups]
    usual, many = Counter(each).most_common(1)[0]
    if 2 * many <= len(each):
        return dict(groups), ""
    shorter = [SEEDS.sub("", n) if s == usual else n for n, s in zip(groups, each, strict=True)]
    return dict(zip(shorter, groups.values(), strict=True)), usual


def in_natural_order(groups: Mapping[str, T]) -> dict[str, T]:
    """By name, as :func:`naturally`."""
    return dict(sorted(groups.items(), key=lambda item: naturally(item[0])))


def naturally(name: str) -> list[tuple[float, str]]:
    """What names are sorted by, with numbers by their size: 1e-05 before 0.001, and 9 before 10."""
    return [
        (float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(NUMBER.split(name))
    ]
