"""`kind = "file"`: log files that are followed into a topic."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.errors import GatewayError
from headrace.gateways.files.follower import Follower, FollowSettings
from headrace.gateways.files.following import LINE_BYTES
from headrace.gateways.gateway import GatewayKind
from headrace.model import check_topic_name
from headrace.records import Codec
from headrace.section_keys import Key


def from_section(name: str, section: Mapping[str, Any]) -> FollowSettings:
    """What a section says; raises the first thing that is wrong with a value."""
    topic = section.get("topic") or name
    check_topic_name(topic)
    paths = tuple(section.get("paths") or ())
    if not paths:
        raise GatewayError(f'[gateways.{name}] follows no file: write paths = ["/var/log/nginx/access.log"]')
    if not all(isinstance(path, str) and path for path in paths):
        raise GatewayError(f"[gateways.{name}] has a path in paths that is no text or empty: name a file, or a pattern")
    return FollowSettings(
        name,
        paths,
        topic,
        from_end=section.get("from") == "end",
        with_path=section.get("key") == "path",
        header=section.get("header"),
        line_bytes=section.get("max_line") or LINE_BYTES,
        codec=Codec.named(section.get("compression") or "none"),
    )


def _make(name: str, section: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Follower:
    return Follower(from_section(name, section), bootstrap, stopping=stopping)


KIND: Final = GatewayKind(
    "file",
    "Log files that are followed, through rotations and restarts: a line, a record, once.",
    (
        Key("paths", list, "The files that are followed, also as patterns; rotated ones are found beside them.",
            is_needed=True),
        Key("topic", str, "Where lines go; by default a topic with the section's name.", check=check_topic_name),
        Key("from", str, "Where the first start of all begins in files that are there.", "start",
            choices=("start", "end")),
        Key("key", str, "The key of a record: none, or the path.", "none", choices=("none", "path")),
        Key("header", str, "The name of a header with the path, if one is wanted."),
        Key("max_line", int, "How many bytes of a line are kept.", LINE_BYTES, least=1, most=16 * 1024 * 1024),
        Key("compression", str, "How batches are compressed.", "none",
            choices=tuple(codec.name.lower() for codec in Codec)),
    ),
    from_section,
    _make,
)  # fmt: skip
