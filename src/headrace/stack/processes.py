"""Members as processes: started under a tether, heard line by line, ended with all that they have started."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.stack.kind import CONFIG, Command

_CHUNK_BYTES: Final = 65536
_LINE_BYTES: Final = 65536  # what is longer is cut there
_LAST_WORDS_S: Final = 2.0  # for what is in the pipes when a process has ended
SUPERVISED: Final = "HEADRACE_SUPERVISED"  # a process whose words the supervisor digests and keeps already
Hear = Callable[[str], None]


class MemberProcess:
    """One running process, in a process group of its own: Ctrl-C in the terminal is for the supervisor alone."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: Sequence["_Pipe"], hear: Hear) -> None:
        self.pid = process.pid
        self._process = process
        self._pipes = pipes
        self._pumps = [asyncio.create_task(_pump(pipe.stream, hear)) for pipe in pipes]

    @classmethod
    async def start(cls, command: Command, folder: Path, hear: Hear) -> "MemberProcess":
        """Start it in a folder; its lines go to `hear`."""
        config = _in_memory(toml_text(command.config)) if command.config is not None else None
        arguments = [part.replace(CONFIG, f"/dev/fd/{config}") for part in command.arguments]
        # Pipes of our own: with asyncio's, a process has not ended before whoever else holds them lets go, such as a
        # JVM that writes its archive of classes when all is over.
        out, err = await _Pipe.open(), await _Pipe.open()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # not from the user's folder: a numbers.py there is a pipeline, and not Python's module
                "-m",
                "headrace.stack.tether",
                str(os.getpid()),
                *arguments,
                cwd=folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", SUPERVISED: "1", **command.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out.end,
                stderr=err.end,
                pass_fds=() if config is None else (config,),
                start_new_session=True,
            )
        except BaseException:
            out.transport.close()
            err.transport.close()
            raise
        finally:
            for end in (out.end, err.end, *(() if config is None else (config,))):
                os.close(end)
        return cls(process, (out, err), hear)

    async def ended(self) -> int:
        """Its exit code, once it is gone and all that it said is heard; what it left behind is ended too."""
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        _, waiting = await asyncio.wait(self._pumps, timeout=_LAST_WORDS_S)
        for pump in waiting:
            pump.cancel()
        for pipe in self._pipes:
            pipe.transport.close()
        return code

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


@dataclass(frozen=True, slots=True)
class _Pipe:
    """Our side of a pipe, and the end that a process writes to."""

    stream: asyncio.StreamReader
    transport: asyncio.ReadTransport
    end: int

    @classmethod
    async def open(cls) -> "_Pipe":
        reading, writing = os.pipe()
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", buffering=0)
        )
        return cls(stream, transport, writing)


def _in_memory(text: str) -> int:
    """A file that only we and our child can see: a configuration may hold secrets."""
    file = os.memfd_create("headrace.toml")
    os.write(file, text.encode())
    return file


async def _pump(stream: asyncio.StreamReader, hear: Hear) -> None:
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            hear(line[:_LINE_BYTES].decode(errors="replace"))
        if len(rest) > _LINE_BYTES:
            hear(rest[:_LINE_BYTES].decode(errors="replace"))
            rest = b""
    if rest:
        hear(rest.decode(errors="replace"))


def toml_text(tables: Mapping[str, Any]) -> str:
    """A document of key and value lines, with tables inline."""
    return "".join(f"{_text(name)} = {_value(value)}\n" for name, value in tables.items())


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case Mapping():
            return "{" + ", ".join(f"{_text(name)} = {_value(part)}" for name, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return str(value)  # numbers, and dates as ISO-8601: TOML writes them so


def _text(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML wants the delete character escaped as well.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
