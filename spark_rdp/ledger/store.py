"""Where a ledger is kept: a SQLite file, or a PostgreSQL server where there are many writers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.ledger import tables

#: Seconds a writer waits for the others before it gives up (exit code 4, safe to run again).
WAIT_SECONDS = 30
#: Names the lock under which tables are made and changed on a server.
_SCHEMA_LOCK = 0x5244504C  # "RDPL"
_REMEDY = 'Write for example "sqlite:///budget.db", or "postgresql://user@host/database".'


class Store:
    """The data base of a ledger.

    Args:
        url: A SQLAlchemy URL. Nothing is opened before it is used.

    Raises:
        InvalidInput: The URL cannot be used.
    """

    def __init__(self, url: str) -> None:
        try:
            self._url = sa.make_url(url)
            backend = self._url.get_backend_name()
            if backend == "postgresql" and "+" not in self._url.drivername:
                self._url = self._url.set(drivername="postgresql+psycopg")
            self._sqlite = backend == "sqlite"
            if self._sqlite and self._url.database in (None, "", ":memory:"):
                raise invalid("ledger.url", "a data base that outlives the job", url, _REMEDY)
            # Other data bases would need a proof of their own that two writers never decide on the same balance.
            if backend not in ("sqlite", "postgresql"):
                raise NoSuchModuleError
            wait = {"timeout": WAIT_SECONDS} if self._sqlite else {"connect_timeout": WAIT_SECONDS}
            # No pool: nothing stays open between calls, so a ledger can be shared by threads and forked processes.
            self._engine = sa.create_engine(self._url, poolclass=NullPool, connect_args=wait)
        except (ArgumentError, NoSuchModuleError):
            # The URL is not echoed: it may hold a password.
            raise InvalidInput(
                f"ledger.url must be the URL of a SQLite file or a PostgreSQL server. {_REMEDY}"
            ) from None
        except ImportError as failure:
            install = "Install it: pip install 'spark-rdp[postgres]'."
            raise InvalidInput(f"ledger.url needs a driver that is not installed, {failure.name}. {install}") from None
        self._made = False  # whether tables were seen
        if self._sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)

    @property
    def url(self) -> str:
        """The URL without user, password and options."""
        port = "" if self._url.port is None else f":{self._url.port}"
        return f"{self._url.get_backend_name()}://{self._url.host or ''}{port}/{self._url.database or ''}"

    def not_created(self, name: str | None) -> InvalidInput:
        """What is said about a data set, or a whole ledger, that is not there."""
        url = shlex.quote(self.url) if self._sqlite else "URL"
        command = f"spark-rdp ledger create {shlex.quote(name) if name else 'NAME'} --epsilon EPSILON --url {url}"
        what = f"The data set {name} has no budget" if name else "There is no ledger"
        return InvalidInput(f"{what} in {self.url}. Decide one first: {command}")

    @contextmanager
    def creating(self) -> Iterator[sa.Connection]:
        """A transaction in which the tables exist, made if need be."""
        if self._sqlite and not self._file.parent.is_dir():
            raise InvalidInput(f"The folder of the ledger, {self._file.parent}, does not exist. Create it first.")
        with self._worded(), self._begin() as connection:
            self._lock_schema(connection)
            self._made = False  # the file may have been removed since
            version = self._version(connection)
            if version is None:
                tables.create(connection)
            elif version < tables.SCHEMA_VERSION:
                tables.migrate(connection, version)
            yield connection

    @contextmanager
    def transaction(self, *, read: bool = False) -> Iterator[sa.Connection]:
        """One transaction: committed as a whole when the block ends well, otherwise without any effect.

        Args:
            read: Nothing is written, so it sees one moment and holds up nobody.

        Raises:
            InvalidInput: There is no ledger, or one of a newer version.
            JobFailed: The data base could not be used; the same call can be made again.
        """
        if self._sqlite and not self._file.is_file():
            raise self.not_created(None)  # opening it would create an empty file
        with self._worded():
            with self._begin(read=read) as connection:
                version = self._version(connection)
                if version is None:
                    raise self.not_created(None)
                if version == tables.SCHEMA_VERSION:
                    yield connection
                    return
            with self.creating():
                pass
            with self._begin(read=read) as connection:
                yield connection

    # -- plumbing -------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return Path(str(self._url.database)).absolute()

    @contextmanager
    def _begin(self, *, read: bool = False) -> Iterator[sa.Connection]:
        if self._sqlite:
            options: dict[str, Any] = {"ledger_read": read}
        else:
            # A reader sees one moment; a writer sees what those before it wrote as soon as it has the lock.
            level = "REPEATABLE READ" if read else "READ COMMITTED"
            options = {"isolation_level": level, "postgresql_readonly": read}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            if not self._sqlite:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
            yield connection

    def _lock_schema(self, connection: sa.Connection) -> None:
        if not self._sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))

    def _version(self, connection: sa.Connection) -> int | None:
        """The version of the tables; None where there are none."""
        if not self._made and not sa.inspect(connection).has_table(tables.SCHEMA.name):
            return None
        self._made = True
        versions = list(connection.execute(sa.select(tables.SCHEMA.c.version)).scalars())
        if len(versions) != 1 or not 1 <= versions[0] <= tables.SCHEMA_VERSION:
            raise InvalidInput(
                f"The ledger {self.url} has schema version {versions}; this spark_rdp reads up to version "
                f"{tables.SCHEMA_VERSION}. Use the version of spark_rdp that wrote it."
            )
        return int(versions[0])

    @contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
            if "not a database" in reason:
                raise InvalidInput(
                    f"{self.url} is not a ledger. Give the path of one, or of a file to be made."
                ) from None
            raise JobFailed(
                f"The ledger {self.url} could not be used ({reason}). Run the same command again: a release id is "
                "never charged twice."
            ) from error


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Settings of every new connection."""
    connection.isolation_level = None  # the driver must not begin transactions by itself
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # a reservation survives a power cut
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    """How a transaction begins."""
    read = connection.get_execution_options().get("ledger_read", False)
    # IMMEDIATE takes the write lock before the balance is read: no second writer can decide on the same balance.
    connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")
