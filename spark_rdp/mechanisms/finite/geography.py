"""A map as a grid: which cell a place is in, and how many kilometres cells are apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spark_rdp.domains import Real
from spark_rdp.errors import invalid
from spark_rdp.mechanisms.finite.grids import Grid

#: WGS 84: half the equator's diameter in kilometres, and the square of the eccentricity.
_EQUATOR, _ECCENTRICITY = 6378.137, 0.0066943799901413165
#: How much the width of a degree may differ between the middle and an edge before the narrowest one is used.
TOLERANCE = 0.005

LATITUDE = Real("latitude", -85.0, 85.0, "Give degrees north of the equator; maps end short of the poles.")
LONGITUDE = Real("longitude", -180.0, 180.0, "Give degrees east of Greenwich.")
CELL_KM = Real("cell_km", 1e-3, 1e4, "Give the side of a cell in kilometres.")


def kilometres_per_degree(latitude: float) -> tuple[float, float]:
    """Length of a degree of latitude and of a degree of longitude at a latitude, on the WGS 84 ellipsoid."""
    sine = math.sin(math.radians(latitude))
    bend = 1 - _ECCENTRICITY * sine * sine
    north = _EQUATOR * (1 - _ECCENTRICITY) / bend**1.5
    east = _EQUATOR / math.sqrt(bend) * math.cos(math.radians(latitude))
    return math.radians(north), math.radians(east)


@dataclass(frozen=True)
class MapGrid:
    """Cells of a box of latitudes and longitudes, numbered from the south-west, eastwards first.

    Args:
        south, north, west, east: The box, in degrees.
        rows, columns: How many cells it has from south to north and from west to east.
    """

    south: float
    north: float
    west: float
    east: float
    rows: int
    columns: int

    def __post_init__(self) -> None:
        low, high = LATITUDE.named("south").check(self.south), LATITUDE.named("north").check(self.north)
        left, right = LONGITUDE.named("west").check(self.west), LONGITUDE.named("east").check(self.east)
        if not low < high:
            raise invalid("south", f"below north ({self.north!r})", self.south, "Exchange them.")
        if not left < right:
            raise invalid("west", f"below east ({self.east!r})", self.west, "A box cannot cross the date line.")

    @classmethod
    def of_cell(cls, south: float, north: float, west: float, east: float, cell_km: float) -> MapGrid:
        """The grid whose cells have sides of about, and at most, ``cell_km`` kilometres."""
        side = CELL_KM.check(cell_km)
        box = cls(south, north, west, east, 1, 1)
        height, width = box._sides
        return cls(south, north, west, east, math.ceil(height / side - 1e-9), math.ceil(width / side - 1e-9))

    @cached_property
    def _sides(self) -> tuple[float, float]:
        """Height and width of the box in kilometres."""
        north, east = kilometres_per_degree((self.south + self.north) / 2)
        narrowest = min(kilometres_per_degree(edge)[1] for edge in (self.south, self.north))
        widest = max(kilometres_per_degree(edge)[1] for edge in (self.south, self.north))
        if max(1 - narrowest / east, widest / east - 1) > TOLERANCE:
            east = narrowest  # never more than the true distance: epsilon per kilometre is kept everywhere
        return north * (self.north - self.south), east * (self.east - self.west)

    @property
    def grid(self) -> Grid:
        """The cells with their distances in kilometres.

        Distances are those of a plane: within half a per cent on the scale of a city. Where a box is so tall that the
        width of a degree changes by more, they are too short rather than too long from east to west.
        """
        height, width = self._sides
        return Grid((self.rows, self.columns), (height / self.rows, width / self.columns))

    def cells(self, latitudes: np.ndarray, longitudes: np.ndarray) -> np.ndarray:
        """The cell of each place, ``row * columns + column``; the nearest one for places outside the box.

        Args:
            latitudes, longitudes: In degrees, shape (n,); not NaN.
        """
        row = self._index(latitudes, self.south, self.north, self.rows)
        return row * self.columns + self._index(longitudes, self.west, self.east, self.columns)

    @staticmethod
    def _index(values: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
        share = (np.clip(np.asarray(values, dtype=np.float64), low, high) - low) / (high - low)
        return np.minimum(np.floor(share * count), count - 1).astype(np.int64)

    def inside(self, latitudes: np.ndarray, longitudes: np.ndarray) -> np.ndarray:
        """Whether each place is in the box."""
        south_north = (latitudes >= self.south) & (latitudes <= self.north)
        return np.asarray(south_north & (longitudes >= self.west) & (longitudes <= self.east))

    def centres(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latitude and longitude of the middle of each cell."""
        row, column = np.divmod(np.asarray(cells), self.columns)
        latitudes = self.south + (row + 0.5) * ((self.north - self.south) / self.rows)
        return latitudes, self.west + (column + 0.5) * ((self.east - self.west) / self.columns)
