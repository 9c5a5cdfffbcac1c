"""How a node is started: SingleNode.java as a source file, which wants a whole JDK."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from peers.http_server import HttpServer
from peers.java import java_command

_FOLDER: Final = Path(__file__).parent


def opensearch_node(folder: Path, *, heap: str = "512m") -> HttpServer:
    """A node that keeps its indexes in `folder`."""
    (folder / "config").mkdir(parents=True, exist_ok=True)  # it wants one, though there is nothing in it
    logging = {"log4j2.configurationFile": str(_FOLDER / "log4j2.xml")}

    def command(port: int) -> list[str]:
        source = str(_FOLDER / "SingleNode.java")
        return java_command("opensearch", source, str(folder), str(port), heap=heap, system_properties=logging)

    # It answers before the indexes that it finds are open; with this it says so.
    path = "/_cluster/health?wait_for_status=yellow&timeout=1s"
    return HttpServer("OpenSearch", command, output=folder / "opensearch.log", path=path)
