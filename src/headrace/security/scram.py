"""SCRAM (RFC 5802, and RFC 7677 for SHA-256), both sides of it: four messages, and no IO.

What always holds: a password never leaves its client, and is not kept by a broker, which keeps a `ScramCredential`. The
client believes nobody who has not shown that he knows the password's hash too, and a broker cannot make it give away a
cheap hash (fewer rounds than Kafka itself allows) or work for ever. To who does not know the password, a user that does
not exist looks like one that does, down to the salt.

The RFC prepares names and passwords with SASLprep before they are hashed. Kafka does not: its tools and its Java client
hash the UTF-8 bytes as they are, and so must whoever wants to get in with a password that SASLprep would change.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from headrace.errors import HeadraceError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}  # as Kafka's requests and the metadata log name them
FEWEST_ROUNDS = 4096  # as Kafka has it for both mechanisms
MOST_ROUNDS = 1_000_000  # about a second of work; Kafka's tools give 16,384 at most
MOST_STORED_ROUNDS = 16_384  # what a broker keeps, as Kafka's
SALT_BYTES = 24
_NO_CHANNEL_BINDING = b"n,,"


class ScramFailure(HeadraceError):
    """The other side's message is none, or it refuses us, or it is not who it should be."""


# --- what a broker keeps


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """As much of a password as is needed to recognise it."""

    salt: bytes = field(repr=False)
    rounds: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_salted(cls, mechanism: str, salted: bytes, salt: bytes, rounds: int) -> "ScramCredential":
        """From what PBKDF2 made of a password, which is how Kafka's clients send a new one."""
        name = HASHES[mechanism]
        stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(salt, rounds, stored_key, hmac.digest(salted, b"Server Key", name))

    @classmethod
    def from_password(cls, mechanism: str, password: str, salt: bytes, rounds: int) -> "ScramCredential":
        return cls.from_salted(mechanism, salt_password(mechanism, password, salt, rounds), salt, rounds)

    def fits(self, mechanism: str, password: str) -> bool:
        """Whether this is the password; takes milliseconds of work, on purpose."""
        given = ScramCredential.from_password(mechanism, password, self.salt, self.rounds)
        return hmac.compare_digest(given.stored_key, self.stored_key)


def salt_password(mechanism: str, password: str, salt: bytes, rounds: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, rounds)


def derive_salt(mechanism: str, username: str, secret: bytes) -> bytes:
    """Always the same for a user and a mechanism, and another for any other; the secret is the broker's."""
    return _seed(mechanism, username, secret)[:SALT_BYTES]


def _seed(mechanism: str, username: str, secret: bytes) -> bytes:
    return hmac.digest(secret, f"{mechanism}\0{username}".encode(), "sha512")


def stand_in(mechanism: str, username: str, secret: bytes) -> ScramCredential:
    """What a user has who does not exist: always the same salt, and a key that nobody has."""
    seed = _seed(mechanism, username, secret)
    salt = derive_salt(mechanism, username, secret)
    return ScramCredential(salt, FEWEST_ROUNDS, hmac.digest(seed, b"key", HASHES[mechanism]), seed)


# --- the broker's side

_CLIENT_FIRST = re.compile(r"n,(?:a=([^,]*))?,(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_CLIENT_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """Who wants to come in, and his half of the nonce."""

    username: str
    authorization_id: str
    nonce: str
    bare: str

    @classmethod
    def parse(cls, message: bytes) -> "ClientFirst":
        found = _CLIENT_FIRST.fullmatch(_text_of(message))
        if found is None:
            raise ScramFailure("the client's first message is not SCRAM")
        name = found[3]
        if re.search("=(?!2C|3D)", name):
            raise ScramFailure("the client's name is not escaped as SCRAM has it")
        return cls(name.replace("=2C", ",").replace("=3D", "="), found[1] or "", found[4], found[2])


class ScramServer:
    """The broker's two messages, for one credential: `answer` to who it is, `finish` to the proof."""

    def __init__(self, mechanism: str, first: ClientFirst, credential: ScramCredential, nonce: str) -> None:
        """`nonce` is fresh, random and printable, without a comma."""
        self._hash = HASHES[mechanism]
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce

    def answer(self) -> bytes:
        salt = base64.b64encode(self._credential.salt).decode()
        return f"r={self._nonce},s={salt},i={self._credential.rounds}".encode()

    def finish(self, client_final: bytes) -> bytes:
        """Our own proof; `ScramFailure` unless the client's is right."""
        found = _CLIENT_FINAL.fullmatch(_text_of(client_final))
        if found is None or found[3] != self._nonce or not _decode(found[2]).startswith(b"n,"):
            raise ScramFailure("the client's last message does not belong to this exchange")
        proof = _decode(found[4])
        signed = b",".join((self._first.bare.encode(), self.answer(), found[1].encode()))
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise ScramFailure("the client's proof is not one")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credential.stored_key):
            raise ScramFailure("the client's proof is wrong")
        ours = hmac.digest(self._credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(ours)


def _text_of(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFailure("the client's message is not SCRAM") from None


# --- the client's side


class ScramExchange:
    """One exchange: `first`, then `answer`, then `finish`, each with what the broker said to the one before."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is fresh, random and printable, without a comma."""
        self._hash = HASHES[mechanism]
        self._mechanism = mechanism
        self._password = password
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
        nonce = _require(fields, "r")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramFailure("the broker did not keep to the nonce of this exchange")
        salt = _decode(_require(fields, "s"))
        rounds = _rounds(_require(fields, "i"))
        salted = salt_password(self._mechanism, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        final = b"c=" + base64.b64encode(_NO_CHANNEL_BINDING) + b",r=" + nonce.encode()
        signed = b",".join((self._first_bare, server_first, final))
        signature = self._hmac(stored_key, signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return final + b",p=" + base64.b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramFailure(f"the broker says {fields['e']}")
        if not self._server_signature or not hmac.compare_digest(
            _decode(_require(fields, "v")), self._server_signature
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


def _require(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ScramFailure(f"the broker's message has no {name!r}")
    return fields[name]


def _decode(text: str) -> bytes:
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
