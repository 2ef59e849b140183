"""A folder of .npy files is what the same arrays are in an .npz, and its inputs stay on the disk."""

import io
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cli.evaluating import evaluation
from orchestrator.cli.holdings import show_data
from orchestrator.config import load
from orchestrator.data.federated import samples_sha256
from orchestrator.data.mapped import PROBE, PROBES, Mapped, MappedFile, pieces
from orchestrator.data.samples import Request
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.running import finish, resumed, run_into

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], 50)[RNG.permutation(150)]
COLOUR = RNG.integers(0, 256, (150, 8, 6, 3), np.uint8)
X = {
    "grey": COLOUR[..., 0],
    "colour": COLOUR,
    "doubles": RNG.normal(size=(150, 4, 2)),
    "halves": RNG.normal(size=(150, 5)).astype(np.float16),
    "other ends": RNG.normal(size=(150, 5)).astype(">f4"),
    "tokens": COLOUR[:, :, 0, 0].astype(np.int64),
}


def written(place, **arrays):
    """A folder with a file for each array."""
    place.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(place / f"{name}.npy", array)
    return place


def both(place, **arrays):
    """The same arrays in a folder and in an archive."""
    np.savez(place.with_suffix(".npz"), **arrays)
    return written(place, **arrays), place.with_suffix(".npz")


def test_rows_that_were_trained_on_are_found_on_the_disk_too(tmp_path, capsys):
    """Of the run's own data, and of those that judge its model."""
    folder, file = both(tmp_path / "a", x=X["colour"], y=Y)
    for name, own, other in (("disk", folder, file), ("memory", file, folder)):
        run_into(RunFolder(tmp_path / name), config(own, "rounds=1"))
        evaluation(
            RunFolder.viewed(str(tmp_path / name)), [f"data.dataset.path={other}"], every=True
        )
        # those of two clients of three
        assert "80 of 150 test rows are rows that the run trained on" in capsys.readouterr().err


def test_rows_of_training_are_the_servers_where_it_trains(tmp_path, capsys):
    """And not those of clients, who have nothing to do there."""
    _, file = both(tmp_path / "a", x=X["grey"], y=Y)
    given = config(file, "algorithm=server_only", "data.heldout.per_class=5", "rounds=1")
    e, _ = run_into(RunFolder(tmp_path / "run"), given)
    samples = e.data.samples
    for rows, said in ((e.data.heldout_rows, True), (np.unique(e.data.train.rows), False)):
        np.savez(tmp_path / "some.npz", x=samples.x[rows, 0], y=samples.y[rows])
        other = f"data.dataset.path={tmp_path / 'some.npz'}"
        evaluation(RunFolder.viewed(str(tmp_path / "run")), [other], every=True)
        noted = f"{len(rows)} of {len(rows)} test rows are rows that the run trained on"
        assert (noted in capsys.readouterr().err) is said


def config(path, *settings):
    given = [f"data.dataset={{name: npz, path: {path}}}", "data.clients=3", "cohort=2", "rounds=3"]
    return load(None, [*given, "model=linear", "local.steps=3", "local.block=1", *settings])


def samples(path, *settings):
    return config(path, *settings).data.dataset.load(Request(0, 3))


def halves(x):
    return {"x_train": x[:90], "y_train": Y[:90], "x_test": x[90:], "y_test": Y[90:]}


@pytest.mark.parametrize("kind", X)
@pytest.mark.parametrize("split", [False, True])
def test_a_folder_is_what_an_archive_is(kind, split, tmp_path):
    x = X[kind]
    arrays = halves(x) if split else {"x": x, "y": Y, "client": Y % 2}
    on_disk, held = map(samples, both(tmp_path / "a", **arrays))
    assert isinstance(on_disk.x, Mapped)
    assert isinstance(held.x, np.ndarray)
    assert (on_disk.shape, on_disk.x.dtype, on_disk.x.ndim) == (
        held.shape,
        held.x.dtype,
        held.x.ndim,
    )
    # moments, owners and the order of the rows among all else
    assert (on_disk.mean, on_disk.std) == (held.mean, held.std)
    assert samples_sha256(on_disk) == samples_sha256(held)
    rows = np.array([149, 0, 95, 3, 3])
    for some in (rows, slice(85, 95), np.arange(150) % 7 == 0):
        found = on_disk.x[some]
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, held.x[some])
    np.testing.assert_array_equal(on_disk.x[149], held.x[149])


def test_halves_of_two_types_become_one(tmp_path):
    arrays = halves(X["doubles"]) | {"x_test": X["doubles"][90:].astype(np.float16)}
    on_disk, held = map(samples, both(tmp_path / "a", **arrays))
    assert samples_sha256(on_disk) == samples_sha256(held)


def test_pieces_are_all_rows_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.data.mapped.PIECE", 1000)
    on_disk, held = map(samples, both(tmp_path / "a", **halves(COLOUR)))
    for x in (on_disk.x, held.x):
        found = list(pieces(x))
        assert {one.nbytes <= 1000 for one in found} == {True}
        np.testing.assert_array_equal(np.concatenate(found), held.x)
        np.testing.assert_array_equal(np.concatenate(list(pieces(x, 77))), held.x[:77])


AUGMENTED = "data.augment=[flip, {name: crop, padding: 1}]"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("colour", ()), ("colour", (AUGMENTED,)), ("doubles", ()), ("grey", ("data.pool=all",))],
)
def test_it_trains_to_the_same_bits(kind, settings, tmp_path):
    arrays = {"x": X[kind], "y": Y}
    on_disk, held = (finish(config(p, *settings)) for p in both(tmp_path / "a", **arrays))
    assert on_disk.world.inputs is None
    assert on_disk.weights_sha256() == held.weights_sha256()
    assert on_disk.origin == held.origin
    for name, value in held.records[-1].items():
        if "seconds" not in name:
            assert on_disk.records[-1][name] == value, name


def test_a_convolution_sees_rows_as_they_are_in_memory(tmp_path):
    """Channels last in memory would be other kernels, and other bits."""
    x = RNG.integers(0, 256, (150, 28, 28, 1), np.uint8)
    runs = [config(p, "model=lenet5", "rounds=1") for p in both(tmp_path / "a", x=x, y=Y)]
    assert len({finish(one).weights_sha256() for one in runs}) == 1


def test_only_batches_move_to_another_device(tmp_path):
    """Their rows are looked up without asking the device, which would have to finish first."""
    world = replace(Experiment(config(written(tmp_path / "a", x=COLOUR, y=Y))).world, device="meta")
    x, y = world.batch(np.array([[3, 1], [0, 2]]))
    assert world.inputs is None
    assert (x.device.type, y.device.type) == ("meta", "meta")
    assert x.shape == (2, 2, 3, 8, 6)


def test_actors_map_it_themselves(tmp_path, company):
    on_disk, held = both(tmp_path / "a", x=COLOUR, y=Y, client=np.arange(150) % 3)
    natural = ["data.partition=natural", "resources.actors=2"]
    chosen = config(on_disk, *natural)
    there = finish(chosen, company.plane(chosen))
    assert there.weights_sha256() == finish(config(held, *natural)).weights_sha256()
    assert len(pickle.dumps(there.data.samples.x)) < COLOUR.nbytes / 4


def test_resumed_runs_agree(tmp_path, company):
    on_disk, held = both(tmp_path / "a", x=COLOUR, y=Y)
    chosen = config(on_disk, "resources.actors=1")
    whole = finish(config(held, "resources.actors=1")).state_sha256()
    assert resumed(chosen, tmp_path / "one", 1).state_sha256() == whole
    assert resumed(chosen, tmp_path / "two", 2, company.plane(chosen)).state_sha256() == whole


def test_other_rows_are_not_resumed(tmp_path):
    run_folder = RunFolder(tmp_path / "run")
    on_disk = written(tmp_path / "a", x=COLOUR, y=Y)
    run_into(run_folder, config(on_disk), stop_at=1)
    x = COLOUR.copy()
    x[5, 3, 3, 1] += 1  # one pixel, of the same size
    np.save(on_disk / "x.npy", x)
    with pytest.raises(UserError, match="the dataset's files, or who holds which rows"):
        run_into(run_folder, resuming=True)


def moved(file):
    file.rename(file.with_name("elsewhere.npy"))


def replaced(file):
    other = COLOUR.copy()
    other[-1] = 0
    np.save(file.with_name("other.npy"), other)
    file.with_name("other.npy").replace(file)


def cut(file):
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved, "No such file.*same path on every node"),
        (replaced, "x.npy: it is not the file that the run has begun with.*same path on every"),
        (cut, "cannot read .*x.npy.*same path on every node"),
    ],
)
def test_a_node_that_has_another_file_is_told_of(change, message, tmp_path, company):
    chosen = config(written(tmp_path / "a", x=COLOUR, y=Y), "resources.actors=1")
    experiment = Experiment(chosen, company.plane(chosen))
    change(tmp_path / "a" / "x.npy")
    try:
        with pytest.raises(UserError, match=message) as told:
            experiment.step()
    finally:
        experiment.close()
    assert "\n" not in str(told.value)


def test_a_file_that_is_cut_while_it_is_read(tmp_path):
    """What lies beyond its end would end the process."""
    found = samples(written(tmp_path / "a", x=COLOUR, y=Y))
    cut(tmp_path / "a" / "x.npy")
    with pytest.raises(UserError, match=r"x\.npy: it has been cut to \d+ of its \d+ bytes"):
        found.x[np.array([149])]


def test_a_file_that_has_got_a_new_name_is_still_read(tmp_path):
    found = samples(written(tmp_path / "a", x=COLOUR, y=Y))
    before = found.x[:]
    replaced(tmp_path / "a" / "x.npy")
    np.testing.assert_array_equal(found.x[:], before)


def test_a_file_that_is_written_over_is_noticed(tmp_path):
    """The digest of the data that a result names is of the file as it was."""
    folder = written(tmp_path / "a", x=COLOUR, y=Y)
    found = samples(folder)
    assert len(found.x[:]) == len(COLOUR)
    os.utime(folder / "x.npy", ns=(1, 1))  # only touched
    assert len(found.x[np.array([0])]) == 1
    np.save(folder / "x.npy", 255 - COLOUR)
    os.utime(folder / "x.npy", ns=(2, 2))  # some clocks are coarse
    with pytest.raises(UserError, match=r"x.npy: it has been written to since it was opened"):
        found.x[np.array([0])]


@pytest.mark.parametrize("place", [0, 1 / 3, 1])
def test_parts_of_a_large_file_are_compared(place, tmp_path):
    x = np.zeros((PROBES * PROBE * 4, 1), np.uint8)
    file = MappedFile.of(written(tmp_path / "a", x=x) / "x.npy")
    at = int(place * (file.size - PROBE))
    with (tmp_path / "a" / "x.npy").open("r+b") as f:
        f.seek(max(128, at + 10))
        f.write(b"\1")
    assert MappedFile.of(tmp_path / "a" / "x.npy").probe != file.probe


def pickled():
    return np.array([{}, {}], object)


def archive():
    made = io.BytesIO()
    np.savez(made, x=COLOUR)
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot read .*x.npy"),
        (b"no array", "cannot read .*x.npy"),
        (archive(), "cannot read .*x.npy: not an .npy file"),
        (pickled(), "cannot read .*x.npy"),
        (np.asfortranarray(X["halves"]), "x.npy: its array lies in Fortran's order"),
        (np.zeros((149, 3)), "149 inputs, and 150 entries in y"),
        (np.zeros(150), r"x is float64 of shape \(150,\)"),
        (np.zeros((150, 3), complex), r"x is complex128 of shape \(150, 3\)"),
        (np.zeros((150, 3, 3), np.int32), r"x is int32 of shape \(150, 3, 3\)"),
        (np.float64(3), "x is a single number"),
        (np.full((150, 3), -1), "no token ids"),
        (np.where(np.arange(150) == 140, np.nan, 0)[:, None], "NaN or infinite"),
        (np.where(np.arange(150) == 140, 1e300, 0)[:, None], "NaN or infinite"),
        (np.zeros((150, 0)), "no rows of numbers"),
        (None, "it holds y, and neither x and y"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(content, message, tmp_path):
    place = written(tmp_path / "a", y=Y)
    if isinstance(content, bytes):
        (place / "x.npy").write_bytes(content)
    elif content is not None:
        np.save(place / "x.npy", content, allow_pickle=True)
    with pytest.raises(UserError, match=message) as told:
        samples(place)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_holds_what_its_header_promises(name, more, tmp_path):
    file = written(tmp_path / "a", x=COLOUR, y=Y) / f"{name}.npy"
    os.truncate(file, file.stat().st_size + more)
    with pytest.raises(UserError, match=f"cannot read {file}"):
        samples(tmp_path / "a")


@pytest.mark.parametrize("what", ["y", "client"])
def test_halves_have_as_many_entries_as_inputs(what, tmp_path):
    """In all there are as many, and each would stand beside the input before its own."""
    arrays = halves(COLOUR) | {"client_train": Y[:90], "client_test": Y[90:]}
    arrays |= {f"{what}_train": Y[:91], f"{what}_test": Y[91:]}
    for place in both(tmp_path / "a", **arrays):
        with pytest.raises(UserError, match=f"90 inputs, and 91 entries in {what}_train"):
            samples(place)


def test_data_show(tmp_path, capsys):
    shown = []
    for place in both(tmp_path / "a", x=COLOUR, y=Y):
        show_data(config(place), None)
        shown.append(capsys.readouterr().out)
    assert "3 clients, 120 training rows" in shown[0].replace("\n", " ")
    assert shown[0] == shown[1]


LIMITED = """
import resource, sys
import numpy as np
from orchestrator.rounds.experiment import Experiment
from tests.orchestrator.test_mapped_data import config

small, *large = sys.argv[1:]
Experiment(config(small)).step()  # all that a run of any size needs
held = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData")) << 10
limit = held + {mib} * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for path in large:
    experiment = Experiment(config(path))
    experiment.step()
    print(experiment.weights_sha256())
try:
    np.load(large[0] + "/x.npy")
except MemoryError:
    print("no room")
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(tmp_path):
    """With room for less than a quarter of it, all that is done with a set is done: nor do results
    that are kept lie so among what is freed that the next batch fits in no gap.
    """
    rows, mib = 98_304, 72
    labels = np.arange(rows) % 3
    for name, kind, shape in (("images", np.uint8, (56, 64)), ("numbers", np.float32, (896,))):
        place = written(tmp_path / name, y=labels)
        whole = np.lib.format.open_memmap(place / "x.npy", "w+", kind, (rows, *shape))
        whole[7] = 1  # the rest are holes, which take no room on the disk
        assert whole.nbytes > 4 * mib * 2**20
    small = written(tmp_path / "small", x=np.zeros((1000, 56, 64), np.uint8), y=labels[:1000])
    places = [str(small), *(str(tmp_path / name) for name in ("images", "numbers"))]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(mib=mib), *places],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *digests, last = done.stdout.split("\n")[:-1]
    assert len(set(digests)) == 2
    assert last == "no room"
