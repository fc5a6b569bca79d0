"""How far a released degree distribution is from the true one: the R2DP paper's experiment, calibrated for vectors.

    python tests/degree_distances.py ../shared/data out/degrees

prints the Mallows distances of 50 releases for each graph, order, epsilon and mechanism, and draws them. The tests use
the functions with fewer runs.
"""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_rdp.degrees import DegreesVector, plan_degrees
from spark_rdp.mechanisms.base import Additive
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.spark.vectors import noised

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
MECHANISMS = ("laplace", "staircase", "r2dp", "auto")
GRAPHS = {"deezer": ("deezer_hu_edges.csv.gz", ",", 1, 120), "facebook": ("facebook_combined.txt.gz", " ", 0, 1100)}


def degrees_of(folder: Path, graph: str) -> np.ndarray:
    """The degrees of the nodes of a real graph."""
    name, separator, skipped, _ = GRAPHS[graph]
    with gzip.open(folder / name, "rt") as lines:
        edges = np.loadtxt(lines, delimiter=separator, skiprows=skipped, dtype=np.int64)
    return np.bincount(edges.ravel())


@dataclass(frozen=True)
class Moments:
    """Absolute moments of a noise."""

    noise: Additive

    def power(self, p: float) -> float:
        """E|X|^p, added up from the mass function."""
        k = np.arange(-self.noise.quantile(1 - 1e-15), self.noise.quantile(1 - 1e-15) + 1)
        return float(np.sum(np.exp(self.noise.log_mass(k)) * np.abs(k).astype(float) ** p))


@dataclass(frozen=True)
class Distances:
    """Mallows distances to the true distribution: expected of the noised numbers, and found in runs.

    Attributes:
        expected: Of the noised numbers, by the plan; exact for order 1 and for sequences, else a bound.
        raw: Of the noised numbers (the p-th root of the mean p-th power), before consistency.
        released: Of what is published.
        numbers: How many numbers were noised.
        noise: The moments of the noise of one of them.
    """

    form: str
    expected: float
    raw: float
    released: float
    numbers: int
    noise: Moments


def distances_of(
    degrees: np.ndarray,
    epsilon: float,
    p: float,
    mechanism: str,
    publish: str,
    max_degree: int,
    runs: int,
    protect: str = "edge",
) -> Distances:
    """Release a distribution so many times and look how far it is from the true one."""
    nodes = len(degrees)
    query = DegreesQuery(
        name="g",
        edges={"source": "a", "target": "b"},
        privacy={"epsilon": epsilon, "protect": protect},
        max_degree=max_degree,
        publish=publish,
        nodes=nodes,
        metric={"mallows": p},
        mechanism=mechanism,
    )
    plan = plan_degrees(query)
    vector, noise, highest = DegreesVector(plan, nodes), plan.noise.build(), plan.facts["highest"]
    true = np.sort(np.minimum(degrees, highest))[::-1]
    counts = np.bincount(true, minlength=highest + 1)[1:]
    exact = vector.measured(counts)
    raw, released = [], []
    for run in range(runs):
        numbers = noised(noise, np.random.default_rng(run).bytes(32), exact)
        # Of the numbers themselves: for "at least" and p = 1 the area between two distribution functions.
        raw.append(np.sum(np.abs(numbers - exact).astype(float) ** p) / nodes)
        table = vector.published(numbers, pa.table({}))
        if publish == "sequence":
            found = table.column("degree").to_numpy()
        else:
            shares = table.column("nodes" if publish == "histogram" else "share").to_numpy()
            found = np.repeat(
                np.arange(len(shares))[::-1],
                np.rint(shares * (1 if publish == "histogram" else nodes)).astype(int)[::-1],
            )
        released.append(np.mean(np.abs(found - true).astype(float) ** p))
    key = "sequence" if plan.facts["form"] == "sequence" else "histogram"
    root = 1 / p
    return Distances(
        plan.facts["form"],
        plan.facts["expected_distance"][key],
        float(np.mean(raw) ** root),
        float(np.mean(released) ** root),
        len(exact),
        Moments(noise),
    )


def main(folder: Path, target: Path, runs: int = 50) -> None:
    """Print the table and draw the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = iter(figure.subplots(2, 2).ravel())
    for graph, (_, _, _, max_degree) in GRAPHS.items():
        degrees = degrees_of(folder, graph)
        for p in (1, 2):
            axes = next(panels)
            print(f"\n{graph}, {len(degrees):,} nodes, Mallows distance of order {p}, {runs} runs")
            print(f"{'epsilon':>8} {'mechanism':>10} {'form':>9} {'expected':>10} {'noised':>10} {'released':>10}")
            for mechanism in MECHANISMS:
                found = [distances_of(degrees, e, p, mechanism, "distribution", max_degree, runs) for e in EPSILONS]
                for epsilon, one in zip(EPSILONS, found, strict=True):
                    figures = f"{one.expected:>10.5f} {one.raw:>10.5f} {one.released:>10.5f}"
                    print(f"{epsilon:>8} {mechanism:>10} {one.form:>9} {figures}")
                if mechanism == "auto":
                    axes.loglog(EPSILONS, [one.expected for one in found], "k:", label="expected, at most")
                axes.loglog(EPSILONS, [one.released for one in found], "o-", label=mechanism, alpha=0.6)
            axes.set(title=f"{graph}, order {p}", xlabel="epsilon", ylabel="Mallows distance")
            axes.legend(frameon=False)
    target.mkdir(parents=True, exist_ok=True)
    figure.savefig(target / "degree_distances.png", dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
