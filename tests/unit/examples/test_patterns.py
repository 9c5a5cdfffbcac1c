"""The examples of patterns: which matches come out of what they plant among thousands of events, and no others."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "patterns"


def found(file, pattern, **options):
    example = runpy.run_path(str(FOLDER / file))
    events = list(example["events"]())
    assert len(events) > 1_000
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
    return list(example[pattern].matches(events, **options))


@pytest.mark.parametrize(
    ("file", "pattern", "key", "expected"),
    [
        ("card_fraud.py", "SMALL_THEN_LARGE", "card", [("c07", 300 * 60_000, 300 * 60_000 + 40_000)]),
        ("card_fraud.py", "IMPOSSIBLE_TRAVEL", "card", [("c62", 700 * 60_000, 725 * 60_000)]),
        ("trade_surveillance.py", "WASH_TRADE", "symbol", [("ACME", 900_000, 930_000)]),
        ("machinery.py", "OVERHEATED", "machine", [("m03", 3605_000, 3665_000, 3725_000, 3785_000)]),
    ],
)
def test_what_is_planted_is_found(file, pattern, key, expected):
    matches = found(file, pattern, key=key, time="at")
    assert [(*match.key, *(event.values["at"] for _, event in match)) for match in matches] == expected


def test_silence_is_known_when_its_time_is_over():
    (match,) = found("machinery.py", "OVERHEATED", key="machine", time="at")
    assert match.time_us == 3815_000_000


def test_a_v_in_a_price_has_its_measures():
    (match,) = found("trade_surveillance.py", "V_SHAPE")
    assert match.output == ({"symbol": "SOYLENT", "before": 80, "lowest": 71, "after": 80.2, "falls": 4, "sold": 3600},)


def test_an_intrusion_is_found_in_either_order():
    matches = found("intrusion.py", "INTRUSION", key="account", time="at")
    moves = [(match.key[0], [name for name, _ in match if name != "failure"]) for match in matches]
    assert moves == [
        ("u04", ["entry", "rights", "blindness", "theft"]),
        ("u09", ["entry", "blindness", "rights", "theft"]),
    ]
    assert all(len(match["failure"]) >= 3 for match in matches)
