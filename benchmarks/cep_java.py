"""The sides in Java: their programs are told in lines of JSON what to run, and answer in such."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import harness  # noqa: F401  puts `peers` on the path
from cep_events import PARTITIONS, QUESTIONS, Events
from peers.java import PeerError, jars_of, java
from peers.matches import compile_java, flink_jars

_PEERS = Path(__file__).resolve().parent.parent / "peers"
_HEAP = "-Xmx6g"
_FLAGS = ("-XX:+UseG1GC", "-Djava.awt.headless=true")


class _Program:
    """A program that runs until its input ends."""

    def __init__(self, source: Path, folder: Path, classpath: str, *flags: str) -> None:
        compile_java(source, folder, classpath)
        command = [java(), _HEAP, *_FLAGS, *flags, "-cp", f"{folder}:{classpath}", "Throughput"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"failed": "the program ended"}')
        if "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class FlinkCep:
    """A job for each question, in a cluster that Flink starts inside its process."""

    def __init__(self, folder: Path) -> None:
        classpath = f"{flink_jars()}/*:{jars_of('flink')}/*"
        self._program = _Program(_PEERS / "flink" / "Throughput.java", folder / "classes", classpath)

    def query(self, question: str, bootstrap: str, topic: str, keys: int, count: int) -> dict[str, Any]:
        lateness_ms = Events(keys, count).lateness_ms
        return self._program.ask(pattern=question, bootstrap=bootstrap, topic=topic, lateness_ms=lateness_ms)

    def close(self) -> None:
        self._program.close()


class Esper:
    """A runtime for each question, on one thread."""

    def __init__(self, folder: Path) -> None:
        classpath = f"{jars_of('esper')}/*:{jars_of('kafka')}/*"
        self._program = _Program(_PEERS / "esper" / "Throughput.java", folder / "classes", classpath)

    def query(self, question: str, bootstrap: str, topic: str, keys: int, count: int) -> dict[str, Any]:  # noqa: ARG002
        return self._program.ask(epl=QUESTIONS[question].epl, bootstrap=bootstrap, topic=topic, partitions=PARTITIONS)

    def close(self) -> None:
        self._program.close()


class EsperOnOneCore(Esper):
    """Events from memory, in the runtime's own process; what the JVM does besides has to do with the same core."""

    def __init__(self, folder: Path) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of what this process starts too
        super().__init__(folder)

    def plain(self, question: str, keys: int, count: int, file: str) -> dict[str, Any]:  # noqa: ARG002
        return self._program.ask(epl=QUESTIONS[question].epl, file=file)
