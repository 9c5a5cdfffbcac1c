"""Who was forgotten, in a topic: a second record beside the key store's, and what each part has done about it.

Keys are told by their ids alone. Under `KEY` stands when the key was destroyed, under `KEY/PART` that a part which had
opened its values has rewritten them. The topic is compacted and kept for ever.

The two records watch each other: a key that the ledger knows as destroyed and the key store has again was brought back
by a backup, and an act that only the key store knows (the one who wrote it was killed before he came here) is added.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.forgetting.keyring import Keyring
from headrace.stores.compacted_topic import CompactedTopic

TOPIC: Final = "__headrace_forgotten"


@dataclass(slots=True)
class Ledger:
    """What the topic says, as last read."""

    cluster: Cluster
    destroyed: dict[str, int] = field(default_factory=dict)  # when, by the key's id
    done: dict[tuple[str, str], int] = field(default_factory=dict)  # rows, by key and part
    left: dict[tuple[str, str], int] = field(default_factory=dict)  # rows that could not be found
    notes: dict[str, Any] = field(default_factory=dict)
    _topic: CompactedTopic | None = None

    def read(self) -> None:
        """Read on."""
        if self._topic is None:
            self._topic = CompactedTopic(self.cluster, TOPIC, forget=self._clear)
        for record in self._topic.read_news():
            key = bytes(record.key or b"").decode(errors="replace")
            try:
                value = None if record.value is None else json.loads(bytes(record.value))
            except ValueError:
                continue  # written by somebody else
            key_id, _, part = key.partition("/")
            if not key_id:
                if value is None:
                    self.notes.pop(part, None)
                else:
                    self.notes[part] = value
            elif isinstance(value, dict) and part:
                self.done[key_id, part] = int(value.get("rows", 0))
                self.left[key_id, part] = int(value.get("left", 0))
            elif isinstance(value, dict):
                self.destroyed[key_id] = int(value.get("forgotten_ms", 0))

    def _clear(self) -> None:
        self.destroyed.clear()
        self.done.clear()
        self.left.clear()
        self.notes.clear()

    def write(self, key: str, value: Any) -> None:
        """Durable when this returns; None removes."""
        if self._topic is None:
            self.read()
        assert self._topic is not None
        self._topic.write(key, None if value is None else json.dumps(value).encode())

    def add_act(self, key_id: str, forgotten_ms: int) -> None:
        self.write(key_id, {"forgotten_ms": forgotten_ms})
        self.destroyed[key_id] = forgotten_ms

    def add_done(self, key_id: str, part: str, rows: int, left: int = 0) -> None:
        """A part has rewritten what it had opened with a key; so many rows it could not find are `left`."""
        self.write(f"{key_id}/{part}", {"rows": rows, "left": left})
        self.done[key_id, part], self.left[key_id, part] = rows, left

    def set_note(self, name: str, value: Any) -> None:
        """Something to be undone by whoever comes next, if we are killed; None once it is."""
        self.write(f"/{name}", value)
        if value is None:
            self.notes.pop(name, None)
        else:
            self.notes[name] = value


def reconcile(keys: Keyring, ledger: Ledger, *, dry: bool) -> list[str]:
    """Bring the two records together; the ids of keys that a backup brought back, destroyed again unless `dry`."""
    ledger.read()
    if not dry:
        for act in keys.store.forgotten():
            for key_id in act.key_ids:
                if key_id not in ledger.destroyed:
                    ledger.add_act(key_id, act.forgotten_ms)
    known = list(ledger.destroyed)
    back = [key for key in keys.store.read(known) if key.wrapped is not None]
    if not dry:
        for subject in {key.subject for key in back}:
            keys.forget_digest(subject)
    return [key.key_id for key in back]
