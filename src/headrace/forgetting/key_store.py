"""The contract of a key store, and one in memory; `testing/contracts/keys.py` holds every key store to it.

A store knows subjects only by a keyed digest and keys only wrapped: without the master key it says neither who is in it
nor what opens their values. It makes no keys and opens nothing; the keyring does.

What always holds:

- a subject has at most one key in use, whoever asks for one first, in however many processes;
- what `destroy` has returned is destroyed durably; the key's id stays, so that a destroyed key is never taken for an
  unknown one, and no key is made for the subject again unless that is asked for in so many words;
- `forgotten` lists subjects in the order in which they were forgotten, without gaps: a reader that goes on after the
  last number misses none.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class StoredKey(NamedTuple):
    key_id: str
    subject: str  # its digest
    wrapped: bytes | None  # None once it is destroyed
    created_ms: int


class Forgotten(NamedTuple):
    """One act of forgetting: which keys were destroyed."""

    number: int  # from 1 on
    subject: str
    forgotten_ms: int
    key_ids: tuple[str, ...]


class Destroyed(NamedTuple):
    forgotten: Forgotten
    is_repeat: bool  # it had been forgotten before
    remains: tuple[str, ...] = ()  # where bytes of the wrapped key may still be, in sentences


class KeyStore(Protocol):
    """Keeps wrapped keys, by subject and by id. Several threads and processes may use one."""

    def claim(self, check: str) -> str:
        """Keep what a master key is known by, if nothing is kept yet; what is kept."""
        ...

    def find(self, subject: str) -> list[StoredKey]:
        """All keys of a subject, the newest last."""
        ...

    def read(self, key_ids: Sequence[str]) -> list[StoredKey]:
        """Keys by their ids; unknown ones are left out."""
        ...

    def add(self, key: StoredKey, *, renew: bool = False) -> StoredKey:
        """Add a subject's first key, or with `renew` one after a destroyed one; else the newest that is there."""
        ...

    def destroy(self, subject: str, spare_id: str, now_ms: int) -> Destroyed:
        """Destroy all keys of a subject for good; one that never had any gets a destroyed one, `spare_id`."""
        ...

    def forgotten(self, after: int = 0) -> list[Forgotten]: ...

    def last_forgotten(self) -> int:
        """The number of the last act of forgetting; 0 if there was none."""
        ...

    def close(self) -> None: ...


class MemoryKeyStore:
    """Keys that are gone with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._check = ""
        self._keys: dict[str, list[StoredKey]] = {}
        self._forgotten: list[Forgotten] = []

    def __str__(self) -> str:
        return "memory"

    def claim(self, check: str) -> str:
        with self._lock:
            self._check = self._check or check
            return self._check

    def find(self, subject: str) -> list[StoredKey]:
        with self._lock:
            return list(self._keys.get(subject, ()))

    def read(self, key_ids: Sequence[str]) -> list[StoredKey]:
        wanted = set(key_ids)
        with self._lock:
            return [key for keys in self._keys.values() for key in keys if key.key_id in wanted]

    def add(self, key: StoredKey, *, renew: bool = False) -> StoredKey:
        with self._lock:
            keys = self._keys.setdefault(key.subject, [])
            if keys and not (renew and keys[-1].wrapped is None):
                return keys[-1]
            keys.append(key)
            return key

    def destroy(self, subject: str, spare_id: str, now_ms: int) -> Destroyed:
        with self._lock:
            keys = self._keys.setdefault(subject, [])
            live = [key.key_id for key in keys if key.wrapped is not None]
            before = [each for each in self._forgotten if each.subject == subject]
            if before and not live:
                return Destroyed(before[-1], is_repeat=True)
            if not keys:
                keys.append(StoredKey(spare_id, subject, None, now_ms))
                live = [spare_id]
            self._keys[subject] = [key._replace(wrapped=None) for key in keys]
            made = Forgotten(len(self._forgotten) + 1, subject, now_ms, tuple(live))
            self._forgotten.append(made)
            return Destroyed(made, is_repeat=False)

    def forgotten(self, after: int = 0) -> list[Forgotten]:
        with self._lock:
            return self._forgotten[after:]

    def last_forgotten(self) -> int:
        return len(self._forgotten)

    def close(self) -> None:
        """Nothing is held."""
