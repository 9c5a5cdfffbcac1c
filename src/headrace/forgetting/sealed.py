"""The sealed form of a value: a text that says whose key opens it, and nothing else to whoever lacks the key. Pure.

    sealed:1:Gd2w3bJ0TpO9n0bXo1yq5A:qYw9…        form, key id, then nonce, ciphertext and tag, in base64url

It is ASCII without a character that JSON or SQL would escape, so it lives wherever a text does, and a scan finds the
values of a subject by the ids of its keys. The key id is random and says nothing about the subject.

What always holds:

- a value opens only under the key and the field's name that it was sealed with (AES-256-GCM, both authenticated);
- equal values of one subject and one field are sealed equally: the nonce is a keyed digest of field and value, so a
  record that is written twice is the same twice, an update shows whether a column changed, and no nonce ever serves two
  values;
- a sealed text without ciphertext is one that came after its subject was forgotten: it opens as forgotten, always.
"""

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headrace import extras
from headrace.forgetting.errors import Tampered

PREFIX: Final = "sealed:1:"
KEY_BYTES: Final = 32
_KEY_ID_LETTERS: Final = 22  # 128 bits in base64url
_NONCE_BYTES: Final = 12
_FORM: Final = re.compile(r"sealed:1:([A-Za-z0-9_-]{22}):([A-Za-z0-9_-]*)")
_IN_BYTES: Final = re.compile(rb"sealed:1:([A-Za-z0-9_-]{22}):")
_STATE: Final = b"sealed-state:1:"
_SCOPE: Final = b"headrace sealed 1\0"


class Sealed(NamedTuple):
    """A sealed text taken apart; `data` is empty where there never was anything in it."""

    key_id: str
    data: str


def parse(value: object) -> Sealed | None:
    """A sealed text, or None for any other value."""
    if not isinstance(value, str) or not value.startswith(PREFIX):
        return None
    found = _FORM.fullmatch(value)
    return None if found is None else Sealed(found[1], found[2])


def key_ids_in(data: bytes | memoryview) -> set[str]:
    """The keys of all sealed values somewhere in some bytes."""
    return {found.decode() for found in _IN_BYTES.findall(data)}


def make_key_id(random: bytes) -> str:
    """A key's name from 16 random bytes."""
    return text_of(random)


def empty_for(key_id: str) -> str:
    """What stands for a value that came after its subject was forgotten."""
    return f"{PREFIX}{key_id}:"


def text_of(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def derive(key: bytes, purpose: str) -> bytes:
    """A key for one purpose alone, from another one."""
    return hmac.digest(key, f"headrace {purpose}".encode(), hashlib.sha256)


@lru_cache(maxsize=1)
def _cipher_class() -> Any:
    return extras.load("cryptography.hazmat.primitives.ciphers.aead", "sealing personal data").AESGCM


def encrypt(key: bytes, plain: bytes, bound: bytes) -> bytes:
    """Nonce, ciphertext and tag; `bound` must be given again to decrypt."""
    nonce = hmac.digest(derive(key, "nonce"), len(bound).to_bytes(4) + bound + plain, hashlib.sha256)[:_NONCE_BYTES]
    return nonce + bytes(_cipher_class()(derive(key, "encrypt")).encrypt(nonce, plain, bound))


def decrypt(key: bytes, data: bytes, bound: bytes) -> bytes | None:
    """What was encrypted; None if key or `bound` are others, or the data was altered."""
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(_cipher_class()(derive(key, "encrypt")).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound))
    except (InvalidTag, ValueError):
        return None


class SubjectKey:
    """One key of one subject, ready for use. It never shows itself."""

    __slots__ = ("_cipher", "_material", "_nonce_key", "_scope", "key_id", "subject")

    def __init__(self, key_id: str, subject: str, material: bytes) -> None:
        """`subject` is its digest, as key stores have it."""
        self.key_id, self.subject = key_id, subject
        self._material = material
        self._nonce_key = derive(material, "nonce")
        self._cipher = _cipher_class()(derive(material, "encrypt"))
        self._scope = _SCOPE + key_id.encode() + b"\0"

    def __repr__(self) -> str:
        return f"SubjectKey({self.key_id!r})"

    def seal(self, value: Any, field: str) -> str:
        """A value that JSON has, for one field."""
        plain = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        bound = self._scope + field.encode()
        digest = hmac.digest(self._nonce_key, len(bound).to_bytes(4) + bound + plain, hashlib.sha256)
        nonce = digest[:_NONCE_BYTES]
        return f"{PREFIX}{self.key_id}:{text_of(nonce + self._cipher.encrypt(nonce, plain, bound))}"

    def open(self, data: str, field: str) -> Any:
        """The value that was sealed for the field."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = bytes_of(data)
            plain = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], self._scope + field.encode())
        except (InvalidTag, ValueError):
            raise Tampered(field) from None
        return json.loads(plain.decode(errors="surrogatepass"))

    @staticmethod
    def together(keys: Iterable["SubjectKey"]) -> bytes:
        """A key that only whoever has all of these can make."""
        ordered = sorted(keys, key=lambda key: key.key_id)
        return derive(b"".join(key._material for key in ordered), "state")  # noqa: SLF001 - of its own class


# --- state that several subjects have made


def seal_state(keys: Collection[SubjectKey], data: bytes) -> bytes:
    """Bytes that open only while every one of these keys is there; as they are, if there are none."""
    if not keys:
        return data
    head = _STATE + ",".join(sorted(key.key_id for key in keys)).encode() + b":"
    return head + encrypt(SubjectKey.together(keys), data, head)


def keys_of_state(data: bytes) -> Sequence[str] | None:
    """The ids of the keys that sealed bytes need; None if they are not sealed."""
    if not data.startswith(_STATE):
        return None
    return data[len(_STATE) : data.index(b":", len(_STATE))].decode().split(",")


def open_state(keys: Collection[SubjectKey], data: bytes) -> bytes:
    """What `seal_state` was given."""
    cut = data.index(b":", len(_STATE)) + 1
    found = decrypt(SubjectKey.together(keys), data[cut:], data[:cut])
    if found is None:
        raise Tampered("a snapshot")
    return found
