"""Finite domains: distances are metrics, maps respect the shape of the earth, files are read or refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points, domain_of
from spark_rdp.mechanisms.finite.files import read_domain
from spark_rdp.mechanisms.finite.geography import MapGrid
from spark_rdp.mechanisms.finite.grids import CHEBYSHEV, L1, Grid, line

DOMAINS: dict[str, Domain] = {
    "map": Grid((6, 5), (1.0, 0.7)),
    "l1": Grid((6, 5), (1.0, 0.7), L1),
    "counts": Grid((5, 6), (1.0, 1.0), CHEBYSHEV),
    "sum": Grid((26,), (1.0,), span=5),
    "blend": Grid((6, 5), (1.0, 0.7), blend=0.3),
    "three axes": Grid((3, 2, 4), (1.0, 2.0, 0.5), CHEBYSHEV),
    "line": line(20, 0.25),
    "names": Categories(7),
    "databases": Categories(3, 3),
    "points": Points(((0.0, 0.0), (1.0, 3.0), (-2.0, 0.5), (4.0, 4.0))),
    "blended points": Points(((0.0, 0.0), (1.0, 3.0), (-2.0, 0.5), (4.0, 4.0)), blend=0.5),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_distances_are_a_metric_and_the_domain_travels(name: str) -> None:
    domain = DOMAINS[name]
    matrix = domain.distances()
    apart = ~np.eye(domain.size, dtype=bool)
    assert np.array_equal(matrix, matrix.T)
    assert np.all(np.diag(matrix) == 0)
    assert matrix[apart].min() == pytest.approx(domain.smallest)
    assert matrix.max() == pytest.approx(domain.largest)
    for third in range(domain.size):
        assert np.all(matrix <= (matrix[:, third, None] + matrix[third]) * (1 + 1e-15))
    assert domain_of(domain.spec()) == domain


def test_the_lower_distance_of_a_grid_is_nowhere_larger() -> None:
    for name in ("map", "counts", "sum", "three axes"):
        grid = DOMAINS[name]
        assert isinstance(grid, Grid)
        lower = grid.blended(1.0)
        assert lower.is_product
        assert np.all(lower.distances() <= grid.distances() * (1 + 1e-15))


def geodesic(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Kilometres on the WGS 84 ellipsoid, by Vincenty's inverse formula (1975)."""
    a, f = 6378.137, 1 / 298.257223563
    b = a * (1 - f)
    u1, u2 = (math.atan((1 - f) * math.tan(math.radians(lat))) for lat in (lat1, lat2))
    difference = lam = math.radians(lon2 - lon1)
    for _ in range(100):
        sin_s = math.hypot(
            math.cos(u2) * math.sin(lam),
            math.cos(u1) * math.sin(u2) - math.sin(u1) * math.cos(u2) * math.cos(lam),
        )
        cos_s = math.sin(u1) * math.sin(u2) + math.cos(u1) * math.cos(u2) * math.cos(lam)
        s = math.atan2(sin_s, cos_s)
        sin_alpha = math.cos(u1) * math.cos(u2) * math.sin(lam) / sin_s
        cos2_alpha = 1 - sin_alpha**2
        cos_2m = cos_s - 2 * math.sin(u1) * math.sin(u2) / cos2_alpha if cos2_alpha else 0.0
        c = f / 16 * cos2_alpha * (4 + f * (4 - 3 * cos2_alpha))
        bend = s + c * sin_s * (cos_2m + c * cos_s * (2 * cos_2m**2 - 1))
        lam = difference + (1 - c) * f * sin_alpha * bend
    square = cos2_alpha * (a * a - b * b) / (b * b)
    big_a = 1 + square / 16384 * (4096 + square * (-768 + square * (320 - 175 * square)))
    big_b = square / 1024 * (256 + square * (-128 + square * (74 - 47 * square)))
    inner = cos_s * (2 * cos_2m**2 - 1) - big_b / 6 * cos_2m * (4 * sin_s**2 - 3) * (4 * cos_2m**2 - 3)
    return b * big_a * (s - big_b * sin_s * (cos_2m + big_b / 4 * inner))


@pytest.mark.parametrize(
    "box",
    [
        pytest.param((40.58, 40.90, -74.05, -73.75), id="New York"),
        pytest.param((59.85, 60.0, 10.6, 10.9), id="Oslo"),
        pytest.param((-1.4, -1.1, 36.6, 37.0), id="Nairobi"),
        pytest.param((-34.1, -33.7, 150.9, 151.4), id="Sydney"),
    ],
)
def test_distances_on_a_map_are_right_to_half_a_per_cent(box: tuple[float, float, float, float]) -> None:
    area = MapGrid(*box, 37, 53)
    cells = np.array([0, 52, 36 * 53, 37 * 53 - 1, 18 * 53 + 26, 7 * 53 + 40])
    latitudes, longitudes = area.centres(cells)
    assert np.array_equal(area.cells(latitudes, longitudes), cells)
    for i in range(len(cells)):
        for j in range(i):
            true = geodesic(latitudes[i], longitudes[i], latitudes[j], longitudes[j])
            assert float(area.grid.between(cells[i], cells[j])) == pytest.approx(true, rel=0.005)


def test_a_tall_box_never_overstates_a_distance() -> None:
    """A whole country: beyond half a per cent, the promise per kilometre is kept at both edges."""
    area = MapGrid(47.0, 55.0, 6.0, 15.0, 40, 40)
    for latitude in (47.1, 51.0, 54.9):
        cells = area.cells(np.full(2, latitude), np.array([6.1, 14.9]))
        latitudes, longitudes = area.centres(cells)
        true = geodesic(latitudes[0], longitudes[0], latitudes[1], longitudes[1])
        assert float(area.grid.between(cells[0], cells[1])) <= true * 1.001


def test_places_outside_the_box_go_to_the_nearest_border_cell() -> None:
    area = MapGrid(40.58, 40.90, -74.05, -73.75, 100, 100)
    latitudes = np.array([0.0, 41.0, 40.58, 40.90, 90.0, -np.inf])
    longitudes = np.array([0.0, -74.5, -74.05, -73.75, -73.899, np.inf])
    rows, columns = np.divmod(area.cells(latitudes, longitudes), 100)
    assert rows.tolist() == [0, 99, 0, 99, 99, 0]
    assert columns.tolist() == [99, 0, 0, 99, 50, 99]
    assert area.inside(latitudes, longitudes).tolist() == [False, False, True, True, False, False]


def test_cells_of_a_size_in_kilometres() -> None:
    area = MapGrid.of_cell(40.58, 40.90, -74.05, -73.75, 1.0)
    assert all(0.9 < step <= 1 for step in area.grid.steps)


def written(folder: Path, text: str) -> str:
    path = folder / "domain.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_domains_from_files(tmp_path: Path) -> None:
    points = read_domain(written(tmp_path, "x,y\n0,0\n3,4\n\n0,1\n"), "euclidean")
    assert points.distances()[0].tolist() == [0, 5, 1]
    assert read_domain(written(tmp_path, "a\nb\nc\n"), "discrete") == Categories(3)
    assert read_domain(written(tmp_path, "1\n4\n9\n"), "line").distances()[0].tolist() == [0, 3, 8]
    words = read_domain(written(tmp_path, "red,big\nred,small\nblue,small\n"), "hamming")
    assert words.distances()[0].tolist() == [0, 1, 2]
    matrix = read_domain(written(tmp_path, "0,1,2\n1,0,1.5\n2,1.5,0\n"), "matrix")
    assert matrix.distances()[2].tolist() == [2, 1.5, 0]


@pytest.mark.parametrize(
    ("text", "distance", "message"),
    [
        ("0,1,2\n1,0,5\n2,5,0\n", "matrix", "triangle"),
        ("0,1\n2,0\n", "matrix", "symmetric"),
        ("1,1\n1,1\n", "matrix", "diagonal"),
        ("0,-1\n-1,0\n", "matrix", "at least 0"),
        ("0,0\n0,0\n", "matrix", "twice"),
        ("0,1\n1,0\n1,1\n", "matrix", "square"),
        ("1,2\n1,2\n", "euclidean", "twice"),
        ("a\nb\na\n", "discrete", "twice"),
        ("1\nnan\n", "line", "finite"),
        ("1,2\n3\n", "euclidean", "line 2"),
        ("1,2\n3,4\n", "line", "one number"),
        ("1\n", "line", "two points"),
        ("1\n2\n", "manhattan", "--distance must be one of"),
    ],
)
def test_what_is_no_metric_is_refused(tmp_path: Path, text: str, distance: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_domain(written(tmp_path, text), distance)
    with pytest.raises(InvalidInput, match="can be read"):
        read_domain(str(tmp_path / "absent.csv"), "line")


@pytest.mark.parametrize(
    "box",
    [
        (41.0, 40.0, 0.0, 1.0),
        (40.0, 41.0, 1.0, 1.0),
        (math.nan, 41.0, 0.0, 1.0),
        (40.0, math.inf, 0.0, 1.0),
        (-90.0, 90.0, 0.0, 1.0),
    ],
)
def test_impossible_boxes_are_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        MapGrid(*box, 10, 10)
