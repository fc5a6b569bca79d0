"""A real Kafka broker for tests (KRaft: one process that is broker and controller), where its jars can be had.

The jars are found by Ivy, which comes with Spark, as this machine is set up; once, and kept in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jobs import servers
from spark_rdp import java

KAFKA = "4.1.2"
#: Spark's own connector: the newest that could be had; Spark 4.3 runs it.
CONNECTOR = "4.2.0"
_WANTED = {
    "broker": [
        ("org.apache.kafka", "kafka_2.13", KAFKA, "default", "true"),
        ("org.apache.kafka", "kafka-tools", KAFKA, "master", "false"),
        ("org.slf4j", "slf4j-simple", "1.7.36", "master", "false"),
    ],
    "connector": [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR, "master", "false"),
        ("org.apache.spark", "spark-avro_2.13", CONNECTOR, "master", "false"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR, "master", "false"),
        ("org.apache.kafka", "kafka-clients", KAFKA, "master", "false"),
        ("org.apache.commons", "commons-pool2", "2.12.1", "master", "false"),
    ],
}
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_SECONDS = 300


class NotToBeHadError(Exception):
    """What is missing, and why."""


def jars() -> Path:
    """A folder with the folders ``broker`` and ``connector``, of the jars of either.

    Raises:
        NotToBeHadError: They are not in the cache and could not be fetched.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-rdp-tests"
    folder = cache / f"kafka-{KAFKA}-spark-{CONNECTOR}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=cache))
        try:
            _fetch(staging)
            (staging / "jars").rename(folder)
        except OSError:
            if not folder.is_dir():  # another run of the tests may have been first
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


def _fetch(staging: Path) -> None:
    rows = [
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="{use}-&gt;{what}" transitive="{deep}"/>'
        for use, parts in _WANTED.items()
        for group, name, version, what, deep in parts
    ]
    confs = "".join(f'<conf name="{use}"/>' for use in _WANTED)
    (staging / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="tests" module="kafka"/>'
        f"<configurations>{confs}</configurations><dependencies>{''.join(rows)}</dependencies></ivy-module>"
    )
    [ivy] = (servers.HOME / "jars").glob("ivy-*.jar")
    places = staging / "jars" / "[conf]" / "[artifact]-[revision](-[classifier]).[ext]"
    command = [java.require().home / "bin" / "java", "-jar", ivy, "-ivy", staging / "ivy.xml"]
    command += ["-cache", staging / "cache", "-confs", *_WANTED, "-retrieve", places]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        said = ran.stdout + ran.stderr
    except subprocess.TimeoutExpired:
        said = f"no answer within {_SECONDS} seconds"
    missing = [
        f"{group}:{name}:{version}"
        for use, parts in _WANTED.items()
        for group, name, version, _, _ in parts
        if not (staging / "jars" / use / f"{name}-{version}.jar").is_file()
    ]
    if missing:
        told = next((line.strip() for line in said.splitlines() if "not found" in line or "rror" in line), said[-200:])
        raise NotToBeHadError(f"{', '.join(missing)} could not be fetched by Ivy: {told}")


@dataclass
class Broker:
    """A broker that can be killed and started again with what it had."""

    folder: Path
    jars: Path
    address: str
    _exit: ExitStack = field(default_factory=ExitStack)
    _starts: int = 0

    def start(self) -> None:
        """Start it; it answers when this returns."""
        self._starts += 1
        command = self._java("kafka.Kafka", self.folder / "server.properties")
        log = self.folder / f"broker-{self._starts}.log"
        self._exit.enter_context(servers.running(command, log, "Kafka Server started", dict(os.environ)))

    def kill(self) -> None:
        """End it at once."""
        self._exit.close()

    def produce(self, topic: str, records: Iterable[str]) -> None:
        """Send records, each a line; all are stored when this returns."""
        command = self._java("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", self.address)
        command += ["--topic", topic, "--producer-property", "acks=all", "--batch-size", "400"]
        text = "".join(f"{record}\n" for record in records)
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr

    def format(self) -> None:
        """Prepare its folder."""
        command = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID)
        command += ["-c", str(self.folder / "server.properties")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def _java(self, main: str, *arguments: str | Path) -> list[str]:
        program = java.require().home / "bin" / "java"
        parts = [program, "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{self.jars}/broker/*", main, *arguments]
        return [str(part) for part in parts]


@contextmanager
def broker(folder: Path, found: Path) -> Iterator[Broker]:
    """A running broker that only this machine reaches; killed when the block ends."""
    port, other = servers.free_port(), servers.free_port()
    address = f"{servers.HOST}:{port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{servers.HOST}:{other}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{servers.HOST}:{other}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "num.partitions": "2",
        "broker.session.timeout.ms": "2000",  # so long a killed broker is waited for
        "broker.heartbeat.interval.ms": "500",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    made = Broker(folder, found, address)
    made.format()
    try:
        made.start()
        yield made
    finally:
        made.kill()
