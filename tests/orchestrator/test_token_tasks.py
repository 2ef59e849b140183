"""A class for each token: losses, accuracies and metrics by hand, both planes, and what is none."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fedorch
from algorithms.parts.losses import IGNORED, CrossEntropy, MeanSquares
from orchestrator.config import load
from orchestrator.data.federated import samples_sha256
from orchestrator.data.own.libraries import HuggingFace
from orchestrator.data.samples import Request
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.orchestrator.test_deep_models import checkpoint  # noqa: F401  a fixture
from tests.orchestrator.test_plugins import forget
from tests.running import finish, run_into

TAGGER = (
    "from torch import nn\n\n"
    "class Tags(nn.Module):\n"
    "    def __init__(self, classes, width=8):\n"
    "        super().__init__()\n"
    "        self.words, self.head = nn.Embedding(12, width), nn.Linear(width, classes)\n"
    "    def forward(self, x):\n"
    "        return self.head(self.words(x))\n"
)


@pytest.fixture
def arrays(tmp_path):
    """Rows of 3 to 5 words, whose class is the word's number by three; and a tagger."""
    rng = np.random.default_rng(0)
    x, y = np.zeros((90, 5), np.int64), np.full((90, 5), IGNORED)
    for row, tags in zip(x, y, strict=True):
        n = rng.integers(3, 6)
        row[:n] = rng.integers(1, 12, n)
        tags[:n] = row[:n] % 3
    np.savez(tmp_path / "a.npz", x=x, y=y, client=np.arange(90) % 5)
    (tmp_path / "nets.py").write_text(TAGGER)
    yield tmp_path
    forget()


def config(folder, *settings, **dataset):
    given = {"name": "npz", "path": str(folder / "a.npz"), "task": "tokens", **dataset}
    return load(None, [f"data.dataset={json.dumps(given)}", "data.partition=natural", "cohort=4",
                       "data.clients=5", f"model={folder}/nets.py:Tags", "rounds=3", "local.steps=4",
                       "local.lr=0.5", "local.batch_size=6", *settings])  # fmt: skip


def test_losses_and_accuracies_are_means_over_each_sample_s_tokens():
    rng = torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 3, 5, generator=rng)
    targets = torch.tensor([[0, 1, IGNORED], [4, IGNORED, IGNORED], [2, 2, 2], [1, 0, 3]])
    loss, weighted = CrossEntropy(label_smoothing=0.1), CrossEntropy(weight=(1, 2, 3, 4, 5))
    for i, tags in enumerate(targets):
        here = tags != IGNORED
        each = F.cross_entropy(outputs[i][here], tags[here], label_smoothing=0.1)
        assert loss.per_sample(outputs, targets)[i] == pytest.approx(float(each))
        factors = tags[here].float() + 1
        plain = F.cross_entropy(outputs[i][here], tags[here], reduction="none")
        assert weighted.per_sample(outputs, targets)[i] == pytest.approx(
            float((plain * factors).mean())
        )
        right = (outputs[i][here].argmax(1) == tags[here]).float().mean()
        assert loss.correct(outputs, targets)[i] == pytest.approx(float(right))
    torch.testing.assert_close(
        loss.mean(outputs, targets), loss.per_sample(outputs, targets).mean()
    )
    assert "is not of tokens" in MeanSquares().refuses(5, targets)


def test_a_run_by_hand(arrays, tmp_path):
    """Vectorised as sequential, on the data's rows; what is recorded is what the model makes."""
    chosen = config(arrays, "evaluation.metrics=f1_macro")
    run = finish(chosen)
    assert run.config.local.execution == "vectorized"
    alone = finish(config(arrays, "local.execution=sequential"))
    torch.testing.assert_close(alone.algorithm.w, run.algorithm.w, rtol=1e-3, atol=1e-5)
    record, samples = run.records[-1], run.data.samples
    assert record["test_accuracy"] > 0.6
    run.net.bind(run.algorithm.w, run.algorithm.buffers)
    rows = run.data.test_rows
    with torch.no_grad():
        made = run.net.module(torch.from_numpy(samples.x[rows]))
    tags = torch.from_numpy(samples.targets[rows])
    right = [
        (m.argmax(1) == t)[t != IGNORED].double().mean() for m, t in zip(made, tags, strict=True)
    ]
    assert record["test_accuracy"] == pytest.approx(float(torch.stack(right).mean()))
    told, true = made.argmax(2)[tags != IGNORED], tags[tags != IGNORED]
    f1 = [
        2 * ((told == c) & (true == c)).sum() / ((told == c).sum() + (true == c).sum())
        for c in range(3)
    ]
    assert record["test_f1_macro"] == pytest.approx(float(torch.stack(f1).mean()))
    folder = RunFolder(tmp_path / "run")
    run_into(folder, chosen)
    found = fedorch.open(folder.path).predict(samples.x[rows])
    assert np.array_equal(found, made.argmax(2).numpy())


def test_actors_give_the_same_bits(arrays, company):
    chosen = config(arrays, "resources.actors=2")
    assert finish(chosen, company.plane(chosen)).weights_sha256() == finish(chosen).weights_sha256()


def write(folder, rows):
    folder.mkdir()
    for split in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in (rows if split == "train" else rows[::-1]))
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def test_words_and_their_classes(tmp_path, monkeypatch, checkpoint):  # noqa: F811
    """Of a library's dataset: hashed words; or a tokenizer's, the first token of each word."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    rows = [
        {"words": ["the", "good", "film"], "tags": ["o", "praise", "o"]},
        {"words": ["verygood", "film"], "tags": ["praise", "o"]},
    ] * 4
    folder = write(tmp_path / "notes", rows)
    chosen = {"name": "huggingface", "path": str(folder), "label": "tags", "length": 6}
    samples = load(None, [f"data.dataset={json.dumps(chosen)}"]).data.dataset.load(Request(0, 2))
    assert samples.names == ("o", "praise")
    assert samples.targets[0].tolist() == [0, 1, 0, *[IGNORED] * 3]
    assert samples.y[:2].tolist() == [1, 1]
    assert (samples.x[0] > 0).tolist() == [True] * 3 + [False] * 3
    assert samples.x[0, 2] == samples.x[1, 1]  # film
    chosen["tokenizer"] = checkpoint
    cut = load(None, [f"data.dataset={json.dumps(chosen)}"]).data.dataset.load(Request(0, 2))
    assert cut.targets[0].tolist() == [IGNORED, 0, 1, 0, IGNORED, IGNORED]
    data = f"data.dataset={json.dumps(chosen)}"
    model = f"model={{name: transformer, checkpoint: '{checkpoint}', head: tokens}}"
    run = finish(load(None, [data, model, "data.clients=2", "cohort=2", "rounds=1", "local.steps=1",
                             "data.partition=iid"]))  # fmt: skip
    assert np.isfinite(run.records[-1]["test_loss"])
    with pytest.raises(UserError, match="transformer says one for each input"):
        Experiment(
            load(None, [data, model.replace("tokens", "sequence"), "data.clients=2", "cohort=2"])
        )


def test_words_of_a_list_stand_apart(tmp_path):
    """Of tokenizers whose words begin with the space before them they were one."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2TokenizerFast, PreTrainedTokenizerFast

    words = ByteLevelBPETokenizer()
    words.train_from_iterator(["the good film was a good film"] * 9, special_tokens=["<pad>"])
    words.save_model(str(tmp_path))
    files = {"vocab": str(tmp_path / "vocab.json"), "merges": str(tmp_path / "merges.txt")}
    tokenizer = GPT2TokenizerFast(**files, pad_token="<pad>")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    dataset = HuggingFace(path="unread", tokenizer=str(tmp_path / "gpt2"), length=4)
    x, targets = dataset.tagged([["good", "film"]], [[1, 2]])
    whole = tokenizer(" good film")["input_ids"]
    assert len(whole) == 2
    assert x[0, 0].tolist() == [*whole, 0, 0]
    assert targets[0].tolist() == [1, 2, IGNORED, IGNORED]
    glued = PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, pad_token="<pad>")
    glued.save_pretrained(tmp_path / "other")
    other = HuggingFace(path="unread", tokenizer=str(tmp_path / "other"), length=4)
    with pytest.raises(UserError, match="makes one word of a list of words"):
        other.tagged([["good", "film"]], [[1, 2]])


def test_what_is_wrong(arrays, tmp_path):
    def of(**changed):
        with np.load(arrays / "a.npz") as found:
            np.savez(arrays / "b.npz", **{**found, **changed})
        return config(arrays, path=str(arrays / "b.npz"))

    with np.load(arrays / "a.npz") as there:
        found = dict(there)
    y = found["y"].copy()
    y[3], none = IGNORED, y
    low = np.where(y == 1, -3, y)
    for changed, said in (
        (none, r"b\.npz: no token of row 4 has a class"),
        (low, r"b\.npz: row \d+ of y has the class -3; they are from 0 on, and -100 is none"),
        (y[:, 0], "classes of tokens are whole numbers"),
        (y + 20_000, "10000 at most"),
    ):
        with pytest.raises(UserError, match=said):
            Experiment(of(y=changed))
    apart = {"x_train": found["x"], "y_train": low * 0, "x_test": found["x"][:5], "y_test": y[:5]}
    np.savez(arrays / "d.npz", **apart)
    with pytest.raises(UserError, match=r"d\.npz: no token of row 4 has a class in y_test"):
        Experiment(config(arrays, path=str(arrays / "d.npz")))
    for settings, said in (
        (["loss=mse"], "mse is not of tokens"),
        (["model={name: fasttext, vocabulary: 20}"], "fasttext says one for each input"),
        (["attack={name: label_flip, fraction: 0.4}"], "flips classes"),
    ):
        with pytest.raises(UserError, match=said):
            Experiment(config(arrays, *settings))
    with np.load(arrays / "a.npz") as found:
        np.savez(arrays / "c.npz", x=found["x"], y=found["y"][:, 0], client=found["client"])
    with pytest.raises(UserError, match="lstm_tagger says one for each token"):
        Experiment(config(arrays, "model=lstm_tagger", task="auto", path=str(arrays / "c.npz")))
    rows = [{"words": ["a", "b"], "tags": ["o"]}] * 3
    given = {"name": "huggingface", "path": str(write(tmp_path / "short", rows)), "label": "tags"}
    with pytest.raises(UserError, match="row 1 has 2 words in 'words', and 1 classes in 'tags'"):
        load(None, [f"data.dataset={json.dumps(given)}"]).data.dataset.load(Request(0, 2))


def test_a_sum_counts_as_the_samples_do():
    rng = torch.Generator().manual_seed(1)
    outputs, targets = torch.randn(3, 4, 2, generator=rng), torch.tensor([[0, 1, -100, -100]] * 3)
    each = CrossEntropy().per_sample(outputs, targets)
    torch.testing.assert_close(CrossEntropy().sum(outputs, targets), each.sum())


def of_rows(tmp_path, monkeypatch, rows, features=None):
    import datasets

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    made = datasets.Dataset.from_list(rows, features=features)
    test = made.select(range(len(made) - 1, -1, -1))
    datasets.DatasetDict(train=made, test=test).save_to_disk(str(tmp_path / "saved"))
    given = {"name": "huggingface", "path": str(tmp_path / "saved"), "label": "tags", "length": 4}
    return load(None, [f"data.dataset={json.dumps(given)}"]).data.dataset.load(Request(0, 2))


def test_words_without_a_class_and_names_of_classes(tmp_path, monkeypatch):
    from datasets import ClassLabel, Features, Sequence, Value

    kind = Features({"words": Sequence(Value("string")),
                     "tags": Sequence(ClassLabel(names=["o", "person", "place"]))})  # fmt: skip
    rows = [{"words": ["Ann", "went"], "tags": [1, 0]}, {"words": ["ann"], "tags": [1]}]
    samples = of_rows(tmp_path / "named", monkeypatch, rows, kind)
    assert samples.names == ("o", "person", "place")
    assert samples.x[0, 0] == samples.x[1, 0] == samples.x[2, 0]
    assert samples.y.tolist() == [0, 1, 1, 0]  # person is commonest of all; the first has another
    rows = [{"words": ["a", "b"], "tags": [-100, 5]}, {"words": ["c"], "tags": [7]}]
    samples = of_rows(tmp_path / "bare", monkeypatch, rows)
    assert samples.names == ("5", "7")
    assert samples.targets[:2].tolist() == [[-100, 0, -100, -100], [1, -100, -100, -100]]
    for word, tag in ((["a", None], [1, 2]), (["a"], None), (None, [1])):
        lost = [{"words": word, "tags": tag}, {"words": ["b"], "tags": [1]}]
        with pytest.raises(UserError, match="row 1 is empty, or holds nothing"):
            of_rows(tmp_path / f"{word}{tag}", monkeypatch, lost)


def _saved(place, monkeypatch, train, test):
    """A dataset of two splits, each rows and the names of its classes."""
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value

    monkeypatch.setenv("HF_HOME", str(place / "hf"))

    def split(words, tags, names):
        kind = ClassLabel(names=names) if names else Value("int64")
        wanted = Sequence(kind) if isinstance(tags[0], list) else kind
        inputs = Sequence(Value("string")) if isinstance(tags[0], list) else Value("string")
        rows = {"words": words, "tags": tags}
        return Dataset.from_dict(rows, features=Features({"words": inputs, "tags": wanted}))

    DatasetDict(train=split(*train), test=split(*test)).save_to_disk(str(place / "saved"))
    given = {"name": "huggingface", "path": str(place / "saved"), "label": "tags", "length": 4}
    return load(None, [f"data.dataset={json.dumps(given)}"]).data.dataset


@pytest.mark.parametrize("listed", [True, False])
def test_a_split_s_own_names_say_what_its_numbers_mean(tmp_path, monkeypatch, listed):
    words, tags = (["a", "b"], ["c", "d"]), ([0, 1], [1, 0])
    if listed:
        words, tags = [[list(w)] for w in words], [[list(t)] for t in tags]
    train, test = (words[0], tags[0], ["noun", "verb"]), (words[1], tags[1], ["verb", "noun"])
    samples = _saved(tmp_path, monkeypatch, train, test).load(Request(0, 1))
    assert samples.names == ("noun", "verb")
    found = samples.targets[:, :2] if listed else samples.y
    assert np.asarray(found).ravel().tolist() == [0, 1, 0, 1]
    dataset = _saved(tmp_path / "half", monkeypatch, train, (words[1], tags[1], None))
    with pytest.raises(UserError, match="one split has names for its classes and another has none"):
        dataset.load(Request(0, 1))


def test_no_class_at_all_is_a_sentence(arrays):
    with np.load(arrays / "a.npz") as found:
        np.savez(arrays / "d.npz", x=found["x"], y=np.full_like(found["y"], IGNORED))
    with pytest.raises(UserError, match="no token of row 1 has a class in y"):
        Experiment(config(arrays, path=str(arrays / "d.npz")))


def test_metrics_are_asked_about_classes_alone(arrays):
    """And a digest tells how many there are."""
    (arrays / "m.py").write_text(
        "def least(outputs, targets):\n"
        "    assert targets.dim() == 1 and targets.min() >= 0 and len(outputs) == len(targets)\n"
        "    return float(targets.min())\n"
    )
    run = finish(config(arrays, f"evaluation.metrics={arrays}/m.py:least", "rounds=1"))
    assert run.records[-1]["test_least"] == 0.0
    samples = Experiment(config(arrays)).data.samples
    more = dataclasses.replace(samples, tags=4)
    assert samples_sha256(samples) != samples_sha256(more)
