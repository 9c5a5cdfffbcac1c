"""What is remembered of Idempotency-Keys, whatever the clock does."""

from typing import Any, cast

from headrace.client.address import parse_bootstrap
from headrace.gateways.gateway import Progress
from headrace.gateways.http.idempotency import Idempotency, _Known
from headrace.gateways.http.producing import Producing

KEEP_MS = 1_000


def test_keys_are_forgotten_though_the_clock_was_ahead_for_a_while() -> None:
    remembered = Idempotency("web", cast(Producing, None), parse_bootstrap("127.0.0.1:1"), KEEP_MS, Progress())
    known: dict[str, Any] = {"ahead": _Known("", 10**12, None)}
    known |= {str(number): _Known("", 100 + number, None) for number in range(30)}
    gone = [key for now_ms in (200, 5_000, 5_001) for key, *_ in remembered._forgotten(known, now_ms)]
    assert gone == [*(b"%d" % number for number in range(30)), b"ahead"]
    assert not known
