"""`plan_finite` and `spark-rdp plan --grid` / `--domain`: the figures, the JSON keys, the rivals, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rdp.cli import main
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.domains import Categories, Points
from spark_rdp.mechanisms.finite.grids import CHEBYSHEV, Grid, line
from spark_rdp.mechanisms.finite.planar_laplace import planar_laplace_utility
from spark_rdp.mechanisms.finite.remap import remap, remapped_utility
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.mechanisms.finite.unbounded import UnboundedRemap
from spark_rdp.planning.finite import plan_finite
from spark_rdp.planning.plan import Plan


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_map_where_the_mechanism_exists(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--epsilon", "1", "--grid", "100x100", "--cell", "1.0", "--metric", "exact-match")
    assert found["mechanism"] == "tight-constraints"
    assert found["exists"] is True
    assert round(found["threshold_epsilon"], 4) == 0.6654
    assert round(found["utility"], 5) == round(found["metric_value"], 5) == 0.15941
    assert round(found["min_diagonal"], 4) == 0.1035
    assert 0.999999 < found["verified_epsilon"] <= found["epsilon"] == 1
    assert abs(found["certificate"]["relative_gap"]) < 1e-6
    assert found["metric"] == "exact-match"
    # Figure 7 of the paper: the planar Laplace mechanism is the rival.
    assert 0.11 < found["alternatives"]["planar-laplace"] < found["alternatives"]["unbounded-remap"] < found["utility"]
    text = json.dumps(found)
    assert Plan.from_json(text).plan_id == found["plan_id"]


def test_a_map_where_it_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--epsilon", "0.4", "--grid", "60x60", "--cell", "1.0")
    assert found["exists"] is False
    assert round(found["min_diagonal"], 3) == -0.058
    assert found["mechanism"] == "unbounded-remap"
    assert found["alternatives"]["tight-constraints"] is None
    best = max(value for value in found["alternatives"].values() if value is not None)
    assert found["utility"] == best
    assert 0 < found["certificate"]["relative_gap"] < 0.1
    with pytest.raises(InvalidInput, match="does not exist"):
        plan_finite(0.4, Grid((60, 60), (1.0, 1.0)), mechanism="tight-constraints")


def test_domains_from_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("\n".join(f"name {k}" for k in range(15)), encoding="utf-8")
    found = answer(capsys, "--epsilon", "1", "--domain", str(file), "--distance", "discrete")
    assert found["utility"] == pytest.approx(math.e / (math.e + 14))  # k-ary randomised response
    assert found["threshold_epsilon"] == 0
    file.write_text("\n".join(str(k) for k in range(50)), encoding="utf-8")
    found = answer(capsys, "--epsilon", "0.3", "--domain", str(file), "--distance", "line")
    q = math.exp(-0.3)
    assert found["utility"] == pytest.approx((2 / (1 + q) + 48 * (1 - q) / (1 + q)) / 50)  # the truncated geometric


def test_the_table_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--epsilon", "1", "--grid", "31x31", "--cell", "1", "--distance", "chebyshev"]) == 0
    shown = capsys.readouterr().out
    assert "P(right cell)" in shown
    assert "does not exist here; it does from epsilon 1.136080 on" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "100x100"], "--cell"),
        (["--grid", "100xx", "--cell", "1"], "--grid"),
        (["--grid", "100x100", "--cell", "-1"], "cell"),
        (["--grid", "100x100", "--cell", "nan"], "cell"),
        (["--grid", "9999x9999", "--cell", "1"], "grid"),
        (["--grid", "1", "--cell", "1"], "grid"),
        (["--grid", "10x10", "--cell", "1", "--distance", "line"], "distance"),
        (["--grid", "10x10", "--cell", "1", "--domain", "x.csv"], "either"),
        (["--grid", "10x10", "--cell", "1", "--metric", "l2"], "--metric"),
        (["--grid", "10x10", "--cell", "1", "--gamma", "1"], "--gamma"),
        (["--grid", "10x10", "--cell", "1", "--mechanism", "laplace"], "mechanism"),
        (["--domain", "absent.csv", "--distance", "line"], "--domain"),
        (["--domain", "absent.csv"], "--distance"),
        (["--domain", "x.csv", "--distance", "line", "--cell", "1"], "--cell"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["plan", "--epsilon", "1", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", True, None, 5e-324, 1e308])
def test_impossible_budgets_are_refused(epsilon: Any) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be"):
        plan_finite(epsilon, line(5))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 30.0, 745.0, 1e4])
@pytest.mark.parametrize("domain", [line(12), Categories(5), Grid((6, 6), (1.0, 1.0)), Grid((300,), (1.0,), span=7)])
def test_every_budget_is_answered_on_the_safe_side(epsilon: float, domain: Any) -> None:
    plan = plan_finite(epsilon, domain)
    assert 0 < plan.verified_epsilon <= epsilon
    assert 1 / domain.size - 1e-12 <= plan.metric_value <= 1
    assert plan.certificate["relative_gap"] >= 0


def test_rivals_as_in_figures_6_and_7() -> None:
    """Sum query (150 people, 0 to 5 each), two counts (30 people), a map: tight constraints against what is usual."""
    for domain, epsilon, rival, least in (
        (Grid((751,), (1.0,), span=5), 1.0, "truncated-geometric", 1.4),
        (Grid((31, 31), (1.0, 1.0), CHEBYSHEV), 1.3, "truncated-geometric", 1.9),
        (Grid((50, 50), (1.0, 1.0)), 1.0, "planar-laplace", 1.35),
    ):
        plan = plan_finite(epsilon, domain)
        other = plan.alternatives[rival]
        assert other is not None
        assert plan.mechanism == "tight-constraints"
        assert plan.metric_value > least * other


def test_below_the_threshold_the_bound_is_near() -> None:
    for domain, epsilon, gap in (
        (Grid((751,), (1.0,), span=5), 0.9, 0.01),
        (Grid((31, 31), (1.0, 1.0), CHEBYSHEV), 1.1, 0.08),
        (Grid((50, 50), (1.0, 1.0)), 0.6, 0.06),
    ):
        assert 0 < plan_finite(epsilon, domain).certificate["relative_gap"] < gap


def test_planar_laplace_utility_is_that_of_a_simulation() -> None:
    """2,000,000 draws; the probability is right to 5 standard errors, false alarm 6e-7 with this seed's stead."""
    rng = np.random.default_rng(0)
    grid, epsilon, size = Grid((4, 5), (1.0, 0.7)), 0.8, 2_000_000
    angle, radius = rng.random(size) * 2 * np.pi, rng.gamma(2, 1 / epsilon, size)
    row, column = rng.integers(4, size=size), rng.integers(5, size=size)
    ends = (
        np.clip(np.rint(row + radius * np.sin(angle)), 0, 3),
        np.clip(np.rint(column + radius * np.cos(angle) / 0.7), 0, 4),
    )
    share = np.mean((ends[0] == row) & (ends[1] == column))
    found = planar_laplace_utility(grid, epsilon)
    assert found is not None
    assert abs(share - found) < 5 * math.sqrt(found / size)


def test_matrix_diagonal_products_and_inverse_agree() -> None:
    rng = np.random.default_rng(4)
    for mechanism in (
        tight(Grid((12, 9), (1.0, 0.7)), 2.0),
        UnboundedRemap(Grid((12, 9), (1.0, 0.7)), 0.4),
        UnboundedRemap(Grid((40,), (1.0,), span=5), 0.6),
        UnboundedRemap(Grid((2, 7), (1.0, 1.0), CHEBYSHEV), 0.3),
        tight(Categories(4, 3), 0.7),
        tight(line(30), 0.2),
        tight(Points(((0.0, 0.0), (1.0, 3.0), (-2.0, 0.5))), 1.0),
    ):
        matrix, x = mechanism.matrix(), rng.random(mechanism.domain.size)
        assert mechanism.diagonal() == pytest.approx(np.diag(matrix), rel=1e-12)
        assert mechanism.utility() == pytest.approx(np.diag(matrix).mean(), rel=1e-12)
        assert np.abs(mechanism.forward(x) - matrix.T @ x).max() < 1e-12
        assert np.abs(mechanism.backward(x) - matrix @ x).max() < 1e-12
        assert np.abs(mechanism.invert(mechanism.forward(x)) - x).max() < 1e-6


def test_the_unbounded_mechanism_is_the_endless_grid_folded_back() -> None:
    """Against sums over a grid much larger than the noise."""
    grid, epsilon, far = Grid((4, 5), (1.0, 0.8)), 0.9, 60
    mechanism = UnboundedRemap(grid, epsilon)
    rows, columns = np.meshgrid(np.arange(-far, far + 4), np.arange(-far, far + 5), indexing="ij")
    ends = np.clip(rows, 0, 3) * 5 + np.clip(columns, 0, 4)
    for cell in (0, 7, 19):
        mass = np.exp(-epsilon * np.hypot(rows - cell // 5, 0.8 * (columns - cell % 5)))
        expected = np.bincount(ends.ravel(), mass.ravel(), 20)
        assert mechanism.row(cell) == pytest.approx(expected / expected.sum(), rel=1e-12)


def test_a_remap_is_the_best_guess_and_keeps_what_is_flat() -> None:
    mechanism = tight(Grid((9, 9), (1.0, 1.0)), 0.9)
    assert remap(mechanism, np.ones(81)).tolist() == list(range(81))
    rng = np.random.default_rng(8)
    prior = rng.dirichlet(np.full(81, 0.2))
    joint = prior[:, None] * mechanism.matrix()
    guess = remap(mechanism, prior)
    assert joint[guess, np.arange(81)] == pytest.approx(joint.max(axis=0))
    assert remapped_utility(mechanism, prior) == pytest.approx(joint.max(axis=0).sum())
    assert remapped_utility(mechanism, prior) > 1.1 * mechanism.utility(prior)
    for bad in (np.ones(80), np.full(81, math.nan), -np.ones(81), np.zeros(81)):
        with pytest.raises(InvalidInput, match="prior must"):
            remap(mechanism, bad)


def test_a_prior_is_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "prior.csv"
    file.write_text("0.3\n0.27\n0.23\n0.2\n", encoding="utf-8")
    names = tmp_path / "names.csv"
    names.write_text("a\nb\nc\nd\n", encoding="utf-8")
    asked = ["--domain", str(names), "--distance", "discrete", "--prior", str(file), "--epsilon"]
    assert answer(capsys, *asked, "0.5")["prior"]["regular"] is False
    judged = answer(capsys, *asked, "0.8")["prior"]
    assert judged["regular"] is True
    # Optimal for every regular prior: Theorem 2 is reached.
    assert judged["utility"] == pytest.approx(judged["utility_bound"], rel=1e-6)
    assert judged["utility"] == pytest.approx(judged["remapped_utility"], rel=1e-9)
