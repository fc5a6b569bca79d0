"""Servers of Spark's own, as processes on this machine: a standalone cluster and a Spark Connect server."""

from __future__ import annotations

import os
import shutil
import site
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from spark_rdp import java

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
HOME = Path(pyspark.__file__).resolve().parent
_PATIENCE_SECONDS = 90.0
#: The least memory Spark lets an executor or a driver have is 450 MiB.
MEMORY = "600m"


def free_port() -> int:
    """A port that nobody listens at, a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a Spark process that keeps what it writes in ``folder``, and to this machine."""
    ours = {
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **java.require().environment(), **ours, **more}


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all below it at once, as when a machine is lost."""
    with suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in below:
            with suppress(psutil.Error):
                each.kill()
    process.wait(timeout=30)


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, ready: str, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from the moment its log says ``ready`` until the block ends; then it is killed with all it started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(part) for part in command], cwd=log.parent, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    try:
        began = time.monotonic()
        while ready not in log.read_text(errors="replace"):
            late = time.monotonic() - began > _PATIENCE_SECONDS
            if late or process.poll() is not None:
                raise AssertionError(f"{log.name}: {log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)
        yield process
    finally:
        kill(process)


@dataclass
class Cluster:
    """A standalone master and its workers, each with one core."""

    folder: Path
    url: str
    workers: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)
    _exit: ExitStack = field(default_factory=ExitStack)

    def start_workers(self, count: int) -> None:
        """Start as many workers as are missing; each has a folder of its own for what it keeps."""
        alive = [process for process in self.workers.values() if process.poll() is None]
        for _ in range(count - len(alive)):
            place = self.folder / f"worker-{len(self.workers)}"
            place.mkdir()
            command = [HOME / "bin" / "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", HOST]
            command += ["--webui-port", "0", "--cores", "1", "--memory", MEMORY, "--work-dir", place / "work", self.url]
            server = running(command, place / "log", "Successfully registered with master", environment(place))
            self.workers[place] = self._exit.enter_context(server)

    def lose(self, worker: Path) -> None:
        """Kill a worker with its executors and what they had kept, as when a machine is lost."""
        kill(self.workers[worker])
        shutil.rmtree(worker / "local", ignore_errors=True)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A standalone master; workers are started on demand, and all are killed when the block ends."""
    port = str(free_port())
    command = [HOME / "bin" / "spark-class", "org.apache.spark.deploy.master.Master", "--host", HOST]
    command += ["--port", port, "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(running(command, folder / "master.log", "New state: ALIVE", environment(folder)))
        yield Cluster(folder, f"spark://{HOST}:{port}", _exit=stack)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server; gives what ``SPARK_REMOTE`` is to be."""
    port = str(free_port())
    command = [HOME / "bin" / "spark-submit", "--master", "local[2]"]
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": port,
        "spark.connect.session.planCache.maxSize": "0",  # what an action needs is resolved anew, as in large plans
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    env = environment(folder, SPARK_DAEMON_MEMORY="1g")
    with running(command, folder / "connect.log", "Spark Connect server started at", env):
        yield f"sc://{HOST}:{port}"


def bare_python(folder: Path) -> Path:
    """A Python with all packages that are installed, but without those installed to be edited: not this project."""
    script = folder / "python"
    packages = ":".join(site.getsitepackages())
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script


def package(folder: Path) -> Path:
    """The package as a zip file, as ``--py-files`` takes it."""
    return Path(shutil.make_archive(str(folder / "spark_rdp"), "zip", ROOT, "spark_rdp"))
