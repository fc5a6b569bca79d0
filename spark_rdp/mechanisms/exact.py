"""Exponentials and logarithms with a known side of rounding, for thresholds that are checked in whole numbers."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

_DIGITS = 80


def exp_below(exponent: float) -> Fraction:
    """A rational number below e^exponent by a relative 10^-75 at most."""
    with localcontext() as context:
        context.prec = _DIGITS
        return Fraction(Decimal(exponent).exp()) * (1 - Fraction(1, 10 ** (_DIGITS - 4)))


def log_ratio(ratio: Fraction) -> float:
    """The double nearest to ln of a positive rational number: at most a double x wherever the ratio is at most e^x."""
    with localcontext() as context:
        context.prec = _DIGITS
        return float((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln())
