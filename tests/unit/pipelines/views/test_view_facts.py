"""What a view knows of itself: Spark's offset log, freshness, what the dashboard is told; and values as JSON."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.dashboard.statuses import join_served, rows
from headrace.pipelines.spark.checkpoint import read_planned
from headrace.pipelines.views.sink import standing_at
from headrace.pipelines.views.status import status_of
from headrace.status import Status
from headrace.stores.errors import BadQuestion
from headrace.stores.views.shape import Column, Shape, key_text, load_key, parse_value, shape_of, show_value
from headrace.stores.views.store import Freshness, Standing

LOG = 'v1\n{"batchWatermarkMs":%d,"batchTimestampMs":1}\n{"posts": {"0": 7, "1": 3}}\n{"follows": {"0": 2}}\n'


@pytest.mark.parametrize(("logged_ms", "watermark_ms"), [(1_700_000_000_000, 1_700_000_000_000), (0, None)])
def test_where_a_batch_stands_is_read_from_sparks_log(tmp_path: Path, logged_ms: int, watermark_ms: int | None) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_text(LOG % logged_ms)
    offsets = {"posts-0": 7, "posts-1": 3, "follows-0": 2}
    assert standing_at(read_planned(tmp_path, 5)) == Standing(offsets, watermark_ms)


def test_freshness_survives_its_store_and_tells_its_age() -> None:
    fresh = Freshness(3, 2, 10, 1_000, Standing({"posts-0": 7}, 500))
    assert Freshness.from_json(fresh.to_json()) == fresh
    told = fresh.shown(4_000)
    assert (told["age_ms"], told["watermark"]) == (3_000, "1970-01-01T00:00:00.500+00:00")


def test_a_shape_survives_its_store() -> None:
    shape = shape_of({"id": "bigint", "price": "decimal(10,2)"}, ("id",))
    assert Shape.from_json(shape.to_json()) == shape


def test_a_key_is_the_text_that_the_jvm_makes_of_it() -> None:
    shape = shape_of({"a": "string", "at": "timestamp", "n": "decimal(5,2)"}, ("a", "at", "n"))
    key = {"a": 'ü\u001f\\u001f"\n', "at": datetime(2026, 1, 1, tzinfo=UTC), "n": Decimal("1.50")}
    text = key_text(shape, key)
    assert text == '{"a":"ü\\u001F\\\\u001f\\"\\n","at":"2026-01-01T00:00:00.000000+00:00","n":"1.50"}'
    assert load_key(shape, text) == key


@pytest.mark.parametrize(
    ("kind", "value", "json"),
    [
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("binary", b"\x00\xff", "AP8="),
        ("map<string,int>", {"a": Decimal("1.5")}, {"a": "1.5"}),
        ("timestamp_ntz", datetime.fromisoformat("2026-01-01T01:02:03"), "2026-01-01T01:02:03.000000"),
    ],
)
def test_values_that_json_has_no_word_for(kind: str, value: object, json: object) -> None:
    assert show_value(Column("x", kind), value) == json


@pytest.mark.parametrize(
    ("kind", "text"), [("bigint", str(2**63)), ("decimal(5,2)", "NaN"), ("boolean", "yes"), ("binary", "%%")]
)
def test_a_value_that_is_none_is_refused(kind: str, text: str) -> None:
    with pytest.raises(BadQuestion, match="x is"):
        parse_value(Column("x", kind), text)


def test_the_dashboard_shows_keeper_and_server_as_one() -> None:
    kept = replace(status_of("feed", "sqlite", ("posts", "follows"), Freshness(3, 2, 10, 800)), at_ms=900)
    served = Status("feed@serve", {"kind": "sqlite", "state": "served", "url": "http://127.0.0.1:8300/views/feed"}, 990)
    other = Status("other@serve", {"state": "served", "url": "http://127.0.0.1:8300/views/other"}, 990)
    found = rows(join_served({one.name: one for one in (kept, served, other)}, 1_000), 1_000)
    assert [(row["name"], row["state"], row["rows"], row["ago_ms"]) for row in found] == [
        ("feed", "running", 10, 100), ("other", "served", None, 10),
    ]  # fmt: skip
    assert found[0]["url"].endswith("/views/feed")
    assert found[0]["source"] == "posts, follows"
    assert not rows(join_served({one.name: one for one in (kept, served)}, 200_000), 200_000)[0]["url"]
