"""How many rows of one unit a local collection publishes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from spark_rdp.queries import CollectQuery
from spark_rdp.randomness import stream_key
from spark_rdp.spark.bounding import check_unit, salted_hash, with_unit
from spark_rdp.spark.local_noise import Located, key_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNIT, _ORDER, _RANK, _AMONG, _PLACE = "unit", "order", "rank", "among", "place"


def keep_reports(found: Located, query: CollectQuery, secret: bytes) -> Located:
    """Keep the rows of every unit that a collection publishes: at most ``max_reports``.

    Which ones is decided by a keyed hash of unit and row key: neither by a value that is noised, nor by other units,
    nor by where a row lies. Rows that share unit and row key are kept together, or not at all where one of them would
    be too many. Rows without a unit are left out.

    Args:
        found: The source.
        query: Says what a unit is.
        secret: 32 bytes. What goes into the plan of Spark is derived from them and decides about nothing else.

    Raises:
        InvalidInput: The values of the unit cannot be told apart reliably, by their type.
    """
    unit = query.unit_column
    if unit is None or query.privacy is None:
        return found
    used, kinds, most = query.used_columns, found.kinds, query.privacy.reports
    check_unit(unit, kinds[unit])
    derived = stream_key(secret, query.name, "reports of a unit", unit)
    salt, other = (int.from_bytes(part, "big", signed=True) for part in (derived[:8], derived[8:16]))
    keys = [key_part(used[name], name, found.columns[name], kinds[name]) for name in query.row_key]
    rows = with_unit(found.rows.withColumn(_UNIT, found.columns[unit]), _UNIT, kinds[unit])
    rows = rows.withColumn(_ORDER, salted_hash(salt, _UNIT, *keys))
    kept = first(rows, most).withColumn(_PLACE, salted_hash(other, _ORDER))
    # Neither the file nor the place of a published row tells which other rows are of its unit, or how many there were:
    # the first of many are smaller, which would put them side by side.
    mixed = kept.repartition(_PLACE).sortWithinPartitions(_PLACE)
    return replace(found, rows=mixed.select(*found.rows.columns))


def first(rows: DataFrame, most: int) -> DataFrame:
    """The rows of every unit that come first, as many as are allowed; those that come at once count together.

    The rank is what Spark cuts large units by before it moves them; the count takes out what is still too many.
    """
    window = Window.partitionBy(_UNIT).orderBy(_ORDER)
    ranked = rows.withColumn(_RANK, F.rank().over(window)).where(F.col(_RANK) <= most)
    return ranked.withColumn(_AMONG, F.count(F.lit(1)).over(window)).where(F.col(_AMONG) <= most)
