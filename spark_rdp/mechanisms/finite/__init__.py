"""Finite domains with a metric: the tight-constraints mechanism, its rivals, their bounds and their inverses.

Cells of a domain are numbered 0, 1, ...; epsilon is per unit of distance.
"""
