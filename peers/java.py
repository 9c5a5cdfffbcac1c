"""How a peer's Java program is started: which `java`, which jars, which flags.

A command made here names the jars that `peers/fetch` brought and nothing else on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CACHE: Final = Path(__file__).resolve().parents[1] / ".cache" / "peers"

QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Flags for programs that live for seconds: they start in half the time and never get as fast as they could."""


class PeerError(Exception):
    """A real system could not be found, started or stopped; the text says what to do or shows what it said."""


class PeerNotFetchedError(PeerError):
    """A peer's jars are not on this machine."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} is not in .cache/peers: run `peers/fetch {peer}` to fetch it")
        self.peer = peer


def jars_of(peer: str) -> Path:
    """Return the folder that holds the jars of `peer`, whole; `PeerNotFetchedError` if they were not fetched."""
    return _fetched(peer, "lib")


def home_of(peer: str) -> Path:
    """Return the folder where `peer`, which came in an archive, is unpacked; see `jars_of`."""
    return _fetched(peer, "home")


def packages_of(peer: str) -> Path:
    """Return the folder of the Python packages of `peer`, which has an environment of its own; see `jars_of`."""
    return next((_fetched(peer, "venv") / "lib").glob("python3*")) / "site-packages"


def java() -> str:
    """Return the `java` that runs the peers."""
    return _tool("java")


def java_compiler() -> str:
    """Return the `javac` beside that."""
    return _tool("javac")


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


def _fetched(peer: str, part: str) -> Path:
    home = _CACHE / peer
    # The stamp comes last: a folder without it may be what a broken-off fetch left.
    if not (home / ".resolved").exists() or not (home / part).is_dir():
        raise PeerNotFetchedError(peer)
    return home / part


def java_command(
    peer: str,
    main_class: str,
    *args: str,
    heap: str,
    flags: Sequence[str] = QUICK_START,
    system_properties: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs `main_class` from the jars of `peer`, and of those `beside` it."""
    return [
        java(),
        f"-Xmx{heap}",
        *flags,
        "-Djava.awt.headless=true",
        *(f"-D{name}={value}" for name, value in (system_properties or {}).items()),
        "-cp",
        ":".join(f"{jars_of(each)}/*" for each in (peer, *beside)),
        main_class,
        *args,
    ]
