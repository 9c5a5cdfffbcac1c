"""One real Kafka for all workers of a test run: a JVM costs seconds to start and half a gigabyte to keep.

The first worker that needs it starts it and leaves its address in a file; every worker that uses it holds a shared lock
on another file. The one that started it waits at its end until nobody holds that lock, and stops it. All locks go with
the process that holds them, and the broker goes with the worker that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from peers.kafka.broker import running_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextlib.contextmanager
def shared_kafka(folder: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """The bootstrap servers of the Kafka that everybody shares who names the same folder."""
    folder.mkdir(exist_ok=True)
    address = folder / "bootstrap-servers"
    with contextlib.ExitStack() as stack, (folder / "in-use").open("w") as in_use:
        with _locked(folder / "starting"):
            fcntl.flock(in_use, fcntl.LOCK_SH)
            is_starter = not address.exists()
            if is_starter:
                number = len(list(folder.glob("data-*")))
                kafka = stack.enter_context(running_kafka(folder / f"data-{number}", properties=properties))
                address.write_text(kafka.bootstrap_servers, encoding="utf-8")
            servers = address.read_text(encoding="utf-8")
        try:
            yield servers
        finally:
            fcntl.flock(in_use, fcntl.LOCK_UN)
            if is_starter:
                fcntl.flock(in_use, fcntl.LOCK_EX)  # until the last user is gone
                with _locked(folder / "starting"):
                    address.unlink()  # whoever comes now starts one of his own


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
