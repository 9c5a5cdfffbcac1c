"""What a StatsD gateway is asked to do, from its section."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.statsd.aggregation import Aggregating
from headrace.gateways.statsd.parse import Dialect, Sanitise, sanitised
from headrace.gateways.statsd.timing import TimerRule, TimerRules, check_buckets, check_percentile, read_rule
from headrace.gateways.streams import StreamSettings, check_host
from headrace.model import check_topic_name
from headrace.serving.access import Access

VALUE, DELTA = "value", "delta"
NO_PREFIX: Final = "none"
_MOST_PATH: Final = 107  # bytes, of a socket


@dataclass(frozen=True, slots=True)
class StatsdSettings:
    name: str
    topic: str
    events_topic: str
    checks_topic: str
    aggregating: Aggregating
    host: str = "127.0.0.1"
    port: int = 8125
    udp: bool = True
    unix: str = ""
    unix_mode: int | None = None
    streams: StreamSettings | None = None
    interval_s: float = 10.0
    internal: str = "statsd"  # before the names of our own metrics; empty for none
    receivers: int = 1
    receive_buffer: int = 8 * 1024 * 1024
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    metrics_tokens: str = ""
    metrics_certificate: str = ""

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys((self.topic, self.events_topic, self.checks_topic)))


def from_section(name: str, section: Mapping[str, Any]) -> StatsdSettings:
    """What a section with its defaults says; raises the first thing that is wrong with a value."""
    where = f"[gateways.{name}]"
    topic = section.get("topic") or name
    events, checks = section.get("events_topic") or f"{topic}-events", section.get("checks_topic") or f"{topic}-checks"
    for each in (topic, events, checks):
        check_topic_name(each)
    if not (section["udp"] or section["tcp"] or section.get("unix") or section.get("unix_stream")):
        raise GatewayError(f"{where} listens nowhere: write udp = true, tcp = true, or a path as unix")
    check_host(where[1:-1], section)
    paths = [section.get("unix") or "", section.get("unix_stream") or ""]
    for path in paths:
        if "\0" in path or len(path.encode(errors="surrogatepass")) > _MOST_PATH:
            raise GatewayError(f"{where} has a path {path!r}: a socket's has at most {_MOST_PATH} bytes, and no zero")
    if paths[0] and paths[0] == paths[1]:
        raise GatewayError(f"{where} has the same path as unix and as unix_stream: packets and streams need two")
    streams = None
    if section["tcp"] or paths[1]:
        asked = {**section, "port": section["port"] if section["tcp"] else None, "unix": paths[1]}
        streams = StreamSettings.of(where[1:-1], asked)
    internal = section["internal"]
    if internal != NO_PREFIX and (not internal or sanitised(internal) != internal):
        raise GatewayError(f"{where} has internal = {internal!r}: a name of letters, digits, '.', '_' and '-', or none")
    if section.get("metrics_port") is not None:
        # Who may look is checked here, and its files when it listens.
        Access(
            section["metrics_host"], token="?" * 16 if section.get("metrics_tokens") else None,
            certificate=section.get("metrics_certificate") or "",
        )  # fmt: skip
    return StatsdSettings(
        name, topic, events, checks, _aggregating(section),
        host=section["host"], port=section["port"], udp=section["udp"], unix=paths[0],
        unix_mode=_mode(section.get("unix_mode"), where), streams=streams,
        interval_s=float(section["interval_s"]), internal="" if internal == NO_PREFIX else internal,
        receivers=section["receivers"], receive_buffer=section["receive_buffer"],
        metrics_host=section["metrics_host"],
        metrics_port=section.get("metrics_port"), metrics_tokens=section.get("metrics_tokens") or "",
        metrics_certificate=section.get("metrics_certificate") or "",
    )  # fmt: skip


def _aggregating(section: Mapping[str, Any]) -> Aggregating:
    usual = TimerRule(
        tuple(check_percentile(each) for each in section["percentiles"].split()),
        check_buckets((section.get("buckets") or "").split()),
    )
    forget_s = section["forget_after_s"]
    return Aggregating(
        Dialect(
            Sanitise(section["sanitise"]), section["signed_gauges"] == DELTA, section.get("container_tag") or "",
            section["max_line"],
        ),
        TimerRules(usual, tuple(read_rule(each, usual) for each in section.get("rules") or ())),
        zeros=section["zeros"], keep_gauges=section["keep_gauges"],
        forget_after=-int(-forget_s // float(section["interval_s"])) if forget_s else 0,
        series=section["max_series"], samples=section["max_samples"], members=section["max_members"],
    )  # fmt: skip


def _mode(written: str | None, where: str) -> int | None:
    if not written:
        return None
    try:
        mode = int(written, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise GatewayError(f"{where} has unix_mode = {written!r}: write it as chmod takes it, such as 0660")
    return mode
