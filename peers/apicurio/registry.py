"""How the registry is started: it keeps what it is told in memory, and forgets it when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peers.http_server import HttpServer
from peers.java import QUICK_START, home_of, java

if TYPE_CHECKING:
    from pathlib import Path

CONFLUENT: Final = "/apis/ccompat/v7"
"""Where Confluent's interface is, below the server's address."""


def apicurio_registry(folder: Path, *, heap: str = "384m") -> HttpServer:
    """A registry whose messages go to a file in `folder`."""
    (jar,) = map(str, home_of("apicurio").glob("*-runner.jar"))

    def command(port: int) -> list[str]:
        settings = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN"]
        return [java(), f"-Xmx{heap}", *QUICK_START, *settings, "-jar", jar]

    return HttpServer("Apicurio", command, output=folder / "apicurio.log", path=f"{CONFLUENT}/subjects")
