"""FedAA's Algorithm 1 against its box, line by line."""

import numpy as np
import pytest
import torch

from algorithms.flat import ParamSpec
from algorithms.parts.selection import columns, layers, nearest, row_sums
from orchestrator.models.images import FedAAResNet, Linear, Mlp
from orchestrator.models.net import Net


def test_against_the_box():
    x = torch.randn(9, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    c = np.zeros((9, 9))
    for i in range(9):
        for j in range(9):
            c[i, j] = np.sqrt(((x[i] - x[j]) ** 2).sum())
    sums = c.sum(1)
    found = nearest(torch.from_numpy(x), 4)
    assert found.rows.tolist() == np.argsort(sums)[:4].tolist()
    np.testing.assert_allclose(found.sums, np.sort(sums)[:4], rtol=1e-12)


def test_attackers_are_left_out_and_what_is_not_finite_comes_last():
    benign = torch.randn(6, 10, generator=torch.Generator().manual_seed(1)) * 0.1
    x = torch.cat(
        [
            torch.full((1, 10), torch.nan),
            benign,
            torch.full((2, 10), 100.0),
            torch.full((1, 10), torch.inf),
        ]
    )
    assert sorted(nearest(x, 6).rows.tolist()) == [1, 2, 3, 4, 5, 6]
    order = nearest(x, 10)
    assert set(order.rows[6:8].tolist()) == {7, 8}
    assert set(order.rows[8:].tolist()) == {0, 9}
    assert np.isinf(order.sums[8:]).all()
    sums = row_sums(x, x.isfinite().all(1))
    torch.testing.assert_close(sums[1:9], row_sums(x[1:9], torch.ones(8, dtype=torch.bool)))


def test_so_does_what_is_not_finite_where_nobody_looks():
    """It was selected, and was in the model."""
    x = torch.randn(5, 10, generator=torch.Generator().manual_seed(1))
    x[2, 9] = torch.nan
    looked_at = x[:, :4]
    others = [0, 1, 3, 4]
    found = nearest(looked_at, 5, x.isfinite().all(1))
    assert found.rows[-1] == 2
    assert np.isinf(found.sums[-1])
    among = nearest(looked_at[others], 4)
    assert found.rows[:4].tolist() == [others[i] for i in among.rows]
    assert found.sums[:4] == pytest.approx(among.sums)


def test_ties_go_to_the_lower_row():
    assert nearest(torch.ones(5, 3), 3).rows.tolist() == [0, 1, 2]


def spec(model, shape=(1, 28, 28)):
    return Net.of(model, shape, 10, 0).spec


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Mlp(), ["1.weight", "1.bias"]),
        (Mlp(hidden=(100, 50)), ["3.weight", "3.bias"]),
        (Linear(), ["1.weight", "1.bias"]),
        (FedAAResNet(), ["7.conv2.weight", "7.conv2.bias"]),
    ],
)
def test_last_hidden_layer(model, names):
    s = spec(model)
    wanted = [e for e in s.segments if e.name in names]
    assert len(wanted) == 2
    pieces = layers(s, "last_hidden")
    assert sum(p.stop - p.start for p in pieces) == sum(e.stop - e.start for e in wanted)
    assert min(p.start for p in pieces) == wanted[0].start


def test_named_layers_and_columns():
    s = ParamSpec.of({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)})
    rows = torch.arange(12.0).view(2, 6)
    assert columns(rows, layers(s, "^[ac]$")).tolist() == [[0, 1, 5], [6, 7, 11]]
    assert torch.equal(columns(rows, layers(s, "all")), rows)
    with pytest.raises(ValueError, match="no tensor matches"):
        layers(s, "zzz")
