"""What an outbox remembers, in SQLite and PostgreSQL: one sender at a time, what was given up, what is forgotten."""

import json
import time
from pathlib import Path

import pytest

from headrace.pipelines.sink.effects.delivery import Deliveries, Pace
from headrace.pipelines.sink.effects.ledger import Result, open_ledger
from headrace.stores.batch import Numbered, Target

TARGET = Target("headrace_outbox", "mail:listings", on_new_query="continue")
QUICK = Pace(attempts=2, first_pause_s=3_600.0, longest_pause_s=3_600.0, parallel=2)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/outbox.db"
    return str(request.getfixturevalue("postgres_server").url)


def test_one_sends_at_a_time_and_what_was_sent_long_ago_is_forgotten(store: str) -> None:
    with open_ledger(store, TARGET) as first:
        assert first.try_alone()
        assert first.try_alone(), "it is its own"
        with open_ledger(store, TARGET) as second:
            assert not second.try_alone()
            with open_ledger(store, Target("headrace_outbox", "mail:others", on_new_query="continue")) as other:
                assert other.try_alone(), "of another name there may be one, too"
        first.take_in(Numbered("t", 0), [(f"k{number}", None, json.dumps({"n": number})) for number in range(3)])
        pending = first.pending(0, 10)
        first.remember([Result(pending[0]), Result(pending[1], "no", final=True)], 3)
        assert first.count_failed() == 1
        now_ms = time.time_ns() // 1_000_000
        first.forget_done(now_ms - 3_600_000)
        assert first.counts() == {"done": 1, "failed": 1, "waiting": 1, "sending": 0}
        first.forget_done(now_ms + 3_600_000)
        assert first.counts() == {"done": 0, "failed": 1, "waiting": 1, "sending": 0}
    with open_ledger(store, TARGET) as second:
        assert second.try_alone(), "the first has ended"


def test_what_is_tried_later_holds_up_nothing_and_what_waits_again_is_found(store: str) -> None:
    """The pause is an hour: whoever comes meanwhile is sent at once."""
    sent: list[int] = []
    refuses = {0}

    def send(record: object, _: str) -> None:
        assert isinstance(record, dict)
        if record["n"] in refuses:
            raise ConnectionError("later")
        sent.append(record["n"])

    now = [0.0]
    with open_ledger(store, Target("headrace_outbox", "other", on_new_query="continue")) as ledger:
        ledger.take_in(Numbered("t", 0), [("a", None, '{"n": 0}'), ("b", None, '{"n": 1}')])
        with Deliveries(ledger, send, QUICK, clock=lambda: now[0]) as deliveries:
            deliveries.load()
            while 1 not in sent:
                deliveries.turn(1.0)
            for number in (2, 3):
                ledger.take_in(Numbered("t", number), [(f"c{number}", None, json.dumps({"n": number}))])
                deliveries.load()
                while number not in sent:
                    deliveries.turn(1.0)
            assert not deliveries.is_idle
            now[0] += 4_000.0
            while ledger.count_failed() == 0:
                deliveries.turn(1.0)
            refuses.clear()
            ledger.retry_failed()
            deliveries.load(is_anew=True)
            while 0 not in sent:
                deliveries.turn(1.0)
        assert sent == [1, 2, 3, 0]
