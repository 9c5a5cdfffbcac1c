"""What a user says about a capture: a section `[cdc.NAME]` of `headrace.toml`, or the options of a command.

    [cdc.shop]
    url = "postgresql://headrace:${SHOP_PASSWORD}@127.0.0.1/shop"
    tables = ["public.orders", "public.customers"]

What is not listed here belongs to the source: see the settings of its kind.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.connect.capture.kinds import LOG, Kind, kind_of
from headrace.connect.delivery import TopicSettings
from headrace.connect.envelope import AVRO, FORMATS, JSON
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters
from headrace.connect.naming import TopicNames
from headrace.connect.sections import InvalidSettingsFile, checked, shown_address
from headrace.records import Codec

SECTION: Final = "cdc"
_FILTERS: Final = {
    "tables": ("include_tables", list), "exclude_tables": ("exclude_tables", list),
    "columns": ("include_columns", list), "exclude_columns": ("exclude_columns", list),
    "mask_columns": ("mask_columns", list), "hash_columns": ("hash_columns", list), "hash_salt": ("hash_salt", str),
    "truncate_columns": ("truncate_columns", dict), "key_columns": ("key_columns", dict),
}  # fmt: skip
_WRITING: Final[Mapping[str, type]] = {
    "schemas": bool, "tombstones": bool, "unwrap": str, "skipped_operations": list, "transaction_metadata": bool,
    "outbox_prefix": str, "format": str,
}  # fmt: skip
_OWN: Final[Mapping[str, type]] = {
    "url": str, "method": str, "prefix": str, "topic": str, "partitions": int, "compression": str, "types": dict,
    "registry": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """One capture; `source` are the settings of its kind."""

    name: str
    kind: Kind
    source: Any = field(repr=False)  # its URL may hold a password
    filters: Filters
    names: TopicNames
    topics: TopicSettings
    writing: Mapping[str, Any]
    registry: str = field(default="", repr=False)  # as may this
    database: str = ""  # where it is, as others may see it


def from_section(name: str, section: Mapping[str, Any]) -> CaptureSettings:
    """One section, checked; raises before anything is done."""
    where = f"{SECTION}.{name}"
    if "url" not in section:
        raise InvalidSettingsFile(f'section [{where}] has no url: add url = "postgresql://…"')
    url = str(section["url"])
    kind = kind_of(url, str(section.get("method", LOG)))
    known = {**_OWN, **{key: of for key, (_, of) in _FILTERS.items()}, **_WRITING, **kind.options}
    given = checked(where, section, known)
    filters = Filters(**{_FILTERS[key][0]: value for key, value in given.items() if key in _FILTERS})
    options = _named(name, kind) | {key: value for key, value in given.items() if key in kind.options}
    writing = {key: value for key, value in given.items() if key in _WRITING}
    if "skipped_operations" in writing:
        writing["skipped_operations"] = frozenset(writing["skipped_operations"])
    registry = given.get("registry", "")
    check_format(where, writing.get("format", JSON), registry)
    template = {"template": given["topic"]} if "topic" in given else {}
    return CaptureSettings(
        name,
        kind,
        kind.configured(url, filters, options, given.get("types", {})),
        filters,
        TopicNames(given.get("prefix", name), **template),
        TopicSettings(given.get("partitions", 1), codec=Codec.named(given.get("compression", "none"))),
        writing,
        registry,
        shown_address(url),
    )


def check_format(where: str, form: str, registry: str) -> None:
    """Refuse a format that there is not, and a registry that would not be asked."""
    if form not in FORMATS:
        raise InvalidConnectSetting(f"{where}.format", form, f"choose {' or '.join(FORMATS)}")
    if registry and form != AVRO:
        raise InvalidConnectSetting(f"{where}.registry", "…", 'only Avro has one: add format = "avro"')


def _named(name: str, kind: Kind) -> dict[str, str]:
    """What a capture is called in the database, unless it is said: two of them must not take each other's place."""
    word = "headrace_" + re.sub(r"[^a-z0-9_]", "_", name.lower())[:32]
    return {key: word for key in ("slot", "capture") if key in kind.options}
