"""The experiment of the Podium paper: 10,000 inputs from Beta(2, 2), three mechanisms, as numbers and as a picture.

Inputs and keys are fixed, so the outcome is too. With fresh keys the six comparisons of a variance within 4 standard
errors would fail by chance about once in 2,600 runs.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.local import LocalProblem, candidates
from spark_rdp.planning.local_metrics import LocalMetric
from spark_rdp.reporting.local_noise import beta_inputs, trial
from spark_rdp.reporting.local_plots import trial_plot

ROWS = 10_000
INPUTS = np.random.default_rng(42).beta(2, 2, ROWS)
#: The step of the paper's EXACT choice, from the table of the design.
STEP = {1.0: 0.39532733, 5.0: 0.13106362}
EPSILONS = sorted(STEP)


def variance(name: str, epsilon: float) -> float:
    """The variance of the noise averaged over the inputs, from the formulas of the papers for real numbers."""
    if name == "laplace":
        return 2 / epsilon**2
    if name == "staircase":  # Geng and Viswanath 2016, with the step that is best for the variance
        b = math.exp(-epsilon)
        return (2 ** (-2 / 3) * b ** (2 / 3) * (1 + b) ** (2 / 3) + b) / (1 - b) ** 2
    gain, share = math.expm1(epsilon), STEP[epsilon]
    length = (1 + gain * share) / (gain * share * (1 - share))
    low, step, x = 1 / (length * (1 + gain * share)), share * length, INPUTS - 0.5
    centre = x / (low * gain * step)
    return float((low * (length**3 / 12 + gain * (step * centre**2 + step**3 / 12)) - x**2).mean())


@pytest.fixture(scope="module", params=EPSILONS)
def experiment(request: pytest.FixtureRequest) -> tuple[float, dict[str, np.ndarray]]:
    """Epsilon, and the published values of each mechanism."""
    problem = LocalProblem(request.param, 0.0, 1.0, LocalMetric.of("center-variance", 0.0, 1.0, None))
    mechanisms: dict[str, Local] = {name: candidates()[name](problem) for name in ("podium", "staircase", "laplace")}
    return request.param, {name: trial(mechanism, INPUTS) for name, mechanism in mechanisms.items()}


def test_variances_are_those_of_the_papers(experiment: tuple[float, dict[str, np.ndarray]]) -> None:
    """Within 4 standard errors: 5 % (Podium), 9 % and 10 % of the variance at epsilon 1; 23 %, 19 % and 10 % at 5.

    So few inputs show no more; `test_local_samplers` draws a hundred times as many.
    """
    epsilon, noised = experiment
    squares = {name: (values - INPUTS) ** 2 for name, values in noised.items()}
    for name, each in squares.items():
        assert abs(each.mean() - variance(name, epsilon)) <= 4 * each.std() / math.sqrt(ROWS)
        noise = noised[name] - INPUTS
        assert abs(noise.mean()) <= 4 * noise.std() / math.sqrt(ROWS)
    rivals = squares["staircase"].mean(), squares["laplace"].mean()
    assert squares["podium"].mean() < 0.6 * min(rivals)  # what the paper claims
    assert rivals[0] < rivals[1]


def test_a_wrong_scale_is_seen(experiment: tuple[float, dict[str, np.ndarray]]) -> None:
    """What the test above rejects: noise 7 % too narrow or too wide at epsilon 1, 20 % at epsilon 5."""
    epsilon, noised = experiment
    for name, values in noised.items():
        for factor in (0.93, 1.07) if epsilon == 1 else (0.8, 1.2):
            squares = (factor * (values - INPUTS)) ** 2
            assert abs(squares.mean() - variance(name, epsilon)) > 4 * squares.std() / math.sqrt(ROWS)


def test_the_picture_shows_the_values(experiment: tuple[float, dict[str, np.ndarray]]) -> None:
    """The bars of each panel are as high as the counts of its values."""
    _, noised = experiment
    svg = trial_plot(INPUTS, noised, "x", "beta")
    words = " ".join(
        "".join(text.itertext()) for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")
    )
    bars = panels(svg)
    assert len(bars) == 4
    for (name, values), heights in zip({"true values": INPUTS, **noised}.items(), bars, strict=True):
        assert name in words
        first = noised["podium"]
        low, high = min(np.quantile(first, 0.001), INPUTS.min()), max(np.quantile(first, 0.999), INPUTS.max())
        room = 0.02 * (high - low)
        counts = np.histogram(values, np.linspace(low - room, high + room, len(heights) + 1))[0]
        assert np.allclose(heights / heights.max(), counts / counts.max(), atol=2e-3)


def panels(svg: str) -> list[np.ndarray]:
    """The heights of the bars of each filled outline."""
    found = []
    for path in ElementTree.fromstring(svg).iter():
        style = path.get("style", "")
        if path.tag.endswith("path") and "opacity: 0.75" in style and "fill: none" not in style:
            points = np.array(re.findall(r"[ML] (\S+) (\S+)", path.get("d", "")), dtype=float)
            tops = [y for (x, y), (after, same) in pairwise(points) if after > x and y == same]
            found.append(points[:, 1].max() - np.array(tops))
    return found


def test_the_page_tries_evenly_spread_values_of_the_same_distribution() -> None:
    inputs = beta_inputs(-5.0, 15.0)
    assert len(inputs) == ROWS
    assert abs(inputs.mean() - 5) < 1e-9
    assert abs(inputs.var() - 20**2 / 20) < 1e-3 * 20
