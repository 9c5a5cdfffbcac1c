"""Numbers as text, read back by Prometheus' own reader."""

import math

from prometheus_client.parser import text_string_to_metric_families

from headrace.telemetry.metrics import (
    BOUNDS_S,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Histogram,
    Samples,
    as_name,
    keep_largest,
    render,
)


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_written_is_what_is_read() -> None:
    size = Family("a_bytes", GAUGE, 'Not "all" of it.', ("topic",))
    seen = Family("seen_total", COUNTER, "Seen.")
    hostile = 'a"} 1\nevil{x="\\'
    text = render(
        [
            Samples(size, [((hostile,), 5), (("ü",), 0.25), (("",), math.inf)]),
            Samples(seen, [((), 2**60)]),
            Samples(Family("none", GAUGE, "Nothing."), []),
        ]
    )
    assert read(text) == {
        ("a_bytes", (("topic", hostile),)): 5,
        ("a_bytes", (("topic", "ü"),)): 0.25,
        ("a_bytes", (("topic", ""),)): math.inf,
        ("seen_total", ()): 2**60,
    }
    assert "none" not in text


def test_a_histogram_adds_up() -> None:
    times = Histogram()
    for seconds in (0.0, BOUNDS_S[0], 0.0003, 7, 1000):
        times.observe(seconds)
    found = read(render([Samples(Family("t_seconds", HISTOGRAM, "Times.", ("api",)), [(("FETCH",), times)])]))
    buckets = {
        float(dict(labels)["le"]): value for (name, labels), value in found.items() if name == "t_seconds_bucket"
    }
    assert list(buckets) == [*BOUNDS_S, math.inf]
    assert (buckets[BOUNDS_S[0]], buckets[0.00025], buckets[0.0005], buckets[5.0], buckets[10.0]) == (2, 2, 3, 3, 4)
    assert times.plus(3, 0.5).counts[0] == 5
    assert buckets[math.inf] == found["t_seconds_count", (("api", "FETCH"),)] == times.count == 5
    assert math.isclose(found["t_seconds_sum", (("api", "FETCH"),)], 1007.0004)


def test_the_largest_are_kept_and_the_rest_is_counted() -> None:
    assert keep_largest([("a", 1.0), ("b", 3.0), ("c", 2.0)], 2) == ([("b", 3.0), ("c", 2.0)], 1)
    assert keep_largest([("a", 1.0)], 2) == ([("a", 1.0)], 0)
    assert keep_largest([("a", 1.0)], 0) == ([], 1)


def test_names_of_others_become_names_that_prometheus_allows() -> None:
    assert [as_name(name) for name in ("org.apache.kafka", "a-b", "9a", "", "ü")] == [
        "org_apache_kafka",
        "a_b",
        "_9a",
        "_",
        "_",
    ]
