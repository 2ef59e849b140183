"""Compressors against their definitions, and the payloads that they claim."""

import numpy as np
import pytest
import torch

from algorithms.draws import torch_generator
from algorithms.part import variants
from algorithms.parts.compressors import Compressor

D = 1000


def rows(c=2, d=D, seed=0):
    return torch.randn(c, d, generator=torch.Generator().manual_seed(seed))


def compress(name, x, seed=0, **options):
    return variants(Compressor)[name](**options).compress(
        x, [torch_generator(seed, "c", k) for k in range(len(x))]
    )


def test_top_k_keeps_the_largest():
    x = rows()
    out = compress("top_k", x, fraction=0.05)
    for row, sent in zip(x, out, strict=True):
        best = sorted(range(D), key=lambda j: -abs(float(row[j])))[:50]
        assert sorted(sent.nonzero()[:, 0].tolist()) == sorted(best)
        assert torch.equal(sent[best], row[best])


def test_random_k_is_unbiased_when_scaled():
    x = rows(1)
    out = compress("random_k", x, fraction=0.1)
    assert int((out != 0).sum()) == 100
    kept = out != 0
    assert torch.equal(out[kept], x[kept])
    mean = torch.stack(
        [compress("random_k", x, seed=s, fraction=0.1, scale=True)[0] for s in range(2000)]
    ).mean(0)
    assert float((mean - x[0]).abs().max()) < 6 * 3 * float(x.abs().max()) / 2000**0.5


@pytest.mark.parametrize("bucket", [None, 128])
def test_qsgd_is_unbiased_and_within_a_level(bucket):
    x = rows(1, 300)
    once = compress("qsgd", x, levels=15, bucket=bucket)
    pieces = x.split(bucket or 300, 1)
    norms = torch.cat([torch.full_like(p, float(p.norm())) for p in pieces], 1)
    assert ((once - x).abs() <= norms / 15 + 1e-6).all()
    grid = once.abs() / norms * 15
    torch.testing.assert_close(grid, grid.round(), atol=1e-4, rtol=0)
    mean = torch.stack(
        [compress("qsgd", x, seed=s, levels=15, bucket=bucket)[0] for s in range(1500)]
    ).mean(0)
    assert float((mean - x[0]).abs().max()) < 5 * float(norms.max()) / 15 / 1500**0.5
    assert not compress("qsgd", torch.zeros(1, 5)).any()


@pytest.mark.parametrize("bucket", [1, 7, 10**9])
def test_qsgd_s_buckets_are_vectors_of_their_own(bucket):
    """Each as if it were alone with its part of the dither; one of a single entry loses nothing."""
    x = rows(2, 100)
    x[0, 3] = 1e25  # whose square is more than float32 holds
    once = compress("qsgd", x, levels=3, bucket=bucket)
    dither = torch.rand(100, generator=torch_generator(0, "c", 0))
    each = min(bucket, 100)
    for v, u, q in zip(x[0].split(each), dither.split(each), once[0].split(each), strict=True):
        norm = v.double().norm()
        expected = v.sign() * norm * (v.double().abs() / norm * 3 + u).floor().clamp_max(3) / 3
        torch.testing.assert_close(q.double(), expected, rtol=1e-5, atol=1e-30)
    if bucket == 1:
        torch.testing.assert_close(once, x, rtol=1e-6, atol=0)


def test_rounding():
    x = torch.tensor([[1.0 + 2**-9, 1e-30, 3e38, 70000.0]])
    assert compress("bf16", x).tolist() == [
        [1.0, pytest.approx(1e-30, rel=0.01), pytest.approx(3e38, rel=0.01), 70144.0]
    ]
    assert compress("fp16", x)[0, 3] == torch.inf


@pytest.mark.parametrize(
    ("name", "options", "nbytes"),
    [
        ("none", {}, 4 * D),
        ("top_k", {"fraction": 0.1}, 8 * 100),
        ("random_k", {"fraction": 0.1}, 4 * 100),
        ("qsgd", {"levels": 255, "bucket": None}, (1 + 8) * D / 8 + 4),
        ("qsgd", {"levels": 1, "bucket": 300}, 2 * D / 8 + 4 * 4),
        ("bf16", {}, 2 * D),
        ("fp16", {}, 2 * D),
    ],
)
def test_bytes(name, options, nbytes):
    assert variants(Compressor)[name](**options).nbytes(D) == nbytes


@pytest.mark.parametrize("name", sorted(variants(Compressor)))
def test_rows_do_not_depend_on_each_other(name):
    x = rows(3)
    whole = compress(name, x)
    alone = variants(Compressor)[name]().compress(x[1:2], [torch_generator(0, "c", 1)])
    assert torch.equal(whole[1:2], alone)
    assert np.isfinite(whole.numpy()).all()


@pytest.mark.parametrize("name", ["top_k", "random_k", "qsgd", "bf16"])
def test_what_contracts_may_be_fed_back(name):
    """Errors that go on to the next message stay bounded, however large the model."""
    chosen = variants(Compressor)[name]()
    assert chosen.contracts
    left, x = torch.zeros(1, 100_000), rows(1, 100_000)
    lengths = []
    for t in range(40):
        sent = chosen.compress(left + x, [torch_generator(t, "c", 0)])
        left = left + x - sent
        lengths.append(float(left.norm() / x.norm()))
    assert lengths[-1] < 1.5 * lengths[19]


def test_what_does_not_contract_says_so():
    known = variants(Compressor)
    assert not known["random_k"](scale=True).contracts
    assert not known["qsgd"](bucket=None).contracts
    assert not known["qsgd"](levels=1).contracts
