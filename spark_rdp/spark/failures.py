"""What Spark says when it fails, as one sentence that quotes no data.

Spark's own message may contain values of rows, so that only three things are ever taken from it: a sentence worded by
:mod:`spark_rdp.errors` inside a worker, the name of Spark's error condition, and, for errors found before any row was
read, the configured name that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.logger import PySparkLogger

from spark_rdp import errors
from spark_rdp.errors import InvalidInput, JobFailed, SparkRdpError

#: The line of a worker's traceback that names the exception: the first after the frames, which are indented. What
#: follows that line may be a message with line breaks out of a row, and is not looked at.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)+(?:\w+\.)*(\w+)(?:: (.*))?")
_AGAIN = "Nothing was published; the same command can be run again, with --verbose to see what Spark said."
_GOES_ON = (
    "What its earlier batches published stays; the same command goes on after them, with --verbose to see what Spark "
    "said."
)

_NO_AVRO = (
    "format must be one that this Spark reads; avro needs a package of its own. Start with --packages "
    "org.apache.spark:spark-avro_2.13:VERSION, of the version of Spark."
)
#: Conditions found before any row was read: their parameters come from the configuration, not from data.
_CONFIGURED: dict[str, Callable[[dict[str, str]], str]] = {
    "PATH_NOT_FOUND": lambda p: f"path must be an existing file or folder; got {p.get('path')}. Check the spelling.",
    "TABLE_OR_VIEW_NOT_FOUND": lambda p: f"table must be a known table or view; got {p.get('relationName')}.",
    "UNRESOLVED_COLUMN": lambda p: f"The source has no column {p.get('objectName')}. Check the names in the query.",
    "UNSUPPORTED_DATATYPE": lambda p: f"schema must name Spark SQL types; got {p.get('typeName')}.",
    "UNRESOLVED_ROUTINE": lambda p: f"Spark SQL knows no function {p.get('routineName')}. Check the expression.",
    "DATATYPE_MISMATCH": lambda p: f"The expression {p.get('sqlExpr')} does not fit the types of its columns.",
    "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE": lambda _: _NO_AVRO,
    "AVRO_DATA_SOURCE_NOT_ENABLED": lambda _: _NO_AVRO,
    "PARSE_SYNTAX_ERROR": lambda p: f"A type or an expression in the query is not Spark SQL, near {p.get('error')}.",
}
#: Conditions met while rows were read: named, never quoted.
_ROWS = {
    "CAST_INVALID_INPUT": "a value of the source is not of its declared type",
    "CAST_OVERFLOW": "a value of the source is too large for its declared type",
    "FAILED_READ_FILE": "a file of the source could not be read as declared",
    "MALFORMED_RECORD_IN_PARSING": "a record of the source could not be read as declared",
    "DIVIDE_BY_ZERO": "an expression of the query divides by zero",
    "ARITHMETIC_OVERFLOW": "an expression of the query is too large for its type",
}


#: What a stream fails with, by the query's own wish, on an event that is malformed.
MALFORMED = (
    "A record of the source cannot be read as declared, or lacks a column of its key, and malformed is fail. Correct "
    "or remove it, or use malformed: quarantine."
)

#: PySpark's own loggers of failed queries; they print whole messages, values of rows included, to the terminal.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@contextmanager
def worded() -> Iterator[None]:
    """Raise every failure of the Spark calls in the block as :func:`as_error` words it; PySpark does not log it."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except Exception as error:
        told = as_error(error)
        if told is error:
            raise
        raise told from error
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def as_error(error: BaseException) -> SparkRdpError:
    """Turn any failure of a Spark job into one of ours.

    Args:
        error: What was caught around a Spark call.

    Returns:
        ``error`` itself when it is ours; ours raised in a worker (and not while another exception was handled), as it
        was worded there; InvalidInput for a source or expression that does not exist; JobFailed, naming only the kind
        of failure, for all else. Never with data values.
    """
    if isinstance(error, SparkRdpError):
        return error
    condition = (error.getCondition() if isinstance(error, PySparkException) else None) or type(error).__name__
    family = condition.partition(".")[0]
    reason = _ROWS.get(family, condition)
    if isinstance(error, PythonException):
        ours, reason = _in_worker(str(error))
        if ours:
            return ours
    elif isinstance(error, AnalysisException) and family in _CONFIGURED:
        return InvalidInput(_CONFIGURED[family](error.getMessageParameters() or {}))
    elif isinstance(error, (ConnectionError, Py4JNetworkError)):
        reason = "Spark itself stopped, which is mostly for want of memory"
    return JobFailed(f"The Spark job failed: {reason}. {_AGAIN}")


def _in_worker(text: str) -> tuple[SparkRdpError | None, str]:
    """What a Python worker raised: ours as it was worded there, or None; and which kind it is."""
    raised = _RAISED.search(text)
    name, sentence = raised.groups() if raised else ("an exception", None)
    kind = getattr(errors, name, None)
    ours = kind(sentence) if sentence and isinstance(kind, type) and issubclass(kind, SparkRdpError) else None
    return ours, f"a Python worker raised {name}"


def sentence_of(error: BaseException) -> str:
    """The sentence of :func:`as_error`."""
    return str(as_error(error))


def stream_error(error: BaseException | None) -> SparkRdpError:
    """The failure of a streaming query, in the words of :func:`as_error`.

    Spark tells it by one class and one condition, whatever has happened; the trace in its message tells what.
    """
    text = str(error)
    if f"[USER_RAISED_EXCEPTION] {MALFORMED}" in text:  # the plan of the query holds the sentence, too
        return InvalidInput(MALFORMED)
    condition = next((name for name in _ROWS if f"[{name}" in text), None)
    reason = _ROWS[condition] if condition else "its query ended"
    if "org.apache.spark.api.python.PythonException" in text or _RAISED.search(text):
        ours, reason = _in_worker(text)
        if ours:
            return ours
    return JobFailed(f"The stream failed: {reason}. {_GOES_ON}")
