"""Numbers and times at a glance."""

import pytest

from headrace.dashboard.format import (
    count,
    duration,
    moment,
    pretty,
    sentence,
    setting,
    setting_meaning,
    short,
    size,
    text,
)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(None, "–"), (0, "0"), (0.256, "0.26"), (3.14, "3.1"), (123.4, "123"), (9999, "9,999"), (12_345, "12.3 k"),
     (1_240_000, "1.24 M"), (999_999, "1000 k"), (5e9, "5.00 G")],
)  # fmt: skip
def test_short(number, shown):
    assert short(number) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(None, "–"), (0, "0 ms"), (1500, "1.5 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_000_000, "1 d 1 h"),
     (2**62, "years")],
)  # fmt: skip
def test_duration(ms, shown):
    assert duration(ms) == shown


def test_others():
    assert [count(1234567), size(None), size(1536), moment(0), moment(-1), moment(2**62)] == [
        "1,234,567", "–", "1.5 KiB", "1970-01-01 00:00:00.000", "–", str(2**62),
    ]  # fmt: skip
    assert text(b"\xff") == "0xff"
    assert [sentence("no broker"), sentence("There.")] == ["No broker.", "There."]
    assert pretty('{"a":1}') == '{\n  "a": 1\n}'
    assert pretty("{no json") == "{no json"


def test_secrets_are_not_told():
    assert setting("sasl.jaas.config", "user=x") == setting("ssl.key.password", "x") == setting("any", None) == "hidden"
    assert setting("retention.ms", "5") == "5"


def test_what_a_setting_means():
    assert setting_meaning("retention.ms", "604800000") == "7 d"
    assert setting_meaning("retention.bytes", "-1") == "no limit"
    assert setting_meaning("flush.ms", str(2**63 - 1)) == "for ever"
    assert setting_meaning("segment.bytes", str(2**30)) == "1.0 GiB"
    assert setting_meaning("cleanup.policy", "delete") == ""
