"""Made-up data for ``spark-rdp demo``: the same rows on every machine, skewed as real data are.

Few customers order most, few countries hold most customers, and some amounts lie above every sensible bound, so that
caps and clamping have something to do. No person is described.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

ORDERS = 200_000
CUSTOMERS = 20_000
DEVICES = 2_000
EVENTS = 100_000
DAYS = 30
COUNTRIES = ("DE", "FR", "GB", "IT", "ES", "NL", "PL", "SE", "AT", "PT")
CHANNELS = ("web", "app", "store")
SEED = 20_170_502


def _zipf(numbers: np.random.Generator, kinds: int, size: int, exponent: float) -> np.ndarray:
    """Draw ``size`` of ``kinds`` values, value k with a share proportional to 1 / (k + 1)**exponent."""
    ends = np.cumsum(1.0 / np.arange(1, kinds + 1) ** exponent)
    return np.searchsorted(ends / ends[-1], numbers.random(size), side="right").astype(np.int64)


def query_file() -> Path:
    """The query of the demo, commented: ``conf/demo.yaml`` of a checkout, or its copy in an installed package.

    It names its folder ``${DEMO_OUT}`` and reads ``${DEMO_OUT}/data/orders.parquet``.
    """
    here = Path(__file__).resolve().parent
    installed = here / "resources" / "demo.yaml"
    return installed if installed.is_file() else here.parent / "conf" / "demo.yaml"


def orders(rows: int = ORDERS, customers: int = CUSTOMERS, seed: int = SEED) -> pa.Table:
    """Orders: ``customer`` BIGINT, ``country`` STRING, ``day`` INT (0 to 29), ``amount`` DOUBLE (5 to 10,000).

    Every customer has at least one order when ``rows >= customers``; some in a thousand amounts lie above 500. A tenth
    of the orders goes to another country than the customer's own.
    """
    numbers = np.random.Generator(np.random.PCG64(seed))
    first = np.arange(min(rows, customers), dtype=np.int64)
    customer = np.concatenate([first, _zipf(numbers, customers, rows - first.size, 0.8)])
    home = _zipf(numbers, len(COUNTRIES), customers, 1.2)
    away = numbers.random(rows) < 0.1
    country = np.where(away, numbers.integers(0, len(COUNTRIES), rows), home[customer])
    day = numbers.integers(0, DAYS, rows)
    # Pareto amounts, as a power of a uniform number.
    amount = np.round(np.minimum(5.0 * (1.0 - numbers.random(rows)) ** -0.9, 10_000.0) * 100) / 100
    order = numbers.permutation(rows)
    return pa.table(
        {
            "customer": pa.array(customer[order] + 1),
            "country": pa.array(np.array(COUNTRIES, dtype=object)[country[order]], pa.string()),
            "day": pa.array(day[order], pa.int32()),
            "amount": pa.array(amount[order]),
        }
    )


def telemetry(rows: int = EVENTS, devices: int = DEVICES, seed: int = SEED) -> pa.Table:
    """Telemetry: ``device``, ``event_id`` BIGINT, ``country``, ``channel`` STRING, ``battery`` DOUBLE (0 to 100).

    (device, event_id) names a row. Batteries are mostly nearly full or nearly empty.
    """
    numbers = np.random.Generator(np.random.PCG64(seed + 1))
    device = _zipf(numbers, devices, rows, 0.6)
    home = _zipf(numbers, len(COUNTRIES), devices, 1.2)
    level = numbers.random(rows)
    full = numbers.random(rows) < 0.6
    battery = np.round(np.where(full, 100 * (1 - level * level), 100 * level * level) * 10) / 10
    channel = _zipf(numbers, len(CHANNELS), rows, 1.0)
    return pa.table(
        {
            "device": pa.array(device + 1),
            "event_id": pa.array(np.arange(rows, dtype=np.int64)),
            "country": pa.array(np.array(COUNTRIES, dtype=object)[home[device]], pa.string()),
            "channel": pa.array(np.array(CHANNELS, dtype=object)[channel], pa.string()),
            "battery": pa.array(battery),
        }
    )


def write_demo_data(folder: str | Path, *, format: str = "parquet") -> dict[str, Path]:
    """Write the demo's tables into a folder, which is made when it does not exist.

    Args:
        folder: Where the files go; files of an earlier demo are replaced.
        format: ``parquet`` or ``csv`` (with a header).

    Returns:
        The path of each table: ``orders`` and ``telemetry``. The same bytes at every call of one pyarrow version.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, table in (("orders", orders()), ("telemetry", telemetry())):
        paths[name] = target / f"{name}.{format}"
        if format == "csv":
            pa_csv.write_csv(table, paths[name])
        else:
            pa_parquet.write_table(table, paths[name])
    return paths
