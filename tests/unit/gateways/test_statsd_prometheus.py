"""Whatever names and tags programs choose, Prometheus can read what is told."""

from prometheus_client.parser import text_string_to_metric_families

from headrace.gateways.statsd.aggregation import Aggregating, Counts
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.gateways.statsd.prometheus import Board
from headrace.gateways.statsd.timing import TimerRule, TimerRules


def told(*packets: bytes) -> dict[str, float]:
    """By name and labels; as Prometheus reads it."""
    rules = TimerRules(TimerRule((50.0, -10.0, 90.0)))
    of, board = PlainAggregator(Aggregating(rules=rules)), Board(rules)
    for packet in packets:
        of.feed(packet)
    board.show(of.summaries(of.cut(), 1.0), of.registry.series)
    text = board.render(Counts(), 0, 0)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names)
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(set(lines)) == len(lines)
    return {
        one.name + str(dict(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.startswith("headrace_statsd_")
    }


def test_names_that_become_one() -> None:
    assert told(b"a.b:1|c", b"a-b:2|c") == {"a_b_total{}": 3}


def test_names_of_several_types_and_of_parts_of_others() -> None:
    found = told(b"a:1|c", b"a_total:2|g", b"t:5|ms", b"t_count:7|g", b"t_sum:8|g")
    assert found["a_total{}"] == 1
    assert found["a_total_gauge{}"] == 2
    assert found["t_count{}"] == 1
    assert (found["t_count_gauge{}"], found["t_sum_gauge{}"]) == (7, 8)


def test_tags_that_are_words_of_prometheus() -> None:
    found = told(b"t:5|ms|#quantile:x,__name__:y,a.b:1,a-b:2")
    assert {key for key in found if key.startswith("t_count")} == {
        "t_count{'a_b': '1', 'exported___name__': 'y', 'exported_quantile': 'x'}"
    }


def test_text_that_would_break_out_of_a_label() -> None:
    assert told(b'a:1|c|#t:x"} 7\\') == {"a_total{'t': 'x\"} 7\\\\'}": 1}


def test_names_that_are_ours() -> None:
    assert "packets_counter_total{}" in told(b"headrace_statsd_packets:5|c")


def test_counters_only_grow() -> None:
    of, board = PlainAggregator(Aggregating()), Board(TimerRules())
    for packet in (b"a:5|c", b"a:-7|c", b"a:1|c"):
        of.feed(packet)
        board.show(of.summaries(of.cut(), 1.0), of.registry.series)
    assert "\na_total 6" in board.render(Counts(), 0, 0)


def test_percentiles_are_told_as_they_are_written() -> None:
    rules = TimerRules(TimerRule((99.9, 99.99, 7.0)))
    of, board = PlainAggregator(Aggregating(rules=rules)), Board(rules)
    of.feed(b"t:" + b":".join(b"%d" % value for value in range(100)) + b"|ms")
    board.show(of.summaries(of.cut(), 1.0), of.registry.series)
    text = board.render(Counts(), 0, 0)
    assert all(f'quantile="{share}"' in text for share in ("0.999", "0.9999", "0.07"))


def test_what_is_forgotten_is_not_told() -> None:
    of, board = PlainAggregator(Aggregating(forget_after=1)), Board(TimerRules())
    of.feed(b"a:1|c")
    for _ in range(2):
        board.show(of.summaries(of.cut(), 1.0), of.registry.series)
    assert "a_total" not in board.render(Counts(), 0, 0)
