"""Landscapes and sharpness against networks whose Hessian is known, and the commands that draw
them.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from algorithms.flat import ParamSpec
from orchestrator.analysis.landscape import directions, grid
from orchestrator.analysis.sharpness import hessian_product, largest_eigenvalue, rise
from orchestrator.cli.app import app
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.evaluation import mean_loss, summed_gradient
from tests.configs import small


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two finished runs of LeNet with layer norms recorded."""
    made = []
    for alpha in (0.1, 100.0):
        config = small(
            f"name=alpha{alpha:g}", "model=feddual_lenet", "rounds=2", "evaluation.gradient_norms=true",
            f"data.partition={{name: pfnm, alpha: {alpha}}}",
        )  # fmt: skip
        experiment, folder = (
            Experiment(config),
            RunFolder(tmp_path_factory.mktemp("runs") / f"alpha{alpha:g}"),
        )
        begin(experiment, folder, False)
        drive(experiment, folder)
        made.append(folder.path)
    return made


@pytest.fixture(scope="module")
def judged():
    """A linear model whose Hessian is small enough to be written out."""
    experiment = Experiment(small("model=linear", "data.limit=60"))
    return (
        experiment.world,
        experiment.net,
        experiment.net.initial,
        experiment.net.initial_buffers,
        np.arange(40),
    )


def test_hessian_products_are_finite_differences_of_gradients(judged):
    world, net, w, buffers, rows = judged
    v = torch.randn(w.shape, generator=torch.Generator().manual_seed(1))
    step = 1e-3
    ends = [
        summed_gradient(world, net, w + s * v, buffers, rows) / len(rows) for s in (step, -step)
    ]
    torch.testing.assert_close(
        hessian_product(*judged, v), (ends[0] - ends[1]) / (2 * step), rtol=2e-2, atol=2e-3
    )


def test_the_largest_eigenvalue_is_that_of_the_written_out_hessian(judged):
    """Softmax regression: the Hessian is mean_i (diag(p) − p pᵀ) ⊗ x xᵀ, here through its [n·C,
    n·C] Gram matrix.
    """
    world, net, w, buffers, rows = judged
    x, _ = world.batch(rows)
    net.bind(w, buffers)
    p = torch.softmax(net.module(x), 1).double().detach()
    inputs = torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1).double()
    roots = [torch.diag(q.sqrt()) - torch.outer(q, q.sqrt()) for q in p]  # B Bᵀ = diag(p) − p pᵀ
    factors = (
        torch.cat([torch.kron(r, i[:, None]) for r, i in zip(roots, inputs, strict=True)], 1)
        / len(rows) ** 0.5
    )
    expected = float(torch.linalg.eigvalsh(factors.T @ factors).max())
    assert largest_eigenvalue(*judged, seed=0) == pytest.approx(expected, rel=0.02)


def test_the_rise_is_the_gradients_length_for_a_small_radius(judged):
    world, net, w, buffers, rows = judged
    length = float(summed_gradient(world, net, w, buffers, rows).norm()) / len(rows)
    assert rise(*judged, rho=1e-3) == pytest.approx(1e-3 * length, rel=0.05)
    assert rise(*judged, rho=0.5) > 0.4 * length


def test_directions_are_filter_normalised():
    spec = ParamSpec.of(
        {
            "c.weight": torch.zeros(4, 3, 5, 5),
            "c.bias": torch.zeros(4),
            "d.weight": torch.zeros(2, 6),
        }
    )
    w = torch.randn(spec.size, generator=torch.Generator().manual_seed(0))
    both = directions(spec, w, 2, seed=3)
    own = spec.views(w)
    for direction in both:
        view = spec.views(direction)
        torch.testing.assert_close(
            view["c.weight"].flatten(1).norm(dim=1), own["c.weight"].flatten(1).norm(dim=1)
        )
        torch.testing.assert_close(view["d.weight"].norm(dim=1), own["d.weight"].norm(dim=1))
        assert not view["c.bias"].any()
    assert not torch.equal(both[0], both[1])
    assert torch.equal(directions(spec, w, 1, seed=3)[0], both[0])


def test_a_grid():
    places = grid(2, 3, 0.5)
    assert places.shape == (9, 2)
    assert {tuple(p) for p in places.tolist()} >= {(-0.5, -0.5), (0.0, 0.0), (0.5, -0.5)}


@pytest.mark.parametrize("dims", [1, 2])
def test_the_command_draws_the_runs_side_by_side(folders, tmp_path, dims):
    plot = tmp_path / "around.png"
    result = CliRunner().invoke(
        app,
        [
            "landscape",
            *map(str, folders),
            "--dims",
            str(dims),
            "--points",
            "3",
            "--rows",
            "50",
            "--plot",
            str(plot),
        ],
    )
    assert result.exit_code == 0, result.output
    data = pd.read_csv(plot.with_suffix(".csv"))
    assert plot.stat().st_size > 5000
    assert data.groupby("run").size().tolist() == [3**dims] * 2
    centre = data[(data[[f"x{i}" for i in range(dims)]] == 0).all(axis=1)]
    assert len(centre) == 2
    experiment = Experiment(RunFolder(folders[0]).config())
    from safetensors.torch import load_file

    w = experiment.net.spec.flatten(load_file(folders[0] / "model.safetensors"))
    everything = np.unique(experiment.data.train.rows)
    whole = mean_loss(
        experiment.world, experiment.net, w, experiment.net.initial_buffers, everything
    )
    assert float(centre["loss"].iloc[0]) == pytest.approx(whole, rel=0.5)
    assert data["loss"].max() > centre["loss"].min()


def test_bad_requests(folders, tmp_path):
    from orchestrator.analysis.landscape import show_landscape
    from orchestrator.errors import UserError

    options = {
        "dims": 1,
        "points": 3,
        "radius": 1.0,
        "on": "train",
        "rows": 10,
        "rho": 0.05,
        "seed": 0,
    }
    with pytest.raises(UserError, match="--dims is 1 or 2"):
        show_landscape([RunFolder(folders[0])], tmp_path / "x.png", **{**options, "dims": 3})
    (tmp_path / "config.yaml").write_text(RunFolder(folders[0]).config().dump())
    with pytest.raises(UserError, match=r"holds no model\.safetensors"):
        show_landscape([RunFolder(tmp_path)], tmp_path / "x.png", **options)
    assert not (tmp_path / "x.png").exists()


def test_compare_counts_rounds_to_a_target_and_draws_layers(folders, tmp_path):
    plot = tmp_path / "norms.png"
    first = RunFolder(folders[0]).rounds()["test_accuracy"].iloc[0]
    command = ["compare", *map(str, folders), "--target", str(first), "--plot", str(plot)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    (line,) = [row for row in result.output.splitlines() if "rounds to" in row]
    assert line.split("│")[2].strip() == "1"
    assert (
        CliRunner()
        .invoke(app, [*command, "--metric", "gradient_norm/", "--target", "1e9"])
        .exit_code
        == 1
    )
    assert (
        CliRunner()
        .invoke(app, [*command[:3], "--metric", "gradient_norm/", "--plot", str(plot)])
        .exit_code
        == 0
    )
    assert set(pd.read_csv(plot.with_suffix(".csv"))) == {
        "round",
        "run",
        *(f"gradient_norm/{i}" for i in (0, 3, 6, 9, 11)),
    }
