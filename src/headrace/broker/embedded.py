"""A broker inside a program: in a thread of its own, or in a process of its own.

    with headrace.Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

Without a data directory it keeps its data in a temporary one, which goes with it.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Self
from uuid import uuid4

import uvloop

from headrace.broker.config import Address, BrokerConfig, parse_listeners
from headrace.broker.errors import BrokerError
from headrace.broker.server import BrokerServer
from headrace.protocol.errors import ErrorCode
from headrace.storage.filesystem import UnsyncedFileSystem


class Broker:
    """A broker that lives as long as its `with` block, sync or async."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        listen: str | list[str] = "127.0.0.1:0",
        durability: str = "fsync",
        settings: Mapping[str, str] | None = None,
        own_process: bool = False,
        is_insecure: bool = False,
    ) -> None:
        """Describe the broker; `start` or a `with` block starts it.

        `listen` is `HOST:PORT`, or with a protocol `SASL_SSL://HOST:PORT`; `settings` has Kafka's names, such as
        `num.partitions`; `own_process` keeps its work out of this process; `is_insecure` lets anybody in at a public
        address.
        """
        self._is_temporary = data_dir is None
        listen = [listen] if isinstance(listen, str) else listen
        self._config = BrokerConfig(
            os.fspath(data_dir) if data_dir is not None else f"{tempfile.gettempdir()}/headrace-{uuid4().hex}",
            parse_listeners(listen, settings=settings),
            {**(settings or {}), "durability": durability},
            is_insecure,
        )
        self._starter = os.getpid()
        self._host: _Thread | _Process = (
            _Process(self._config)
            if own_process
            else _Thread(self._config, forgets=self._is_temporary and durability == "os")
        )
        self._addresses: list[Address] = []

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._addresses else "stopped"
        return f"Broker({self._config.data_dir!r}, {state})"

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client wants as `bootstrap.servers`."""
        self._require_running()
        return ",".join(map(str, self._addresses))

    @property
    def pid(self) -> int:
        """The process that the broker runs in."""
        self._require_running()
        return self._host.pid

    @property
    def data_dir(self) -> str:
        """Where it keeps its data."""
        return self._config.data_dir

    def start(self) -> Self:
        """Start, and return once clients can connect."""
        if self._addresses:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the broker runs already, at {self.bootstrap_servers}")
        self._starter = os.getpid()
        if self._is_temporary:
            os.mkdir(self.data_dir, 0o700)
        try:
            self._addresses = self._host.start()
        except BaseException:
            self._remove_temporary()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly: everything that was acknowledged is on disk.

        In a process that was forked from the one that started it nothing is stopped or removed: the broker is not its.
        """
        if os.getpid() != self._starter:
            return
        try:
            if self._addresses:
                self._host.stop()
        finally:
            self._addresses = []
            self._remove_temporary()

    def delete_topics(self, *, prefix: str) -> None:
        """Delete every topic whose name begins with `prefix`; for a broker in a thread, as tests use it."""
        self._require_running()
        self._host.delete_topics(prefix)

    def _require_running(self) -> None:
        if not self._addresses:
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, "the broker is not running: start it, or use it in a with block"
            )

    def _remove_temporary(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


class _Thread:
    """Runs a broker on an event loop in a thread."""

    def __init__(self, config: BrokerConfig, *, forgets: bool) -> None:
        """`forgets` has nothing synced: the data goes with the broker, and nobody waits for the disk."""
        self._config = config
        self._filesystem = UnsyncedFileSystem() if forgets else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: BrokerServer | None = None
        self.pid = os.getpid()

    def start(self) -> list[Address]:
        started = threading.Event()
        outcome: list[list[Address] | BaseException] = []

        def run() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve(started, outcome))

        self._thread = threading.Thread(target=run, name="headrace-broker", daemon=True)
        self._thread.start()
        started.wait()
        if isinstance(outcome[0], BaseException):
            self._thread.join()
            raise outcome[0]
        return outcome[0]

    async def _serve(self, started: threading.Event, outcome: list[list[Address] | BaseException]) -> None:
        self._server = server = BrokerServer(self._config, filesystem=self._filesystem)
        self._stopping = asyncio.Event()
        try:
            outcome.append(server.start())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits for it
            outcome.append(error)
            return
        finally:
            started.set()
        await self._stopping.wait()
        await server.drain()
        server.stop()

    def delete_topics(self, prefix: str) -> None:
        assert self._loop is not None

        async def delete() -> None:
            assert self._server is not None
            runtime = self._server.runtime
            assert runtime is not None
            for topic in [topic for name, topic in runtime.topics.by_name.items() if name.startswith(prefix)]:
                await runtime.delete_topic(topic)

        asyncio.run_coroutine_threadsafe(delete(), self._loop).result()

    def stop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


class _Process:
    """Runs a broker with the command line's `broker start`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> list[Address]:
        # -P: not out of the folder that this runs in, where a json.py is the user's and not Python's.
        command = [sys.executable, "-P", "-m", "headrace.cli.main", "broker", "start", "--json"]
        command += ["--data-dir", self._config.data_dir]
        for listener in self._config.listeners:
            command += ["--listen", str(listener)]
        command += ["--insecure"] if self._config.is_insecure else []
        for name, value in self._config.settings.items():
            command += ["--set", f"{name}={value}"]
        # The pipe is never written to: when this process ends, however it ends, it closes, and the broker ends too.
        command.append("--until-eof")
        with tempfile.TemporaryFile("w+") as complaints:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True
            )
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                self._process.communicate()
                complaints.seek(0)
                reason = complaints.read().strip().splitlines() or ["the broker ended without a word"]
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, reason[-1].removeprefix("headrace: "))
        return [Address.parse(address) for address in json.loads(line)["listeners"]]

    def delete_topics(self, prefix: str) -> None:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"topics {prefix}… of a broker in its own process are deleted by a client"
        )

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()
