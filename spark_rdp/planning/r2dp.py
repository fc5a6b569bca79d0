"""R2DP as candidates of the additive planner: the certified optimum, the paper's ensemble, and single families."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from spark_rdp.mechanisms.expected_loss import Objective, lattice_objective
from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Degenerate, SecondFold
from spark_rdp.planning.certified import Certificate, certify
from spark_rdp.planning.ensemble import (
    FINAL_ATOMS,
    best_ensemble,
    best_family,
    calibrate,
    cannot_beat_laplace,
)
from spark_rdp.planning.families import FAMILIES
from spark_rdp.planning.problem import Builder, Candidate, Problem, fit

#: The one that `auto` tries: the others search for a second or so, to find what this one is certain of.
CERTIFIED = "r2dp"


def r2dp_candidates() -> dict[str, Builder]:
    """Builders for the planner's registry, by mechanism name.

    Each raises InvalidInput where it cannot serve a problem: epsilon above 100 for one coordinate, or an expected loss
    that is infinite under every law of the family. Answers are kept, so that asking again takes no time; each carries
    a certificate of how good any second fold could be.
    """
    families = {f"r2dp-{name}": _builder(name) for name in FAMILIES}
    return {CERTIFIED: _certified, "r2dp-ensemble": _builder("ensemble"), **families}


def _objective(problem: Problem) -> Objective:
    return lattice_objective(problem.metric, problem.unit)


@lru_cache(maxsize=256)
def _certificate(problem: Problem) -> Certificate:
    return certify(_objective(problem), problem.share, problem.steps, lattice=True)


@lru_cache(maxsize=256)
def _certified(problem: Problem) -> Candidate:
    certificate = _certificate(problem)
    found = _fit(problem, certificate.law)
    return _proved(problem, found, certificate, certificate.reason)


def _builder(name: str) -> Builder:
    @lru_cache(maxsize=64)
    def build(problem: Problem) -> Candidate:
        certificate = _certificate(problem)
        arguments = (_objective(problem), problem.share, problem.steps)
        if name == "ensemble":
            best = best_ensemble(*arguments, lattice=True).best
        else:
            best = best_family(name, *arguments, lattice=True)
        obstacle = cannot_beat_laplace(best.law, problem.share, problem.steps) if problem.metric.increasing else None
        reason = f"the best law of {name} was found by search ({best.family}, {best.evaluations} laws tried)"
        if obstacle:
            reason += f"; it cannot beat Laplace noise: {obstacle}"
        return _proved(problem, _fit(problem, best.law), certificate, reason)

    return build


def _fit(problem: Problem, law: SecondFold) -> Candidate:
    """The mechanism of a law, rescaled so that its loss is the budget when rounding and sampler are counted."""

    def make(share: float) -> R2DP:
        if isinstance(law, Degenerate):
            return R2DP(Degenerate(share / problem.steps), 1)
        factor = calibrate(*law.atoms(FINAL_ATOMS), share, problem.steps, lattice=True)
        return R2DP(law.scaled(factor), FINAL_ATOMS)

    return fit(problem, make)


def _proved(problem: Problem, found: Candidate, certificate: Certificate, reason: str) -> Candidate:
    bound = problem.reported(certificate.dual)
    gap = abs(found.value - bound) / abs(bound) if found.value != bound else 0.0
    proof = {
        "bound": bound,
        "relative_gap": gap,
        "reason": f"No second-fold law of this privacy does better (linear programme); {reason}.",
    }
    return replace(found, certificate=proof)
