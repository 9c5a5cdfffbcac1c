import io
import json
import logging
from collections.abc import Iterator

import pytest

from headrace.telemetry import logs


@pytest.fixture
def captured() -> Iterator[io.StringIO]:
    root = logging.getLogger("headrace")
    before = (root.handlers, root.level, root.propagate)
    yield io.StringIO()
    root.handlers, root.level, root.propagate = before


def log_to(stream: io.StringIO, **options: object) -> None:
    logs.configure(**options)  # type: ignore[arg-type]
    handler = logging.getLogger("headrace").handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)


def test_a_line_for_people_has_time_level_event_and_facts(captured: io.StringIO) -> None:
    log_to(captured)
    logs.get_logger("headrace.x").warning("recovered", log="orders-0", cut_at="a file at byte 7", nothing="")
    time, rest = captured.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "warning recovered log=orders-0 cut_at='a file at byte 7' nothing=''\n"


def test_a_line_for_programs_is_one_json_object(captured: io.StringIO) -> None:
    log_to(captured, as_json=True)
    logs.get_logger("headrace.x").error("failed", count=3, what=["é"])
    line = json.loads(captured.getvalue())
    assert {key: line[key] for key in ("level", "event", "count", "what")} == {
        "level": "error",
        "event": "failed",
        "count": 3,
        "what": ["é"],
    }


def test_what_is_below_the_level_is_not_said(captured: io.StringIO) -> None:
    log_to(captured, level="error")
    logs.get_logger("headrace.x").info("chatter")
    assert captured.getvalue() == ""


def test_an_application_hears_events_through_its_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "headrace"):
        logs.get_logger("headrace.x").info("compacted", before=10)
    (record,) = caplog.records
    assert (record.getMessage(), record.facts) == ("compacted", {"before": 10})  # type: ignore[attr-defined]
