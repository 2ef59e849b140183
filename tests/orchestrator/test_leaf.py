"""LEAF's folders become the rows, users and splits that they hold."""

import json

import numpy as np
import pytest
from PIL import Image

from orchestrator.config import load
from orchestrator.data.federated import FederatedData
from orchestrator.data.own.characters import LEAF
from orchestrator.data.samples import Request
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment


def samples(path, **options):
    settings = {"name": "leaf", "path": path, **options}
    made = [f"data.dataset.{key}={value}" for key, value in settings.items()]
    return load(None, made).data.dataset.load(Request(0, 2))


def document(users):
    """A file as LEAF's scripts write it, of {user: (x, y)}."""
    return {
        "users": [*users],
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def written(root, train, test):
    """The folder: a list of {user: (x, y)} for each file."""
    for half, files in (("train", train), ("test", test)):
        (root / half).mkdir(parents=True, exist_ok=True)
        for i, users in enumerate(files):
            (root / half / f"all_data_{i}_{half}_9.json").write_text(json.dumps(document(users)))
    return root


def test_numbers_of_users_are_theirs(tmp_path):
    rng = np.random.default_rng(0)
    rows = {(half, who): rng.random((n, 6)).round(3) for half, who, n in
            (("train", "f9", 3), ("train", "f1", 2), ("train", "f5", 1), ("test", "f1", 2), ("test", "f9", 1))}  # fmt: skip
    labels = {key: [(i + len(x)) % 3 * 30 for i in range(len(x))] for key, x in rows.items()}

    def of(half, *names):
        return {who: (rows[half, who].tolist(), labels[half, who]) for who in names}

    # users are in files as they come; LEAF keeps those with no rows for a half in user_data alone
    root = written(tmp_path, [of("train", "f9"), of("train", "f5", "f1")], [of("test", "f9", "f1")])
    lonely = document(of("test", "f9", "f1"))
    lonely["user_data"]["f7"] = {"x": [], "y": []}
    (root / "test" / "all_data_0_test_9.json").write_text(json.dumps(lonely))
    found = samples(root, shape="[1, 2, 3]")
    order = [*(("train", who) for who in ("f1", "f5", "f9")), ("test", "f1"), ("test", "f9")]
    assert found.x.dtype == np.float32
    assert found.x.shape == (9, 1, 2, 3)
    expected = np.concatenate([rows[key] for key in order]).astype(np.float32)
    np.testing.assert_array_equal(found.x.reshape(9, 6), expected)
    assert found.y.tolist() == [label // 30 for key in order for label in labels[key]]
    assert found.owner.tolist() == [0, 0, 1, 2, 2, 2, 0, 0, 2]
    assert (found.train, found.classes, found.names) == (6, 3, ("0", "30", "60"))
    assert samples(root).x.shape == (9, 6)


def test_users_of_the_test_alone_come_last(tmp_path):
    """LEAF's split by user: those that train are the first clients."""
    one = lambda who, x=1.0: {who: ([[x, 2.0], [3.0, 4.0]], [0, 1])}  # noqa: E731
    root = written(tmp_path / "data", [one("b") | one("d")], [one("a", 5.0) | one("c")])
    found = samples(tmp_path)
    assert found.owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    config = load(None, [f"data.dataset={{name: leaf, path: {root}}}", "data.partition=natural",
                         "data.clients=2", "cohort=2"])  # fmt: skip
    data = FederatedData.build(config.data, 0)
    assert [data.train[k].tolist() for k in (0, 1)] == [[0, 1], [2, 3]]
    assert data.test_rows.tolist() == [4, 5, 6, 7]
    assert not data.test.rows.size


def test_the_rows_that_are_trained_on_are_no_test(tmp_path):
    """A copy of train in the place of test."""
    users = [{"a": ([[1.0, 2.0], [3.0, 4.0]], [0, 1]), "b": ([[5.0, 6.0]], [0])}]
    written(tmp_path / "data", users, users)
    with pytest.raises(UserError, match="are the very rows that are trained on"):
        samples(tmp_path)


PLAY = {"HAMLET": (["To be ", "o be, "], [",", "o"]), "ROMEO": (["But so", "ut sof"], ["f", "t"])}


def test_characters_have_leaf_s_numbers(tmp_path):
    root = written(tmp_path, [PLAY], [{"ROMEO": (["a é b}", "\n !\"&'"], ["}", "\n"])}])
    found = samples(root)
    assert len(LEAF) == len(set(LEAF)) == found.classes == 80
    texts = ["To be ", "o be, ", "But so", "ut sof", "a é b}", "\n !\"&'"]
    assert found.x.dtype == np.int32
    # é is none of them
    assert found.x.tolist() == [[80 if c == "é" else LEAF.index(c) for c in t] for t in texts]
    assert found.y.tolist() == [LEAF.index(c) for c in ",oft}\n"]
    assert found.owner.tolist() == [0, 0, 1, 1, 1, 1]
    assert "".join(found.names) == LEAF


def test_or_those_of_the_training_rows(tmp_path):
    root = written(tmp_path, [{"u": (["día", "íap"], ["p", "y"])}], [{"u": (["dza"], ["ñ"])}])
    found = samples(root, alphabet="train")
    assert found.names == ("a", "d", "p", "y", "í", "unknown")
    assert found.x.tolist() == [[1, 4, 0], [4, 0, 2], [1, 5, 0]]
    assert found.y.tolist() == [2, 3, 5]
    (root / "train" / "all_data_0_train_9.json").write_text(json.dumps(document(PLAY)))
    with pytest.raises(UserError, match=r"u'.*row 1 of x has 3 characters, and other rows have 6"):
        samples(root)
    with pytest.raises(UserError, match="user 'u': row 1 of y is 'ñ', which is none of LEAF's 80"):
        samples(written(tmp_path / "b", [PLAY], [{"u": (["dzaaaa"], ["ñ"])}]))


def test_tweets_are_word_ids(tmp_path):
    def tweet(text):
        return ["146", "Mon Apr 06", "NO_QUERY", "someone", text]

    root = written(tmp_path, [{"b": ([tweet("good film"), tweet("bad film")], [1, 0])}],
                   [{"b": ([tweet("film")], [1])}])  # fmt: skip
    found = samples(root, length=3, vocabulary=1000)
    (good, film, pad), (bad, again, _), (alone, *_) = found.x.tolist()
    assert film == again == alone > pad == 0
    assert len({good, bad, film}) == 3
    assert found.y.tolist() == [1, 0, 1]
    plain = written(tmp_path / "plain", [{"b": (["good film", "bad film"], ["yes", "no"])}],
                    [{"b": (["film"], ["no"])}])  # fmt: skip
    same = samples(plain, length=3, vocabulary=1000)
    np.testing.assert_array_equal(same.x, found.x)
    assert same.names == ("no", "yes")


def test_images_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (3, 4, 5, 3), np.uint8)
    folder = tmp_path / "data" / "raw" / "img_align_celeba"
    folder.mkdir(parents=True)
    for i, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(folder / f"{i}.png")
    # LEAF's labels are (attribute + 1) / 2
    root = written(tmp_path / "data", [{"7": (["2.png"], [1.0]), "10": (["0.png"], [0.0])}],
                   [{"7": (["1.png"], [1.0])}])  # fmt: skip
    found = samples(tmp_path)
    np.testing.assert_array_equal(found.x, pictures[[0, 2, 1]].transpose(0, 3, 1, 2))
    assert (found.y.tolist(), found.owner.tolist()) == ([0, 1, 1], [0, 1, 1])
    moved = folder.rename(tmp_path / "moved")
    assert samples(root, images=moved, side=2, grey="true").x.shape == (3, 1, 2, 2)
    for name, message in (("../x.png", "row 1 of x is '../x.png'"), ("3.png", "cannot read")):
        written(root, [{"7": ([name], [1.0])}], [])
        with pytest.raises(UserError, match=message):
            samples(root, images=moved)
    with pytest.raises(UserError, match="img_align_celeba: there is no such folder of images"):
        samples(root)


GOOD = {"a": ([[1.0, 2.0], [3.0, 4.0]], [0, 1])}


def broken(**changes):
    made = document(GOOD)
    made["user_data"]["a"] |= {k: v for k, v in changes.items() if k in "xy"}
    return made | {k: v for k, v in changes.items() if k not in "xy"}


TWICE = json.dumps(document(GOOD))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "no object with a list 'users'"),
        (broken(user_data=[]), "no object with a dict 'user_data'"),
        (broken(user_data={}), "user 'a' is in users, and not in user_data"),
        (broken(users=["a", "a"], num_samples=[2, 2]), "user 'a' is twice in users"),
        (broken(users=[["a"]]), "is in users, and not in user_data"),
        (broken(num_samples=[3]), "user 'a' has 2 rows, and num_samples says 3"),
        (broken(num_samples=[2, 2]), "num_samples is not one number for each"),
        (broken(user_data={"a": {"x": []}}), "user 'a' has no lists x and y"),
        (broken(y=[0]), "user 'a' has 2 rows of x, and 1 of y"),
        (broken(x=[[1, 2], [3]]), "user 'a': row 2 of x has 1 numbers, and row 1 has 2"),
        (broken(x=[[1, 2], "b"]), "user 'a': row 2 of x is no list"),
        (broken(x=[[1, 2], [3, None]]), "user 'a': row 2 of x holds something that is no number"),
        (broken(x=[[1, True], [3, 4]]), "user 'a': row 1 of x holds something"),
        (broken(x=[[1, float("nan")], [3, 4]]), "it holds NaN, which is no number"),
        (broken(x=[[1, 1e300], [3, 4]]), "NaN or infinite"),
        (broken(x=[[[1, 2]], [[3, 4]]]), "user 'a': row 1 of x is '[[1, 2]]', and neither"),
        (broken(x=[None, None]), "user 'a': row 1 of x is 'None', and neither"),
        (broken(x=[["1", "2"], ["3", "4"]]), "user 'a': row 1 of x is no text, and no list whose 5th"),
        (broken(y=[0, 0.5]), "user 'a': row 2 of y is '0.5'; a label is"),
        (broken(y=[0, [1]]), "user 'a': row 2 of y is '[1]'; a label is"),
        (broken(y=[0, "b"]), "user 'a': row 2 of y is a text among numbers"),
        (broken(x=["to", "be"], y=["b", 1]), "user 'a': row 2 of y is '1', and no character"),
        (broken(x=["to", 1], y=["b", "e"]), "user 'a': row 2 of x is no text, and other rows have 2"),
        (broken(x=["", ""], y=["b", "e"]), "user 'a': row 1 of x has 0 characters"),
        (broken(y=["a", "\ud800"]), r"user 'a' has a text that is no UTF-8: 'a, a, \ud800'"),
        (broken(x=["to", "\ud83d"], y=["b", "e"]), r"user 'a' has a text that is no UTF-8: 'to, \ud83d'"),
        (broken(x=[["1"] * 4 + ["\udc00"]] * 2), r"user 'a' has a text that is no UTF-8: '1, 1, 1, 1, \udc00"),
        (document({"\ud800": GOOD["a"]}), r"user '\ud800' has a text that is no UTF-8"),
        (TWICE.replace('"y": [0, 1]', '"y": [0, 1], "y": [1, 0]'), "key 'y' is twice in one object"),
        (TWICE.replace('{"a"', '{"a": {}, "a"'), "key 'a' is twice in one object"),
        (broken(y=[1, 1]), "all rows are of one class"),
        (document({"a": ([], [])}), "no rows are for training"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, message):
    root = written(tmp_path, [GOOD], [])
    single = "one class" in message
    test = {"b": ([[1.0, 2.0]], [1])} if single else {"b": GOOD["a"]}
    written(root, [], [test])
    text = content if isinstance(content, str) else json.dumps(content)
    (root / "train" / "all_data_0_train_9.json").write_text(text)
    with pytest.raises(UserError) as told:
        samples(root)
    assert message in str(told.value)
    # of what is said of all rows there is no file to name
    whole = single or "infinite" in message or "training" in message
    assert ("all_data_0_train_9.json" in str(told.value)) is not whole
    assert "\n" not in str(told.value)


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    def refused(path, message, **options):
        with pytest.raises(UserError, match=message):
            samples(path, **options)

    refused(tmp_path / "nowhere", "there is no '.*nowhere' here or under")
    refused(tmp_path, "there is no folder train in it, or in a folder data")
    (tmp_path / "train").mkdir()
    refused(tmp_path, "there is no folder test in it")
    (tmp_path / "test").mkdir()
    refused(tmp_path, r"train: there is no file \*.json in it")
    written(tmp_path, [GOOD, GOOD], [GOOD])
    refused(tmp_path, r"all_data_1_train_9.json, user 'a' is in all_data_0_train_9.json, too")
    written(tmp_path, [GOOD, {}], [GOOD])
    refused(tmp_path, r"dataset.shape: \[1, 3\] are not the 2 numbers", shape="[1, 3]")
    written(tmp_path, [], [{"b": ([[1.0]], [0])}])
    refused(tmp_path, "test_9.json, user 'b': row 1 of x is not 2 numbers, as of other users")
    (tmp_path / "test" / "all_data_0_test_9.json").unlink()
    (tmp_path / "test" / "x.json").mkdir()
    refused(tmp_path, "cannot read .*x.json: .*it is no file")


def test_a_run_of_leaf_s_network_on_its_plays(tmp_path):
    text = "O Romeo, Romeo! wherefore art thou Romeo? Deny thy father and refuse thy name. "
    rows = [(text[i : i + 10], text[i + 10]) for i in range(60)]

    def half(part):
        return {who: tuple(map(list, zip(*rows[a:b][part], strict=True)))
                for who, a, b in (("JULIET", 0, 30), ("NURSE", 30, 60))}  # fmt: skip

    root = written(tmp_path, [half(slice(0, 25))], [half(slice(25, 30))])
    given = ["data.partition=natural", "data.clients=2", "cohort=2", "rounds=2", "local.steps=20",
             "local.batch_size=25", "local.lr=2", f"data.dataset={{name: leaf, path: {root}}}"]  # fmt: skip

    def losses(model):
        experiment = Experiment(load(None, [*given, f"model={model}"]))
        return experiment.step()["train_loss"], experiment.step()["train_loss"], experiment

    first, second, experiment = losses("{name: char_lstm, width: 16, layers: 1}")
    assert second < first < np.log(80) + 0.1
    assert experiment.config.local.execution == "sequential"
    assert experiment.net.module.embedding.num_embeddings == 81
    with pytest.raises(UserError, match="the embedding has 20 rows, and token ids go up to 7"):
        losses("{name: char_lstm, vocabulary: 20}")
    with pytest.raises(UserError, match="'char_lstm' needs token ids, and the inputs are other"):
        Experiment(load(None, ["data.dataset=synthetic", "data.partition=natural", "data.clients=3",
                               "cohort=3", "model=char_lstm"]))  # fmt: skip
