"""What buckets say of their patterns, added up."""

import json
from typing import Any

from headrace.pipelines.jobs.patterns import NOTHING, KeyPartial
from headrace.pipelines.observed import PATTERNS, describe


def said(bucket: int, events: int, *patterns: dict[str, Any], changed: int = 0) -> str:
    return json.dumps({"bucket": bucket, "events": events, "changed": changed, "patterns": patterns})


def one(name: str = "p", version: str | None = None, **counts: Any) -> dict[str, Any]:
    plain = {"matches": 0, "timed_out": 0, "dropped": 0, "partial": 0, "new": 0, "keys": []}
    return {"name": name, "version": version, **plain, **counts}


def observed(*texts: str, name: str = f"{PATTERNS}.1") -> dict[str, Any]:
    return {name: {"buckets": list(texts)}, "headrace.late.2": {"late": 1, "no_time": 0}}


def test_the_last_word_of_each_bucket_counts() -> None:
    stand = NOTHING.heard(observed(said(1, 5, one(matches=2, new=2, partial=1, keys=[["a", 1]]))))
    stand = stand.heard(observed(said(2, 3, one(matches=1, new=1, dropped=4, keys=[["b", 7]]))))
    stand = stand.heard(observed(said(1, 9, one(matches=3, new=1, partial=0))))
    assert stand.events == 12
    (found,) = stand.patterns
    assert (found.name, found.state, found.matches, found.dropped, found.partial) == ("p", "running", 4, 4, 0)
    assert found.matches_in_batch == 1  # the other bucket had nothing to say in this micro-batch
    assert found.keys == (KeyPartial("b", 7),)
    assert json.loads(json.dumps(found.as_json()))["keys"] == [{"key": "b", "partial": 7}]


def test_a_bucket_may_speak_twice_in_a_batch() -> None:
    stand = NOTHING.heard(observed(said(1, 5, one(matches=2, new=2)), said(1, 5, one(matches=3, new=1))))
    assert [(each.matches, each.matches_in_batch) for each in stand.patterns] == [(3, 3)]


def test_several_operators_and_patterns() -> None:
    stand = NOTHING.heard(
        observed(said(1, 5, one("a", matches=1), one("b", matches=2)))
        | observed(said(1, 4, one()), name=f"{PATTERNS}.7")
    )
    assert [(each.name, each.matches) for each in stand.patterns] == [("a", 1), ("b", 2), ("p", 0)]
    assert stand.events == 9


def test_a_pattern_that_was_removed_is_gone_and_a_newer_version_counts_alone() -> None:
    stand = NOTHING.heard(observed(said(1, 5, one("a", "0", matches=7), one("b", "1")), said(2, 1, one("b", "1"))))
    stand = stand.heard(observed(said(2, 1, one("b", "5", matches=1, state="paused"), changed=5)))
    assert [(each.name, each.version, each.matches, each.state) for each in stand.patterns] == [("b", "5", 1, "paused")]


def test_what_a_pattern_looks_like_is_told_where_the_query_is_made() -> None:
    describe(f"{PATTERNS}.99", {"p": {"boxes": []}})
    stand = NOTHING.heard(observed(said(1, 0, one()), name=f"{PATTERNS}.99"))
    assert stand.patterns[0].diagram == {"boxes": []}
    stand = NOTHING.heard(observed(said(1, 0, one("x", "3", text='Pattern.begin("a", "x < 1")'), one("y", text="("))))
    assert [each.diagram is None for each in stand.patterns] == [False, True]
