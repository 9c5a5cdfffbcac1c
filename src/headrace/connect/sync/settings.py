"""What a user says about derived systems: a section `[sync.NAME]` of `headrace.toml` for each of them.

    [sync.orders-cache]
    topic = "shop.public.orders"
    sink = "redis"
    url = "redis://127.0.0.1:6379/0"
    prefix = "orders:"

What is not listed here belongs to the sink: see the options of its class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.connect.sections import InvalidSettingsFile, checked, shown_address
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.feed import BatchLimits
from headrace.dead_letters import topic_for
from headrace.forgetting.keyring import Keyring
from headrace.model import check_topic_name

SECTION = "sync"
ENVELOPES, DEFAULT_LIMITS = RecordFormat(), BatchLimits()


@dataclass(frozen=True, slots=True)
class SyncSettings:
    name: str
    topic: str
    sink: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # they may hold secrets
    form: RecordFormat = ENVELOPES
    limits: BatchLimits = DEFAULT_LIMITS
    dead_letters: str = ""
    first_pause_s: float = 0.2
    longest_pause_s: float = 30.0
    open: bool = False  # sealed values are opened, and rewritten once their subject is forgotten

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        if self.dead_letters:
            check_topic_name(self.dead_letters)

    @property
    def dead_letters_topic(self) -> str:
        """Where records go that cannot be used."""
        return topic_for(self.topic, self.dead_letters)

    @property
    def target(self) -> str:
        """What it keeps in step, as others may see it: no secret of its options is in it."""
        store = shown_address(str(self.options.get("url") or self.options.get("path") or ""))
        if self.sink == "webhook":
            store = store.partition("/")[0]  # the path of a webhook is often its secret
        inside = self.options.get("table") or self.options.get("index")
        if "prefix" in self.options:
            inside = f"{self.options['prefix']}*"
        return " ".join(str(part) for part in (inside, "in" if inside and store else "", store) if part)


OWN_KEYS = {
    "topic": str, "sink": str, "format": str, "registry": str, "value": str, "key": str, "key_column": str,
    "value_column": str, "batch_records": int, "batch_bytes": int, "dead_letters": str, "first_pause_s": float,
    "longest_pause_s": float, "open": bool,
}  # fmt: skip
_FORM = ("format", "registry", "value", "key", "key_column", "value_column")


def from_section(name: str, section: Mapping[str, Any], keys: Keyring | None = None) -> SyncSettings:
    """One section, checked; with `open`, sealed values are opened by `keys`."""
    where = f"{SECTION}.{name}"
    own = checked(where, {key: value for key, value in section.items() if key in OWN_KEYS}, OWN_KEYS)
    for key in ("topic", "sink"):
        if key not in own:
            raise InvalidSettingsFile(f"section [{where}] has no {key!r}: add {key} = …")
    form = {key: own.pop(key) for key in _FORM if key in own}
    limits = {
        field_name: own.pop(key)
        for key, field_name in (("batch_records", "records"), ("batch_bytes", "size_bytes"))
        if key in own
    }
    opening = keys if own.get("open") else None
    options = {key: value for key, value in section.items() if key not in OWN_KEYS}
    return SyncSettings(
        name, form=RecordFormat(**form, keys=opening), limits=BatchLimits(**limits), options=options, **own
    )
