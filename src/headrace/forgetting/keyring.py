"""Keys in use: values sealed for a subject and opened again, subjects forgotten.

    keys = open_keys("sqlite:///keys.db", master_key_file="master.key")
    document = keys.seal({"customer": "7", "email": "ada@example.org"}, subject="7", fields=["email"])
    keys.open_sealed(document)                       # as it was
    keys.forget("7")
    keys.open_sealed(document)                       # {"customer": "7", "email": None}

Keys are kept in memory while they are used. At most every second the key store is asked whether somebody was forgotten;
a keyring that cannot ask opens nothing, so what one process has forgotten all others have within that time.
"""

import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from headrace.clock import Clock, SystemClock
from headrace.errors import nearest
from headrace.forgetting.errors import (
    ForgettingError,
    InvalidKeyStore,
    SubjectForgotten,
    Tampered,
    UnknownKey,
    WrongMasterKey,
)
from headrace.forgetting.key_store import Destroyed, KeyStore, MemoryKeyStore, StoredKey
from headrace.forgetting.master_key import MasterKey, read_master_key
from headrace.forgetting.sealed import (
    KEY_BYTES,
    SubjectKey,
    empty_for,
    keys_of_state,
    make_key_id,
    open_state,
    parse,
    seal_state,
)
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
RECHECK_S: Final = 1.0
_MOST_KEYS: Final = 50_000  # in memory; some 300 bytes each


class _Forgotten:
    """What a sealed value opens as once its key is destroyed."""

    def __repr__(self) -> str:
        return "FORGOTTEN"

    def __bool__(self) -> bool:
        return False


FORGOTTEN: Final = _Forgotten()


class Keyring:
    """Seals and opens with the keys of one store. Several threads may use one."""

    def __init__(
        self,
        store: KeyStore,
        master: MasterKey,
        *,
        recheck_s: float = RECHECK_S,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self.store = store
        self._master, self._recheck_s, self._clock = master, recheck_s, clock
        self._lock = threading.RLock()
        self._by_id: dict[str, SubjectKey | None] = {}  # None: destroyed
        self._by_subject: dict[str, str] = {}  # the id of the key in use, by the subject's own name
        self._digests: dict[str, str] = {}
        if store.claim(master.check) != master.check:
            raise WrongMasterKey(
                f"the master key is not the one that the key store in {store} was made with: use that one; nothing was "
                "read or written"
            )
        self._seen = store.last_forgotten()
        self._checked_at = time.monotonic()

    # --- values

    def seal_value(self, value: Any, *, subject: str, field: str) -> str:
        """A value that JSON has, sealed for a field. Raises `SubjectForgotten`."""
        key = self._key_for(subject)
        if isinstance(key, str):
            raise SubjectForgotten(key)
        return key.seal(value, field)

    def seal_late(self, value: Any, *, subject: str, field: str) -> str:
        """As `seal_value`; of a subject that was forgotten nothing is kept, and the text opens as forgotten.

        For data that comes by itself, as from a captured table, where one person must not hold up the others.
        """
        key = self._key_for(subject)
        return empty_for(key) if isinstance(key, str) else key.seal(value, field)

    def open_value(self, text: object, *, field: str, subject: str = "") -> Any:
        """What a sealed text holds, or `FORGOTTEN`; any other value as it is.

        With `subject`, a value of somebody else is refused, though its field is the same.
        """
        sealed = parse(text)
        if sealed is None:
            return text
        key = self._key(sealed.key_id)
        if key is None:
            return FORGOTTEN
        if subject and key.subject != self.digest(subject):
            raise Tampered(field, "it belongs to another subject")
        return key.open(sealed.data, field) if sealed.data else FORGOTTEN

    def seal(self, document: Mapping[str, Any], *, subject: str, fields: Iterable[str]) -> dict[str, Any]:
        """A document with some of its fields sealed. What is None stays so, and what is not there is left out."""
        sealed = dict(document)
        for field in _listed(fields):
            if sealed.get(field) is not None:
                sealed[field] = self.seal_value(sealed[field], subject=subject, field=field)
        return sealed

    def open_sealed(
        self,
        document: Mapping[str, Any],
        *,
        fields: Iterable[str] | None = None,
        stand_in: Any = None,
        subject: str = "",
    ) -> dict[str, Any]:
        """A document with its sealed fields opened, all of them or these; `stand_in` is for what was forgotten."""
        opened = dict(document)
        for field in opened if fields is None else _listed(fields):
            if isinstance(value := opened.get(field), str):
                found = self.open_value(value, field=field, subject=subject)
                opened[field] = stand_in if found is FORGOTTEN else found
        return opened

    # --- state of several subjects

    def seal_state(self, data: bytes, key_ids: Iterable[str]) -> bytes | None:
        """Bytes that open only while none of these keys is destroyed; None if one is by now."""
        keys = [self._key(key_id) for key_id in sorted(set(key_ids))]
        present = [key for key in keys if key is not None]
        return seal_state(present, data) if len(present) == len(keys) else None

    def open_state(self, data: bytes) -> tuple[bytes, frozenset[str]] | None:
        """Bytes and the keys they were sealed with; None if one of these is destroyed."""
        key_ids = keys_of_state(data)
        if key_ids is None:
            return data, frozenset()
        keys = [self._key(key_id) for key_id in key_ids]
        present = [key for key in keys if key is not None]
        return (open_state(present, data), frozenset(key_ids)) if len(present) == len(keys) else None

    # --- subjects

    def digest(self, subject: str) -> str:
        """What the subject is called in the key store."""
        if (known := self._digests.get(subject)) is None:
            known = self._master.digest(subject)
            if len(self._digests) >= _MOST_KEYS:
                self._digests.clear()
            self._digests[subject] = known
        return known

    def key_ids(self, subject: str) -> list[str]:
        """The ids of all keys that the subject ever had."""
        return [key.key_id for key in self.store.find(self.digest(subject))]

    def is_forgotten(self, subject: str) -> bool:
        """Whether it had a key, and has none any more."""
        keys = self.store.find(self.digest(subject))
        return bool(keys) and keys[-1].wrapped is None

    def forget(self, subject: str) -> Destroyed:
        """Destroy the subject's keys for good; what is sealed with them opens no more, wherever it is."""
        return self.forget_digest(self.digest(subject))

    def forget_digest(self, digest: str) -> Destroyed:
        """The same by what the subject is called in the key store."""
        done = self.store.destroy(digest, make_key_id(secrets.token_bytes(16)), self._clock.now_ms())
        with self._lock:
            self._by_subject.clear()
            self._by_id.update(dict.fromkeys(done.forgotten.key_ids))
        return done

    def renew(self, subject: str) -> None:
        """Let a subject that was forgotten begin anew, with another key; what was sealed before stays closed."""
        self._make(subject, renew=True)

    # --- keys

    def _key_for(self, subject: str) -> SubjectKey | str:
        """The key to seal with, made if there is none; the id of the destroyed one if the subject was forgotten."""
        self._recheck()
        key_id = self._by_subject.get(subject)
        if key_id is None:
            key_id = self._make(subject).key_id
        return self._key(key_id) or key_id

    def _make(self, subject: str, *, renew: bool = False) -> StoredKey:
        digest = self.digest(subject)
        key_id, material = make_key_id(secrets.token_bytes(16)), secrets.token_bytes(KEY_BYTES)
        while True:
            seen = self._seen
            there = self.store.find(digest)
            if there and not (renew and there[-1].wrapped is None):
                stored = there[-1]
            else:
                wrapped = self._master.wrap(key_id, digest, material)
                stored = self.store.add(StoredKey(key_id, digest, wrapped, self._clock.now_ms()), renew=renew)
            with self._lock:
                if seen != self._seen:  # as in `_key`
                    continue
                self._remember(stored)
                if stored.wrapped is not None:
                    self._by_subject[subject] = stored.key_id
            return stored

    def prepare(self, key_ids: Collection[str]) -> None:
        """Read several keys at once, which are needed soon."""
        self._recheck()
        missing = [key_id for key_id in key_ids if key_id not in self._by_id]
        for stored in self.store.read(missing) if missing else ():
            with self._lock:
                self._remember(stored)

    def _key(self, key_id: str) -> SubjectKey | None:
        """A key by its id; None if it is destroyed. Raises `UnknownKey`."""
        self._recheck()
        try:
            return self._by_id[key_id]
        except KeyError:
            pass
        while True:
            seen = self._seen
            found = self.store.read([key_id])
            if not found:
                raise UnknownKey(key_id)
            with self._lock:
                if seen == self._seen:  # or what was read may have been forgotten since, and nobody would look again
                    return self._remember(found[0])

    def _remember(self, stored: StoredKey) -> SubjectKey | None:
        key = None
        if stored.wrapped is not None:
            material = self._master.unwrap(stored.key_id, stored.subject, stored.wrapped)
            key = SubjectKey(stored.key_id, stored.subject, material)
        if len(self._by_id) >= _MOST_KEYS:
            self._by_id.clear()
            self._by_subject.clear()
        self._by_id[stored.key_id] = key
        return key

    def refresh(self) -> None:
        """Drop what others have forgotten, now."""
        self._checked_at = float("-inf")
        self._recheck()

    def _recheck(self) -> None:
        """Drop what others have forgotten, at most so often."""
        if time.monotonic() - self._checked_at < self._recheck_s:
            return
        with self._lock:
            if time.monotonic() - self._checked_at < self._recheck_s:
                return
            last = self.store.last_forgotten()
            if last != self._seen:
                if last < self._seen:
                    _log.error(
                        "the key store has forgotten less than before: it may have been restored from a backup; run "
                        "headrace keys status",
                        store=str(self.store),
                    )
                self._by_id.clear()
                self._by_subject.clear()
                self._seen = last
            self._checked_at = time.monotonic()

    def close(self) -> None:
        self._by_id.clear()
        self._by_subject.clear()
        self.store.close()


def _listed(fields: Iterable[str]) -> Sequence[str]:
    if isinstance(fields, str):
        raise ForgettingError(f"fields={fields!r} is one text: give a list, as in fields=[{fields!r}]")
    return list(fields)


# --- by address

_FORMS: Final = "write sqlite:///path, postgresql://user@host/database or memory:"


def open_keys(
    url: str, *, master_key_file: str | Path | None = None, folder: Path | None = None, recheck_s: float = RECHECK_S
) -> Keyring:
    """The keys at an address, whose tables are made if they are not there; paths are relative to `folder`.

    The master key is in the file, or else in the environment variable HEADRACE_MASTER_KEY.
    """
    base = folder or Path()
    # First of all: without it nothing is opened, and nothing made.
    master = read_master_key(None if master_key_file is None else base / master_key_file)
    return Keyring(open_key_store(url, base), master, recheck_s=recheck_s)


def open_key_store(url: str, folder: Path) -> KeyStore:
    """The key store at an address."""
    from headrace.forgetting.sql_keys import TABLE, PostgresKeyStore, SqliteKeyStore

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    match parts.scheme:
        case "memory":
            return MemoryKeyStore()
        case "sqlite":
            path = unquote(parts.path).removeprefix("/")
            if parts.netloc or not path:
                raise InvalidKeyStore("sqlite:… names no file: write sqlite:///relative.db or sqlite:////absolute.db")
            for option in options:
                if option != "table":
                    raise InvalidKeyStore(
                        f"a key store in SQLite has no option {option!r}: {nearest(option, ['table'])}"
                    )
            return SqliteKeyStore(folder / path, options.get("table", TABLE))
        case "postgresql" | "postgres":
            others = "&".join(pair for pair in parts.query.split("&") if pair and not pair.startswith("table="))
            return PostgresKeyStore(urlunsplit(parts._replace(query=others)), options.get("table", TABLE))
    scheme = f"{parts.scheme}:…" if parts.scheme else "a path"  # the address itself may hold a password
    raise InvalidKeyStore(f"{scheme!r} is not the address of a key store: {_FORMS}")
