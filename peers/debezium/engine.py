"""How the engine is started: Engine.java as a source file, with the settings in a file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from peers.java import java_command
from peers.process import Guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE: Final = Path(__file__).with_name("Engine.java")
_FLAGS: Final = ("-server", "-XX:+UseG1GC")


def start_engine(folder: Path, settings: Mapping[str, str], *, heap: str) -> Guarded:
    """Run the engine with Debezium's own settings, and under `producer.` those of its Kafka producer."""
    file = folder / "engine.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = java_command("debezium", str(_SOURCE), str(file), heap=heap, flags=_FLAGS)
    return Guarded(command, output=folder / "engine.log")
