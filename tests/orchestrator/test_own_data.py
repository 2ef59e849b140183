"""Tables, arrays, folders of images and libraries' datasets become the samples that they hold."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from orchestrator.config import load
from orchestrator.data.columns import encoded, of_texts
from orchestrator.data.federated import FederatedData
from orchestrator.data.own.splitting import drawn, moments
from orchestrator.data.samples import Request
from orchestrator.errors import UserError


def samples(**dataset):
    settings = [f"data.dataset.{key}={value}" for key, value in dataset.items()]
    return load(None, settings).data.dataset.load(Request(0, 30))


@pytest.fixture
def patients(tmp_path):
    """30 rows of four clinics, of unequal size."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "clinic": rng.choice(list("dcba"), 30, p=[0.4, 0.3, 0.2, 0.1]),
            "age": rng.normal(50, 12, 30).round(2),
            "sex": rng.choice(["m", "f"], 30),
            "same": 7,
            "ill": rng.choice(["yes", "no", "maybe"], 30),
        }
    )
    frame.to_csv(tmp_path / "p.csv", index=False)
    return frame, tmp_path / "p.csv"


def test_a_table_is_its_rows_in_numbers(patients):
    frame, path = patients
    found = samples(name="csv", path=path, label="ill", client="clinic")
    n = found.train
    # which rows are for training can be told by the ages, which are all different
    z = found.x[:, 0].astype(float)
    row = [int(np.argmin(np.abs(_rank(frame.age) - r))) for r in _rank(pd.Series(z))]
    assert sorted(row) == list(range(30))
    ages = frame.age.to_numpy()[row]
    np.testing.assert_allclose(z, (ages - ages[:n].mean()) / ages[:n].std(), atol=1e-5)
    np.testing.assert_array_equal(found.x[:, 1:3], pd.get_dummies(frame.sex).to_numpy()[row])
    assert not found.x[:, 3].any()  # a constant says nothing, and is no NaN
    assert [["maybe", "no", "yes"][y] for y in found.y] == frame.ill.iloc[row].tolist()
    assert [list("abcd")[k] for k in found.owner] == frame.clinic.iloc[row].tolist()
    held = np.bincount(found.owner[n:], minlength=4)
    sizes = np.bincount(found.owner)
    assert held.tolist() == [min(s - 1, max(1, round(0.2 * s))) for s in sizes]


def _rank(values):
    return values.rank().to_numpy()


def test_parquet_and_the_formats_of_a_library_say_the_same(patients, tmp_path):
    import datasets

    frame, path = patients
    # databases' numbers, which pandas holds as objects
    exact = frame.age.map(lambda age: Decimal(f"{age:.2f}"))
    frame.assign(age=exact).to_parquet(tmp_path / "p.parquet")
    one = samples(name="csv", path=path, label="ill", client="clinic")
    two = samples(name="parquet", path=tmp_path / "p.parquet", label="ill", client="clinic")
    for a, b in ((one.x, two.x), (one.y, two.y), (one.owner, two.owner)):
        np.testing.assert_array_equal(a, b)
    split = datasets.Dataset.from_pandas(frame).train_test_split(0.3, seed=0)
    split.save_to_disk(tmp_path / "hub")
    three = samples(name="huggingface", path=tmp_path / "hub", label="ill", inputs="[age, same]")
    assert three.train == 21
    np.testing.assert_array_equal(three.x[:21, 0], np.float32(split["train"]["age"]))
    assert three.x.shape == (30, 2)


def test_rows_that_are_trained_on_are_no_test(patients, tmp_path):
    """Named twice, or copied: accuracy was of training rows, and nothing said so."""
    import datasets

    frame, path = patients
    (tmp_path / "copy.csv").write_bytes(path.read_bytes())
    for same in (path, tmp_path / "copy.csv"):
        with pytest.raises(UserError, match="holds the very rows that are trained on"):
            samples(name="csv", path=path, label="ill", test=same)
    split = datasets.Dataset.from_pandas(frame).train_test_split(0.3, seed=0)
    split.save_to_disk(tmp_path / "hub")
    with pytest.raises(UserError, match="'train' is the split that is trained on"):
        samples(name="huggingface", path=tmp_path / "hub", label="ill", test="train")


def test_a_column_without_a_name_and_an_array_of_a_wrong_one(patients, tmp_path):
    frame, path = patients
    frame.to_csv(path)
    with pytest.raises(UserError, match=r"its column 1 has no name; .*index=False"):
        samples(name="csv", path=path, label="ill")
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3)), y=np.arange(4), clients=np.arange(4))
    with pytest.raises(UserError, match="its array clients is called client here"):
        samples(name="npz", path=tmp_path / "a.npz")


def test_the_test_is_a_column_or_another_file(patients, tmp_path):
    frame, path = patients
    frame["part"] = ["train"] * 20 + ["test"] * 10
    frame.to_csv(path, index=False)
    frame[:20].to_csv(tmp_path / "a.csv", index=False)
    frame[20:].to_csv(tmp_path / "b.csv", index=False)
    features = "[age, sex]"
    one = samples(name="csv", path=path, label="ill", features=features, test="part")
    two = samples(
        name="csv", path=tmp_path / "a.csv", label="ill", features=features, test=tmp_path / "b.csv"
    )
    assert one.train == two.train == 20
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.y, two.y)


def test_a_text_in_one_of_two_files_is_one_in_both(tmp_path):
    """As it is written in both: 01 alone would be the number 1, and true alone a truth."""
    (tmp_path / "a.csv").write_text(
        "code,flag,ill\nA3,no,0\n01,true,1\nB4,no,1\nA3,no,0\nB4,no,0\n"
    )
    (tmp_path / "b.csv").write_text("code,flag,ill\n01,true,1\n02,true,0\n")
    for train, test in (("a", "b"), ("b", "a")):
        found = samples(
            name="csv", path=tmp_path / f"{train}.csv", label="ill", test=tmp_path / f"{test}.csv"
        )
        texts = [column["texts"] for column in found.columns]
        both = [["01", "A3", "B4"], ["no", "true"]]
        assert texts == (both if train == "a" else [["01", "02"], ["true"]])
        # each row that both files have is one and the same input
        code = texts[0].index("01")
        rows = found.x[found.x[:, code] == 1]
        assert len(rows) == 2
        np.testing.assert_array_equal(rows[0], rows[1])
        assert rows[0][len(texts[0]) + texts[1].index("true")] == 1


def test_texts_that_are_numbers_are_texts_where_the_file_says_so(tmp_path):
    """They were refused: row 1 is '99999', and most rows are numbers."""
    frame = pd.DataFrame({"zip": ["00123", "99999", "00123", "99999"], "ill": [0, 1, 0, 1]})
    frame.to_parquet(tmp_path / "z.parquet")
    found = samples(name="parquet", path=tmp_path / "z.parquet", label="ill")
    assert found.columns[0]["texts"] == ["00123", "99999"]
    np.testing.assert_array_equal(found.x[:, 1], found.y)


def test_a_column_of_texts_is_read_as_it_is_written(tmp_path):
    """Where a field is empty, pandas makes truths of the others, and says that they are texts."""
    (tmp_path / "a.csv").write_text("flag,ill,part\ntrue,0,0\n,1,0\nfalse,1,0\ntrue,1,1\n")
    found = samples(name="csv", path=tmp_path / "a.csv", label="ill", missing="drop", test="part")
    assert found.columns[0]["texts"] == ["false", "true"]


def test_texts_that_end_with_nul_are_others():
    texts = pd.Series(["blue", "blue\0"])
    column = of_texts("c", texts)
    np.testing.assert_array_equal(encoded(column, texts, "c"), np.eye(2))


def test_a_config_s_paths_are_from_its_folder(patients, tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text(
        "data: {dataset: {name: csv, path: ./p.csv, label: ill, client: clinic},\n"
        "       partition: natural, clients: 4}\ncohort: 2\n"
    )
    monkeypatch.chdir("/")
    config = load(tmp_path / "c.yaml")
    assert config.data.dataset.path == str(tmp_path / "p.csv")
    data = FederatedData.build(config.data, config.seed)
    assert data.train.sizes.sum() + data.test.sizes.sum() == 30
    monkeypatch.chdir(tmp_path)
    again = load(None, ["data.dataset={name: csv, path: ./p.csv}"])
    assert again.data.dataset.path == str(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,label\n1,x\n,y\n", {}, "column 'a': row 2 is empty or NaN (1 rows"),
        ("a,label\n1,x\n2,y\n,y\n4,x\n", {"missing": "drop"}, None),
        ("a,label\n1,x\n2,y\nthree,x\n4,y\n", {}, "row 3 is 'three', and most rows are numbers"),
        ("a,label\n1,x\n1e39,y\n", {}, "column 'a': row 2 is 1e+39"),
        ("a,label\n1,x\n2,x\n", {}, "all rows are of one class"),
        ("a,label\n1,0.5\n2,1\n", {}, "column 'label': row 1 is 0.5"),
        ("a,target\n1,x\n2,y\n", {}, "has no column 'label'; valid: a, target"),
        ("a,a,label\n1,2,x\n2,3,y\n", {}, "two of its columns are named 'a'"),
        ("a,label\n1,2,x\n2,3,y\n", {}, "cannot read"),
        ("a,label\n1,x\n2,3,y\n", {}, "cannot read"),
        ("label\nx\ny\n", {}, "no column that could be an input"),
        ("", {}, "cannot read"),
        ("a,label\n", {}, "it holds no rows"),
        ("a,label\n\xff", {}, "cannot read"),
        ("a,b,label\nu,1,x\nv,2,y\nw,3,x\n", {"categories": 2, "test": "b"}, "it must be train or"),
        ("a,label\nu,x\nv,y\nw,x\nz,y\np,x\nq,y\n", {"categories": 2}, "has 4 distinct texts"),
        ("a,label\n1,x\n2,y\n", {"test": "nowhere.csv"}, "no column has that name): there is no"),
        ("a,label\n" + "".join(f"{i},{i}\n" for i in range(300)), {}, "distinct labels in 300 rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, options, message):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("latin-1"))
    if message is None:
        assert len(samples(name="csv", path=path, **options).y) == 3
        return
    with pytest.raises(UserError) as told:
        samples(name="csv", path=path, **options)
    assert message in str(told.value)
    assert "t.csv" in str(told.value) or "nowhere.csv" in str(told.value)


def test_part_of_each_group_is_for_the_test():
    groups = np.repeat([5, 0, 9], [1, 2, 17])
    chosen = drawn(groups, 0.3)
    assert [int(chosen[groups == g].sum()) for g in (5, 0, 9)] == [0, 1, 5]
    np.testing.assert_array_equal(chosen, drawn(groups, 0.3))


def test_arrays_are_images_numbers_or_tokens(tmp_path):
    rng = np.random.default_rng(1)
    y = np.repeat(["b", "a"], 10)
    pictures = rng.integers(0, 256, (20, 6, 5, 3), np.uint8)
    numbers = rng.normal(size=(20, 4, 2))
    for name, x in (("pictures", pictures), ("numbers", numbers), ("tokens", pictures[:, 0, :, 0])):
        x = x.astype(np.int64) if name == "tokens" else x
        np.savez(tmp_path / f"{name}.npz", x_train=x[5:], y_train=y[5:], x_test=x[:5], y_test=y[:5])
    images = samples(name="npz", path=tmp_path / "pictures.npz")
    np.testing.assert_array_equal(images.x[0], pictures[5].transpose(2, 0, 1))
    assert (images.train, images.classes, images.y.tolist()) == (
        15,
        2,
        [1] * 5 + [0] * 10 + [1] * 5,
    )
    pixels = pictures[5:].astype(float) / 255
    np.testing.assert_allclose(images.mean, pixels.mean((0, 1, 2)))
    np.testing.assert_allclose(images.std, pixels.std((0, 1, 2)))
    features = samples(name="npz", path=tmp_path / "numbers.npz")
    np.testing.assert_array_equal(features.x[15:], numbers[:5].astype(np.float32))
    assert samples(name="npz", path=tmp_path / "tokens.npz").x.dtype == np.int32
    assert moments(np.zeros((2, 1, 3, 3), np.uint8)) == ((0.0,), (1.0,))


SPLIT = {f"{what}_{half}": np.zeros((4, 2)) if what == "x" else np.arange(4) % 2
         for half in ("train", "test") for what in "xy"}  # fmt: skip


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 2)), "y": np.arange(5)}, "4 inputs, and 5 entries in y"),
        ({"x": np.zeros((4, 2)), "y": np.full(4, 1j)}, "y is complex128"),
        ({"x": np.zeros((4, 2)), "labels": np.arange(4)}, "neither x and y"),
        ({"x": np.zeros(4), "y": np.arange(4)}, "x is float64 of shape (4,)"),
        ({"x": np.full((4, 2), np.nan), "y": np.arange(4) % 2}, "NaN or infinite"),
        ({"x": np.full((4, 2), 1e300), "y": np.arange(4) % 2}, "NaN or infinite"),
        ({"x": np.full((4, 2), -1), "y": np.arange(4) % 2}, "no token ids"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int)}, "one class"),
        ({"x": np.zeros((4, 2)), "y": np.arange(4)}, "no rows are for the test"),
        ({"x": np.zeros((4, 2)), "y": np.array(["a", "\ud800"] * 2)}, r"'\ud800', a class or a text"),
        ({**SPLIT, "client_train": np.arange(4)}, "it holds client_train, and beside x_train and"),
        ({**SPLIT, "client": np.arange(8)}, "are named by client_train and client_test"),
        ({"x": np.zeros((4, 2)), "y": np.arange(4) % 2, "client_test": np.arange(4)}, "beside x clients"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_arrays_is_said(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=r"a\.npz|dataset 'npz'") as told:
        samples(name="npz", path=tmp_path / "a.npz")
    assert message in str(told.value)


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(2)
    for i in range(8):
        place = tmp_path / "pictures" / f"client{i // 4}" / "ab"[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 5, 3), np.uint8)).save(place)
    return tmp_path / "pictures"


def test_a_folder_of_images(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = {"name": "folder", "path": pictures, "clients": "true", "test": 0.25}
    found = samples(**given)
    files = sorted(pictures.glob("*/*/*"))
    there = {np.asarray(Image.open(f)).transpose(2, 0, 1).tobytes(): f.parts[-3:-1] for f in files}
    assert len(there) == 8
    for x, y, owner in zip(found.x, found.y, found.owner, strict=True):
        assert there[x.tobytes()] == (f"client{owner}", "ab"[y])
    assert found.train == 6
    with monkeypatch.context() as patch:  # what was decoded once is read
        patch.setattr("orchestrator.data.own.images.pixels", None)
        np.testing.assert_array_equal(samples(**given).x, found.x)
    small = samples(**given, side=4, grey="true")
    exact = [Image.open(f).convert("L").resize((4, 4), Image.Resampling.BILINEAR) for f in files]
    assert sorted(x.tobytes() for x in small.x) == sorted(np.asarray(i).tobytes() for i in exact)


def test_deep_images_of_a_library_s_dataset_are_refused(tmp_path, monkeypatch):
    """They were read as white."""
    from datasets import ClassLabel, Dataset, DatasetDict, Features
    from datasets import Image as OfImages

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    deep = [Image.fromarray(np.full((4, 4), 300 + i, np.uint16)) for i in range(4)]
    kinds = Features({"image": OfImages(), "label": ClassLabel(names=["a", "b"])})
    made = Dataset.from_dict({"image": deep, "label": [0, 1, 0, 1]}, features=kinds)
    DatasetDict(train=made).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UserError, match="its pixels are of mode I;16"):
        samples(name="huggingface", path=tmp_path / "saved", test=0.5)


def test_columns_of_other_shapes_are_no_input(tmp_path, monkeypatch):
    from datasets import Dataset, DatasetDict

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    made = Dataset.from_dict({"a": [[[1.0, 2.0]]] * 4, "b": [1.0] * 4, "label": [0, 1, 0, 1]})
    DatasetDict(train=made).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UserError, match="a, b are numbers of other shapes than one another"):
        samples(name="huggingface", path=tmp_path / "saved", test=0.5)


def test_tables_are_read_as_they_are_meant(tmp_path):
    """A named index of Parquet, fields between tabs; decimal commas are no texts."""
    frame = pd.DataFrame({"age": range(6), "bp": [1.5, 2, 3, 4, 5, 6], "y": [0, 1] * 3})
    frame.set_index("age").to_parquet(tmp_path / "a.parquet")
    assert samples(name="parquet", path=tmp_path / "a.parquet", label="y").x.shape == (6, 2)
    frame.to_csv(tmp_path / "a.csv", sep="\t", index=False)
    found = samples(name="csv", path=tmp_path / "a.csv", label="y", separator="tab")
    assert found.x.shape == (6, 2)
    frame.to_csv(tmp_path / "b.csv", sep=";", decimal=",", index=False)
    with pytest.raises(UserError, match="numbers with a comma, such as '1,5'"):
        samples(name="csv", path=tmp_path / "b.csv", label="y", separator="';'")


def test_what_is_wrong_with_images_is_said(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = {"name": "folder", "path": pictures, "clients": "true"}
    one = sorted(pictures.glob("*/*/*"))[3]
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(one)
    with pytest.raises(UserError, match=f"{one} has 5 x 5 pixels.*set data.dataset.side"):
        samples(**given)
    Image.fromarray(np.zeros((6, 5), np.uint16)).save(one)
    with pytest.raises(UserError, match=f"{one}: its pixels are of mode I;16"):
        samples(**given, side=4)
    one.write_bytes(one.read_bytes()[:40])
    with pytest.raises(UserError, match=f"cannot read {one}"):
        samples(**given, side=4)
    with pytest.raises(UserError, match="no images in folders of classes"):
        samples(name="folder", path=pictures / "client0" / "a")


def test_torchvision_s_datasets(monkeypatch):
    import torchvision

    options = "{size: 12, image_size: [3, 4, 4], num_classes: 3}"
    found = samples(name="torchvision", dataset="FakeData", options=options)
    reference = torchvision.datasets.FakeData(12, (3, 4, 4), 3)
    there = {np.asarray(x).transpose(2, 0, 1).tobytes(): int(y) for x, y in reference}
    names = sorted(set(there.values()))
    assert [names[y] for y in found.y] == [there[x.tobytes()] for x in found.x]
    for dataset, message in (("SVHM", "did you mean 'SVHN'"), ("VisionDataset", "there is none")):
        with pytest.raises(UserError, match=message):
            samples(name="torchvision", dataset=dataset)


def test_texts_of_a_library_are_tokens(tmp_path):
    import datasets

    texts = {"text": ["good film", "bad film"] * 6, "label": [1, 0] * 6}
    datasets.Dataset.from_dict(texts).to_parquet(tmp_path / "texts" / "train.parquet")
    found = samples(name="huggingface", path=tmp_path / "texts", test=0.25, length=3)
    assert found.x.shape == (12, 3)
    assert len({tuple(row) for row in found.x[found.y == 1]}) == 1
    assert found.x[found.y == 0][0, 1] == found.x[found.y == 1][0, 1] > 0
    for options, message in (
        ({"test": "validation"}, "has no split 'validation'"),
        ({"test": 0.25, "label": "stars"}, "has no column 'stars'"),
        ({"test": 0.25, "label": "text", "inputs": "[text, label]"}, "is the label, and no input"),
    ):
        with pytest.raises(UserError, match=message):
            samples(name="huggingface", path=tmp_path / "texts", **options)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["07", "7", "007", "8"], 4),
        (["10", "9", "0", "-3"], 4),
        (["9007199254740993", "9007199254740992", "9007199254740994", "5"], 4),
        (["1.0", "2.0", "1.0", "3.0"], 3),
    ],
)
def test_names_are_read_as_they_are_written(tmp_path, ids, names):
    """7 and 007 were one client; so were numbers beyond 2^53 in a column with an empty field."""
    rows = [f"{one},{i},{i % 2}" for i, one in enumerate(ids * 6)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,label", *rows, ",3,1"]))
    found = samples(name="csv", path=str(tmp_path / "t.csv"), client="who", missing="drop")
    assert len(set(found.owner.tolist())) == names
    if "-3" in ids:  # in the order of the numbers
        assert found.owner[found.x[:, 0].argmin()] == sorted(map(int, ids)).index(10)


@pytest.mark.parametrize("column", ["label", "t"])
def test_what_is_predicted_is_no_input(tmp_path, column):
    (tmp_path / "t.csv").write_text("a,t,label\n" + "1,0,0\n2,1,1\n3,0,1\n4,1,0\n")
    with pytest.raises(UserError, match=f"column '{column}' is the label or says"):
        samples(name="csv", path=str(tmp_path / "t.csv"), test="t", features=["a", column])


def test_of_rows_that_nobody_trains_on_one_is_for_the_test():
    groups = np.arange(3)
    assert not drawn(groups, 0.2).any()
    assert drawn(groups, 0.2, some=True).sum() == 1
    assert not drawn(groups[:1], 0.2, some=True).any()
