"""The watch over the event loop sees what it is there for, in this process and in another, and nothing else."""

import json
import time
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.broker.registry import HANDLERS
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.integration.wire import Wire


def ask_with(
    run: object, monkeypatch: pytest.MonkeyPatch, stalls_folder: Path, times: int = 1
) -> list[dict[str, object]]:
    """The stalls that are written down while a broker answers Metadata with `run`."""
    monkeypatch.setitem(HANDLERS, ApiKey.METADATA, HANDLERS[ApiKey.METADATA]._replace(run=run))  # type: ignore[arg-type]
    with Broker(durability="os") as broker, Wire(broker.bootstrap_servers) as wire:
        for _ in range(times):
            wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    return [json.loads(line) for file in stalls_folder.glob("*.stalls") for line in file.read_text().splitlines()]


def work_for(seconds: float) -> MetadataResponse:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return MetadataResponse()


@pytest.mark.holds_the_loop
def test_a_handler_that_works_too_long_is_seen(monkeypatch: pytest.MonkeyPatch, stalls_folder: Path) -> None:
    (stall,) = ask_with(lambda *_: work_for(0.2), monkeypatch, stalls_folder)
    assert 150 <= int(str(stall["held_ms"])) <= 400


def test_one_that_is_not_let_run_is_not_blamed(monkeypatch: pytest.MonkeyPatch, stalls_folder: Path) -> None:
    def stand_aside(*_: object) -> MetadataResponse:
        time.sleep(0.2)  # as if others had the processor
        return MetadataResponse()

    assert ask_with(stand_aside, monkeypatch, stalls_folder) == []


def test_many_that_are_short_are_not_added_up(monkeypatch: pytest.MonkeyPatch, stalls_folder: Path) -> None:
    assert ask_with(lambda *_: work_for(0.02), monkeypatch, stalls_folder, times=20) == []
