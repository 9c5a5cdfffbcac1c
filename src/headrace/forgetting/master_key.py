"""The master key: 32 random bytes in a file that only its owner can read, or in an environment variable.

All other keys are wrapped by it, and subjects are known in key stores by a digest that needs it. Whoever loses it loses
everything that is sealed; whoever has it and a copy of the key store can open all that the copy has keys for.
"""

import hashlib
import hmac
import os
import secrets
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.forgetting.errors import InvalidMasterKey, InvalidSubject, WrongMasterKey
from headrace.forgetting.sealed import KEY_BYTES, bytes_of, decrypt, derive, encrypt, text_of
from headrace.secret_files import check_private, write_private

VARIABLE: Final = "HEADRACE_MASTER_KEY"
_WRAPPED: Final = b"headrace key 1\0"


class MasterKey:
    """What wraps keys and names subjects. It never shows itself."""

    __slots__ = ("_naming", "_wrapping", "check")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise InvalidMasterKey(f"a master key has {KEY_BYTES} bytes, and this one has {len(secret)}: make one with "
                                   "headrace keys create FILE")  # fmt: skip
        self._wrapping, self._naming = derive(secret, "wrap"), derive(secret, "subject")
        self.check = derive(secret, "check").hex()[:32]  # says nothing about it, and is the same each time

    def __repr__(self) -> str:
        return "MasterKey(…)"

    def digest(self, subject: str) -> str:
        """What a subject is called in key stores. Texts that look the same in Unicode are the same subject."""
        if not subject:
            raise InvalidSubject("a subject cannot be empty: give the id of whom the data is about")
        try:
            name = unicodedata.normalize("NFC", subject).encode()
        except UnicodeEncodeError:
            raise InvalidSubject("a subject is not valid Unicode: give the id of whom the data is about") from None
        return hmac.digest(self._naming, name, hashlib.sha256).hex()[:32]

    def wrap(self, key_id: str, subject: str, material: bytes) -> bytes:
        return encrypt(self._wrapping, material, _bound(key_id, subject))

    def unwrap(self, key_id: str, subject: str, wrapped: bytes) -> bytes:
        material = decrypt(self._wrapping, wrapped, _bound(key_id, subject))
        if material is None:
            raise WrongMasterKey(
                f"key {key_id} does not open with this master key, or was altered in the key store: use the master key "
                "that the key store was made with"
            )
        return material


def _bound(key_id: str, subject: str) -> bytes:
    return _WRAPPED + f"{key_id}\0{subject}".encode()


def read_master_key(
    file: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> MasterKey:
    """From a file that nobody else can read, or else from `HEADRACE_MASTER_KEY`."""
    if file is not None:
        check_private(file, "master key")
        return _parse(Path(file).read_text(encoding="utf-8", errors="replace"), f"file {os.fspath(file)}")
    if text := environment.get(VARIABLE, ""):
        return _parse(text, VARIABLE)
    raise InvalidMasterKey(
        f"there is no master key: make one with headrace keys create FILE, and name it in master_key_file of "
        f"[forgetting], or put its text into {VARIABLE}"
    )


def _parse(text: str, where: str) -> MasterKey:
    try:
        secret = bytes_of(text.strip())
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise InvalidMasterKey(f"{where} holds no master key: make one with headrace keys create FILE")
    return MasterKey(secret)


def create_master_key(file: Path) -> None:
    """Write a new one; a file that is there is left as it is, for everything sealed with it would be lost."""
    if file.exists():
        raise InvalidMasterKey(f"{file} is there already, and is left as it is: name another file")
    write_private(file, text_of(secrets.token_bytes(KEY_BYTES)) + "\n")
