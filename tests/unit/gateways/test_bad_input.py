"""Bad input is counted each time and said now and then."""

import pytest

from headrace.gateways import bad_input
from headrace.gateways.bad_input import BadInput
from headrace.gateways.gateway import Progress


def test_it_is_counted_each_time_and_said_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    said: list[dict[str, object]] = []
    monkeypatch.setattr(bad_input.time, "monotonic", lambda: now[0])

    class Log:
        def warning(self, _: str, **facts: object) -> None:
            said.append(facts)

    monkeypatch.setattr(bad_input, "_log", Log())
    found = BadInput("door", Progress())
    for _ in range(1000):
        found.refuse("no\x1b[31m number" + "x" * 10_000, "127.0.0.1:7")
    now[0] += 1.5
    found.refuse("empty", count=3)
    assert found.progress.refused == 1003
    assert [facts.get("not_said") for facts in said] == [None, 999]
    assert "\x1b" not in str(said[0]["why"])
    assert len(str(said[0]["why"])) < 300
