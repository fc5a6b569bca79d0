"""Finite domains from CSV files: points, names, or a matrix of distances."""

from __future__ import annotations

import csv
from pathlib import Path

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points

#: Distances a file can be read with.
DISTANCES = ("euclidean", "discrete", "line", "hamming", "l1", "chebyshev", "matrix")
_REMEDY = "Write one point a line, its coordinates separated by commas."


def read_domain(path: str, distance: str) -> Domain:
    """The cells of a file, in its order.

    Args:
        path: A CSV file with one point a line. A first line of names above numbers is passed over.
        distance: ``euclidean``, ``l1``, ``chebyshev``: coordinates are numbers. ``line``: one number a line.
            ``discrete``: all lines are as far apart. ``hamming``: how many fields differ. ``matrix``: a line holds the
            distances of its point to all points.

    Raises:
        InvalidInput: The file cannot be read, or is no such domain; the line is named, its content is not.
    """
    if distance not in DISTANCES:
        raise invalid("--distance", f"one of {', '.join(DISTANCES)}", distance, "See spark-rdp plan --help.")
    rows = _rows(path)
    if distance == "discrete":
        if len({tuple(row) for row in rows}) != len(rows):
            raise InvalidInput("domain must not hold a line twice. Remove the second one.")
        return Categories(len(rows))
    if distance == "hamming":
        return Points(_codes(rows), "hamming")
    points = _numbers(rows)
    if distance == "line":
        if len(points[0]) != 1:
            raise InvalidInput("domain must have one number a line with --distance line. Use euclidean for several.")
        return Points(points, "l1")
    return Points(points, distance)


def _rows(path: str) -> list[list[str]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as lines:
            rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise invalid("--domain", "a text file that can be read", path, _REMEDY) from None
    rows = [row for row in rows if any(row)]
    if len(rows) > 1 and not any(map(_is_number, rows[0])) and all(any(map(_is_number, row)) for row in rows[1:]):
        rows = rows[1:]
    if len(rows) < 2:
        raise invalid("--domain", "a file with at least two points", path, _REMEDY)
    return rows


def _numbers(rows: list[list[str]]) -> tuple[tuple[float, ...], ...]:
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]) or not all(map(_is_number, row)):
            raise InvalidInput(f"domain must hold as many numbers in each line; line {place + 1} does not. {_REMEDY}")
    return tuple(tuple(float(cell) for cell in row) for row in rows)


def _codes(rows: list[list[str]]) -> tuple[tuple[float, ...], ...]:
    """Texts as numbers that are equal where the texts are."""
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InvalidInput(f"domain must hold as many fields in each line; line {place + 1} does not. {_REMEDY}")
    columns = [
        {text: float(code) for code, text in enumerate(dict.fromkeys(column))} for column in zip(*rows, strict=True)
    ]
    return tuple(tuple(codes[cell] for codes, cell in zip(columns, row, strict=True)) for row in rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
