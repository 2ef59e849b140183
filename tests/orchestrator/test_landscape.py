"""Landscapes and sharpness against networks whose Hessian is known, and the commands that draw
them.
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from algorithms.flat import ParamSpec
from orchestrator.analysis.landscape import Look, directions, grid, show_landscape, survey
from orchestrator.analysis.sharpness import hessian_product, largest_eigenvalue, rise
from orchestrator.cli.app import app
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.evaluation import mean_loss, summed_gradient
from tests.configs import small
from tests.running import run_into


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
    found = largest_eigenvalue(partial(hessian_product, *judged), len(w), seed=0)
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    "spectrum",
    [
        [-50.0, -49.0, 1.0, 2.0, 3.0],  # a saddle: the largest in magnitude is negative
        [-3.0, -1.0, 0.0, 2.0, 3.0],  # two of one magnitude, between which power iteration dithers
        [-5.0, -4.0, -3.0, -2.0, -1.0],  # a maximum
        [0.0, 0.0, 0.0, 0.0, 7.0],
    ],
)
def test_the_largest_eigenvalue_is_not_the_one_of_largest_magnitude(spectrum):
    values = torch.cat([torch.tensor(spectrum), torch.linspace(spectrum[0], spectrum[-2], 55)])
    turn = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(2)))[0]
    matrix = turn @ torch.diag(values) @ turn.T
    found = largest_eigenvalue(lambda v: matrix @ v, 60, seed=1)
    assert found == pytest.approx(spectrum[-1], rel=5e-3)


def test_a_model_of_one_number_has_a_curvature():
    assert largest_eigenvalue(lambda v: -3 * v, 1, seed=0) == -3.0


def test_a_flat_place_has_no_curvature():
    assert largest_eigenvalue(torch.zeros_like, 30, seed=0) == 0.0


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


def test_around_an_exported_model_as_around_its_run(folders, tmp_path):
    """Its table was printed, and the picture refused."""
    assert (
        CliRunner().invoke(app, ["export", str(folders[0]), str(tmp_path / "hub")]).exit_code == 0
    )
    look = Look(points=3, rows=50)
    for name, place in (("run", folders[0]), ("hub", tmp_path / "hub")):
        show_landscape([RunFolder(place)], tmp_path / f"{name}.png", look)
    run, hub = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("run", "hub"))
    assert hub["loss"].to_list() == run["loss"].to_list()


def test_runs_that_differ_in_their_seed_are_one_line(tmp_path, capsys):
    """The picture is of the mean over seeds, its data are each seed's."""
    made = []
    for seed in (0, 1):
        config = small(f"name=seed{seed}", "rounds=1", f"seed={seed}")
        folder, experiment = RunFolder(tmp_path / f"s{seed}"), Experiment(config)
        begin(experiment, folder, False)
        drive(experiment, folder)
        made.append(folder)
    look = Look(points=3, rows=50)
    show_landscape(made, tmp_path / "both.png", look)
    data = pd.read_csv(tmp_path / "both.csv")
    assert set(data["run"]) == {"s0 (seeds 0, 1)"}
    assert data.groupby("seed").size().to_dict() == {0: 3, 1: 3}
    # each seed's lines are those of the run alone
    for seed, folder in enumerate(made):
        alone = survey({"x": [folder]}, look)[1]
        mine = data[data["seed"] == seed]
        for column in ("x0", "loss", "largest_eigenvalue", "rise"):
            np.testing.assert_allclose(mine[column], alone[column])
    tops = data.groupby("seed")["largest_eigenvalue"].first()
    assert f"{tops.mean():.4g} ± {tops.std(ddof=1):.2g}" in capsys.readouterr().out
    with pytest.raises(UserError, match="is named twice"):
        show_landscape([made[0], made[0]], tmp_path / "x.png", look)


def test_models_that_are_looked_at_on_other_rows_are_told(tmp_path, capsys):
    """A partition alone made 7 % of a largest eigenvalue."""
    work = ["model=linear", "rounds=1", "data.clients=4", "cohort=2", "data.limit=200"]
    dealt = {
        "a": [], "b": ["algorithm=scaffold"],
        "c": ["data.partition={name: feddual, alpha: 0.01}"],
    }  # fmt: skip
    folders = [RunFolder(tmp_path / name) for name in dealt]
    for folder, own in zip(folders, dealt.values(), strict=True):
        run_into(folder, small(*work, *own))

    def told(folders, **kinds):
        look = Look(dims=1, points=2, rows=50, **kinds)
        show_landscape(folders, tmp_path / f"{len(list(tmp_path.iterdir()))}.png", look)
        return " ".join("".join(capsys.readouterr()).split())

    assert "other rows" not in told(folders[:2])
    said = told(folders)
    assert "losses of fedavg, feddual are on other rows than those of fedavg, dirichlet: " in said
    assert "other rows" not in told(folders, on="test")


def test_the_mean_over_seeds_is_drawn():
    data = pd.DataFrame(
        [("a", s, x, loss) for s, losses in enumerate([(3, 1, 3), (5, 3, 1)])
         for x, loss in zip((-1, 0, 1), losses, strict=True)],
        columns=["run", "seed", "x0", "loss"],
    )  # fmt: skip
    mean, *each = plots.landscape(data, 1).axes[0].lines
    assert mean.get_ydata().tolist() == [4, 2, 2]
    assert [line.get_ydata().tolist() for line in each] == [[3, 1, 3], [5, 3, 1]]
    plane = data.assign(x1=data["x0"].map({-1: 0, 0: 0, 1: 1})).assign(x0=0)
    plane = plane.groupby(["run", "seed", "x0", "x1"], as_index=False)["loss"].first()
    wide = pd.concat([plane, plane.assign(x0=1)])
    assert len(plots.landscape(wide, 2).axes) == 2


def test_bad_requests(folders, tmp_path):
    with pytest.raises(UserError, match="--dims is 1 or 2"):
        Look(dims=3)
    (tmp_path / "config.yaml").write_text(RunFolder(folders[0]).config().dump())
    with pytest.raises(UserError, match=r"holds no model\.safetensors"):
        show_landscape([RunFolder(tmp_path)], tmp_path / "x.png", Look(points=3, rows=10))
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
        "seed",
        "run",
        *(f"gradient_norm/{i}" for i in (0, 3, 6, 9, 11)),
    }


@pytest.mark.parametrize(
    ("other", "key"), [("model=mlp", "model"), ("data.dataset=femnist", "data.dataset")]
)
def test_losses_of_other_models_or_data_are_not_compared(tmp_path, other, key):
    """A linear model and an mlp were drawn on one axis."""
    made = [RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")]
    for folder, more in zip(made, ([], [other]), strict=True):
        folder.open(small(*more))
    with pytest.raises(UserError, match=rf"b: differs from .*a in {key}\.\w+"):
        show_landscape(made, tmp_path / "x.png", Look())


NETS = """
from torch import nn


class Attending(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.attention = nn.MultiheadAttention(28, 2, batch_first=True)
        self.head, self.unused = nn.Linear(28, classes), nn.Linear(3, 3)

    def forward(self, x):
        x = x.squeeze(1)
        return self.head(self.attention(x, x, x)[0].mean(1))
"""


def test_attention_and_layers_that_are_not_used_have_a_curvature(tmp_path):
    """torch's attention on CPUs has no second derivative, and unused layers were a fault."""
    (tmp_path / "nets.py").write_text(NETS)
    config = small("rounds=1", f"model={tmp_path}/nets.py:Attending")
    experiment, folder = Experiment(config), RunFolder.new(tmp_path / "run")
    begin(experiment, folder, False)
    drive(experiment, folder)
    show_landscape([folder], tmp_path / "l.png", Look(1, 3, 1.0, "train", 20, 0.05, 0))
    assert np.isfinite(pd.read_csv(tmp_path / "l.csv").select_dtypes("number")).all().all()


def test_a_run_without_a_common_model_has_no_landscape(tmp_path):
    experiment, folder = Experiment(small("algorithm=local")), RunFolder.new(tmp_path / "run")
    begin(experiment, folder, False)
    drive(experiment, folder)
    with pytest.raises(UserError, match="leaves every model with its client"):
        show_landscape([folder], tmp_path / "l.png", Look(1, 3, 1.0, "train", 20, 0.05, 0))
