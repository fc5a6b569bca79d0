"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test process: two cores, few shuffle partitions."""
    from spark_rdp.spark import session

    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {"spark.sql.shuffle.partitions": "4", "spark.sql.warehouse.dir": str(warehouse)}
    with session.opened("spark-rdp tests", master="local[2]", conf=conf) as running:
        yield running


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the repository."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the real data sets in {folder}")
    return folder
