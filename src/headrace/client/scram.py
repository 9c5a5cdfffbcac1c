"""The client's side of SCRAM (RFC 5802, and RFC 7677 for SHA-256): three messages out of four, and no IO.

What always holds: the password never leaves, and `finish` returns only if the broker has shown that it knows the
password's hash too. A broker cannot make us give away a cheap hash (fewer rounds than Kafka itself allows) or work for
ever.

The RFC prepares names and passwords with SASLprep before they are hashed. Kafka does not: its tools and its Java client
hash the UTF-8 bytes as they are, and so must whoever wants to get in with a password that SASLprep would change.
"""

import base64
import binascii
import hashlib
import hmac

from headrace.errors import HeadraceError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ROUNDS = 4096  # as Kafka has it for both mechanisms
MOST_ROUNDS = 1_000_000  # about a second of work; Kafka's tools give 16,384 at most
_NO_CHANNEL_BINDING = b"n,,"


class ScramFailure(HeadraceError):
    """The broker's message is none, or it refuses us, or it is not the broker that it should be."""


class ScramExchange:
    """One exchange: `first`, then `answer`, then `finish`, each with what the broker said to the one before."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is fresh, random and printable, without a comma."""
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}".encode()
        self._server_signature = b""

    def first(self) -> bytes:
        """Who we are, and our half of the nonce."""
        return _NO_CHANNEL_BINDING + self._first_bare

    def answer(self, server_first: bytes) -> bytes:
        """The proof that we know the password, for the salt and rounds that the broker names."""
        fields = _fields(server_first)
        nonce = _required(fields, "r")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramFailure("the broker did not keep to the nonce of this exchange")
        salt = _decoded(_required(fields, "s"))
        rounds = _rounds(_required(fields, "i"))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        final = b"c=" + base64.b64encode(_NO_CHANNEL_BINDING) + b",r=" + nonce.encode()
        signed = b",".join((self._first_bare, server_first, final))
        signature = self._hmac(stored_key, signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return final + b",p=" + base64.b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        """Check the broker's own proof."""
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramFailure(f"the broker says {fields['e']}")
        if not self._server_signature or not hmac.compare_digest(
            _decoded(_required(fields, "v")), self._server_signature
        ):
            raise ScramFailure("the broker could not show that it knows the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramFailure("the broker's message is not SCRAM") from None
    if any(part[1:2] != "=" for part in parts):
        raise ScramFailure("the broker's message is not SCRAM")
    if parts[0].startswith("m="):
        raise ScramFailure("the broker demands an extension of SCRAM that no client knows")
    return {part[0]: part[2:] for part in parts}


def _required(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ScramFailure(f"the broker's message has no {name!r}")
    return fields[name]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailure("the broker's message is not SCRAM: it holds no base64 where it should") from None


def _rounds(text: str) -> int:
    # By length first: turning a number of a million digits into an int is work too.
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_ROUNDS)):
        raise ScramFailure("the broker asks for a number of rounds that makes no sense")
    rounds = int(text)
    if not FEWEST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise ScramFailure(f"the broker asks for {rounds} rounds, not {FEWEST_ROUNDS} to {MOST_ROUNDS}")
    return rounds
