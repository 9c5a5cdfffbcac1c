"""`kind = "statsd"`: what programs send as StatsD or DogStatsD, aggregated into topics."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind, Overload, Progress
from headrace.gateways.inward import inlet_of, inward_keys
from headrace.gateways.statsd.parse import Sanitise
from headrace.gateways.statsd.settings import DELTA, VALUE, from_section
from headrace.gateways.streams import CONNECTIONS
from headrace.model import check_topic_name
from headrace.section_keys import Key, port


def _make(name: str, section: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.statsd.server import StatsdGateway

    settings = from_section(name, section)
    inlet = inlet_of(name, section, settings.topics, bootstrap, Progress())
    return StatsdGateway(settings, inlet, stopping)


KIND: Final = GatewayKind(
    "statsd",
    "Metrics, events and service checks that programs send as StatsD or DogStatsD, aggregated by interval.",
    (
        Key("host", str, "Where to listen; another than loopback has to be said to be meant, with insecure.",
            "127.0.0.1"),
        port("port", "Where to listen, for UDP and TCP.", 8125, transports=("udp", "tcp")),
        Key("udp", bool, "Listen for UDP packets.", True),
        Key("tcp", bool, "Listen for lines over TCP.", False),
        Key("unix", str, "The path of a Unix datagram socket to listen on."),
        Key("unix_mode", str, "Its mode, such as 0660: who may send."),
        Key("unix_stream", str, "The path of a Unix stream socket: lines, or packets with their length before them."),
        Key("insecure", bool, "Let anybody send who can reach another host than loopback: the protocol has no logins.",
            False),
        Key("certificate", str, "A PEM file of a private key and its certificates, to speak TLS over TCP."),
        Key("clients", str, "A PEM file of authorities: over TCP only certificates that they signed are let in."),
        Key("connections", int, "How many may be open at once.", CONNECTIONS, least=1, most=100_000),
        Key("idle_s", float, "After how many seconds of silence a connection is closed; 0 is never.", 0.0, least=0),
        Key("topic", str, "Where metrics go; by default a topic with the section's name.", check=check_topic_name),
        Key("events_topic", str, "Where events go; by default TOPIC-events.", check=check_topic_name),
        Key("checks_topic", str, "Where service checks go; by default TOPIC-checks.", check=check_topic_name),
        Key("interval_s", float, "How long an interval is.", 10.0, least=0.1, most=3600),
        Key("percentiles", str, "Of timers, histograms and distributions; those below 0 are from the top.", "90"),
        Key("buckets", str, "Upper ends of their buckets, such as 10 100 inf."),
        Key("rules", list, "Other percentiles and buckets by name: api.*: percentiles 50 99; buckets 10 100 inf."),
        Key("zeros", bool, "Write a record of nothing for counters, timers and sets without a value.", False),
        Key("keep_gauges", bool, "Write the last value of gauges that were not set again.", True),
        Key("forget_after_s", float, "How long a series is known without a value; 0 is for ever.", 3600.0, least=0),
        Key("sanitise", str, "What is put into letters, digits, '.', '_' and '-': names, all (tags too), or none.",
            Sanitise.NAMES.value, choices=tuple(each.value for each in Sanitise)),
        Key("signed_gauges", str, "What +1 and -1 mean for a gauge: delta, as in StatsD, or value, as in DogStatsD.",
            DELTA, choices=(DELTA, VALUE)),
        Key("container_tag", str, "A tag that holds the container's id, if it is to tell series apart."),
        Key("internal", str, "What the names of the gateway's own metrics begin with; none has none.", "statsd"),
        Key("max_series", int, "How many series there may be at once.", 100_000, least=1, most=10_000_000),
        Key("max_samples", int, "How many values of a timer are kept in an interval; of more, a sample.", 10_000,
            least=8, most=1_000_000),
        Key("max_members", int, "How many members of a set are counted exactly; of more, an estimate.", 10_000,
            least=8, most=1_000_000),
        Key("max_line", int, "How many bytes a line may have.", 8192, least=16, most=65_507),
        Key("receivers", int, "How many threads take UDP packets, each from a socket of its own.", 1, least=1, most=64),
        Key("receive_buffer", int, "Bytes that the kernel holds for each of them, if it may.", 8 * 1024 * 1024,
            least=4096, most=1024 * 1024 * 1024),
        Key("metrics_host", str, "Where Prometheus is answered.", "127.0.0.1"),
        port("metrics_port", "Where Prometheus reads /metrics; without it, nowhere."),
        Key("metrics_tokens", str, "A file of tokens for who may read them, which `headrace user token` writes."),
        Key("metrics_certificate", str, "A PEM file of a private key and its certificates, to answer over TLS."),
        *inward_keys(Overload.DROP_OLDEST),
    ),
    from_section,
    _make,
)  # fmt: skip
