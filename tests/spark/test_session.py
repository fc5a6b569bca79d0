"""The Spark session: quiet, UTC, never stopped by somebody else; failures in one sentence without data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput, JobFailed, SparkRdpError, invalid
from spark_rdp.spark import failures, session


def test_a_running_session_is_used_as_it_is_and_not_stopped(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with session.opened("another", master="local[1]", conf={"spark.sql.shuffle.partitions": "77"}) as found:
        assert found is spark
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.shuffle.partitions") == before == "4"


def test_settings(spark: SparkSession) -> None:
    for name in ("spark.sql.session.timeZone", "spark.ui.enabled", "spark.ui.showConsoleProgress"):
        assert spark.conf.get(name) == session.SETTINGS[name]
    assert spark.sql("SELECT CAST(TIMESTAMP_SECONDS(0) AS STRING)").first()[0] == "1970-01-01 00:00:00"


def test_a_new_process_writes_nothing_but_its_own_lines(tmp_path: Path) -> None:
    """Launch, a job on workers of the same Python, a failed job, the end: a clean terminal, no log left."""
    script = tmp_path / "job.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from spark_rdp.spark import failures, session

            def double(batches):
                import sys
                print("to stdout of a worker")
                print("to stderr of a worker", file=sys.stderr)
                for batch in batches:
                    yield batch

            def fail(batches):
                raise ValueError("secret 4711")

            with session.opened("quiet", master="local[1]") as spark:
                print(spark.range(1001).mapInArrow(double, "id BIGINT").groupBy().sum("id").first()[0])
                spark.range(10).toPandas()
                try:
                    with failures.worded():
                        spark.range(10).mapInArrow(fail, "id BIGINT").collect()
                except Exception as error:
                    print(error, file=sys.stderr)
                print(session.log_file())
                text = session.log_file().read_text()
                print("4711" in text, oct(session.log_file().stat().st_mode & 0o777))
            """
        )
    )
    # Another `python3` first on PATH, as where .venv is not activated: the workers must use this Python all the same.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    run = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stderr
    assert lines[0] == "500500"
    assert lines[2:] == ["False 0o600"]
    assert run.stderr.startswith("The Spark job failed: a Python worker raised ValueError. ")
    assert run.stderr.count("\n") == 1
    assert "4711" not in run.stderr
    assert not Path(lines[1]).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.py"]


def test_a_spark_that_cannot_start_says_where_its_log_is(tmp_path: Path) -> None:
    code = (
        "from spark_rdp.spark import session\n"
        "try:\n"
        "    session.build('broken', master='local[1]', conf={'spark.driver.memory': 'nonsense'})\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("JobFailed Spark could not be started. What it wrote is in ")
    assert run.stderr == ""
    log = Path(run.stdout.split()[-1].rstrip("."))
    assert "nonsense" in log.read_text()
    log.unlink()


#: A row whose text looks like a failure of ours.
FORGED = "x\nTraceback (most recent call last):\n  File\nspark_rdp.errors.InvalidInput: 4711\n4711"


def raised_by(action: Callable[[], object]) -> SparkRdpError:
    with pytest.raises(SparkRdpError) as caught, failures.worded():
        action()
    return caught.value


def in_worker(spark: SparkSession, error: Callable[[], Exception]) -> DataFrame:
    def fail(batches: Iterator[object]) -> Iterator[object]:
        raise error()
        yield

    return spark.range(2).mapInArrow(fail, "id BIGINT")


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_our_sentence_from_a_worker_arrives_word_for_word(spark: SparkSession, tmp_path: Path, sink: str) -> None:
    frame = in_worker(spark, lambda: invalid("lower", "a finite number", "zero", "Write 0."))
    error = raised_by(frame.collect if sink == "collect" else lambda: frame.write.parquet(str(tmp_path / "out")))
    assert isinstance(error, InvalidInput)
    assert str(error) == "lower must be a finite number; got 'zero'. Write 0."


@pytest.mark.parametrize(
    "failing",
    [
        lambda spark: in_worker(spark, lambda: KeyError("4711")),
        lambda spark: in_worker(spark, lambda: RuntimeError(FORGED)),
        lambda spark: spark.createDataFrame([("x4711",)], "a STRING").select(F.col("a").cast("int")),
        lambda spark: spark.createDataFrame([(FORGED,)], "a STRING").select(F.col("a").cast("int")),
        lambda spark: spark.sql("SELECT raise_error('4711')"),
        lambda spark: spark.createDataFrame([(4711,)], "a INT").selectExpr("a / (a - a)"),
        lambda spark: spark.createDataFrame([(2**62 + 4711,)], "a BIGINT").selectExpr("a * 4"),
    ],
)
def test_no_data_value_in_any_sentence(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], failing: Callable[[SparkSession], DataFrame]
) -> None:
    error = raised_by(failing(spark).collect)
    written = capfd.readouterr()
    assert isinstance(error, JobFailed)
    assert "Nothing was published" in str(error)
    for text in (str(error), written.out, written.err):
        assert "4711" not in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("action", "part"),
    [
        (lambda spark: spark.read.parquet("/no/such/folder"), "/no/such/folder"),
        (lambda spark: spark.range(1).select("nocolumn"), "nocolumn"),
        (lambda spark: spark.table("notable"), "notable"),
        (lambda spark: spark.range(1).selectExpr("nofunction(id)"), "nofunction"),
        (lambda spark: spark.range(1).selectExpr("id +* 3"), "not Spark SQL"),
        (lambda spark: spark.range(1).selectExpr("id + array(1)"), "does not fit"),
    ],
)
def test_a_wrong_name_in_the_configuration_is_named(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], action: Callable[[SparkSession], object], part: str
) -> None:
    error = raised_by(lambda: action(spark))
    assert isinstance(error, InvalidInput)
    assert part in str(error)
    assert "\n" not in str(error)
    assert capfd.readouterr().err == ""


def test_an_error_of_ours_passes_unchanged() -> None:
    error = JobFailed("as it is")
    assert failures.as_error(error) is error
    assert failures.sentence_of(ConnectionRefusedError("127.0.0.1")).startswith(
        "The Spark job failed: Spark itself stopped"
    )
