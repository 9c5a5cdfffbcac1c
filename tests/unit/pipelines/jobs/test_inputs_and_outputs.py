"""From a declaration to the options of the source and the sink."""

import pytest

from headrace.pipelines import topic
from headrace.pipelines.errors import BadOption
from headrace.pipelines.jobs.endpoints import check_input, check_output, connector_options, sink_options, source_options

HERE = "127.0.0.1:9092"


def test_a_job_reads_all_of_its_topic_unless_it_says_otherwise() -> None:
    assert source_options(topic("orders").as_input(), HERE) == {
        "bootstrap": HERE,
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }
    chosen = topic("orders", startingTimestamp=5, bootstrap="there:1").as_input()
    assert source_options(chosen, HERE) == {"bootstrap": "there:1", "subscribe": "orders", "startingTimestamp": "5"}


def test_a_reset_goes_before_what_the_job_says() -> None:
    starts = '{"orders": {"0": 7}}'
    found = source_options(topic("orders", StartingGroup="billing").as_input(), HERE, starts)
    assert found == {"bootstrap": HERE, "subscribe": "orders", "startingOffsets": starts}


def test_several_topics_are_read_by_pattern() -> None:
    checked = check_input(topic("all", subscribePattern="orders-.*").as_input(), HERE, jvm=False)
    assert (checked.pattern, checked.topics) == ("orders-.*", ())


def test_a_misspelt_option_is_told_before_spark_starts() -> None:
    with pytest.raises(BadOption, match="did you mean 'format'"):
        check_input(topic("orders", fromat="json", schema="n long").as_input(), HERE, jvm=False)
    with pytest.raises(BadOption, match="did you mean 'compression'"):
        check_output(topic("orders", compresion="lz4").as_output(), HERE)


def test_real_time_mode_reads_what_the_jvm_can_decode() -> None:
    with pytest.raises(BadOption, match="real-time mode reads raw values, or JSON with a schema"):
        check_input(topic("orders", format="json").as_input(), HERE, jvm=True)
    assert check_input(topic("orders").as_input(), HERE, jvm=True).format == "raw"


def test_security_goes_to_the_jvm_connector_too() -> None:
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    checked = check_input(topic("orders", **options).as_input(), HERE, jvm=True)
    assert connector_options(checked.bootstrap, checked.connection) == {"kafka.bootstrap.servers": HERE, **options}
    assert sink_options(topic("out", **options).as_output(), HERE) == {"bootstrap": HERE, "topic": "out", **options}
