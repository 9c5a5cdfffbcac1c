"""How webhooks are signed, and whether one is: GitHub, Stripe, Standard Webhooks, Slack, Shopify, any other HMAC. Pure.

What always holds: a signature is of the body as it came, byte by byte; every secret is tried against every signature in
a time that does not depend on which is right, or how much of it; a header that matters and comes twice is no header;
and why a signature is refused is for the log alone.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.gateways.errors import GatewayError

Headers = Sequence[tuple[str, str]]
"""As they came, the names in small letters."""

HASHES: Final = ("sha256", "sha512", "sha384", "sha1")
ENCODINGS: Final = ("hex", "base64")
_MOST_SIGNATURES: Final = 32  # in one header: of several keys while they are changed
_STANDARD_PREFIX: Final = "whsec_"
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_PLACE: Final = re.compile(rb"\{(body|timestamp|id)\}")


class InvalidSignature(GatewayError):
    """A request that is not signed as it should be."""


class InvalidSecret(GatewayError):
    """A secret that cannot be one; its text is not shown."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a provider signs: where signature, time, id and kind of event are, and what of it is signed."""

    header: str
    prefix: str = ""
    hash: str = "sha256"
    encoding: str = "hex"
    signed: str = "{body}"
    timestamp: str = ""  # the header
    id: str = ""
    event: str = ""
    is_standard: bool = False  # several signatures in one header, each with its version; secrets are base64
    is_stripe: bool = False  # time and signatures are in one header


SCHEMES: Final[Mapping[str, Scheme]] = {
    # docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
    "github": Scheme("x-hub-signature-256", "sha256=", id="x-github-delivery", event="x-github-event"),
    # docs.stripe.com/webhooks: id and kind are in the body
    "stripe": Scheme("stripe-signature", signed="{timestamp}.{body}", is_stripe=True),
    # standardwebhooks.com
    "standard": Scheme(
        "webhook-signature", "v1,", encoding="base64", signed="{id}.{timestamp}.{body}", timestamp="webhook-timestamp",
        id="webhook-id", is_standard=True,
    ),
    # What Standard Webhooks came from, and what its first users still send.
    "svix": Scheme(
        "svix-signature", "v1,", encoding="base64", signed="{id}.{timestamp}.{body}", timestamp="svix-timestamp",
        id="svix-id", is_standard=True,
    ),
    # api.slack.com/authentication/verifying-requests-from-slack
    "slack": Scheme("x-slack-signature", "v0=", signed="v0:{timestamp}:{body}", timestamp="x-slack-request-timestamp"),
    # shopify.dev/docs/apps/build/webhooks
    "shopify": Scheme(
        "x-shopify-hmac-sha256", encoding="base64", id="x-shopify-webhook-id", event="x-shopify-topic"
    ),
}  # fmt: skip


def header(headers: Headers, name: str) -> str:
    """The one value of a header; empty if there is none. Raises `InvalidSignature` if there are several."""
    found = [value for each, value in headers if each == name] if name else []
    if len(found) > 1:
        raise InvalidSignature(f"the header {name} came {len(found)} times")
    return found[0].strip() if found else ""


def keys_of(scheme: Scheme, secrets: Sequence[str]) -> tuple[bytes, ...]:
    """The keys that secrets stand for; raises `InvalidSecret`."""
    return tuple(standard_key(secret) if scheme.is_standard else secret.encode() for secret in secrets)


def standard_key(secret: str) -> bytes:
    """The key in a secret of Standard Webhooks, `whsec_` and base64."""
    try:
        key = base64.b64decode(secret.removeprefix(_STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise InvalidSecret(
            "a secret is not of the form that Standard Webhooks have: write whsec_ and the key in base64"
        )
    return key


def sign_standard(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The header `webhook-signature` for these keys, of which all sign."""
    scheme = SCHEMES["standard"]
    signed = _signed(scheme, message_id, str(timestamp_s), body)
    return " ".join(scheme.prefix + base64.b64encode(_digest(scheme, key, signed)).decode() for key in keys)


def verify(
    scheme: Scheme, keys: Sequence[bytes], headers: Headers, body: bytes, now_s: float, tolerance_s: float
) -> None:
    """Raise `InvalidSignature` unless one of the keys signed this, and not long ago where the scheme says when."""
    given = header(headers, scheme.header)
    message_id = header(headers, scheme.id)
    timestamp = header(headers, scheme.timestamp)
    if scheme.is_stripe:
        timestamp, signatures = _read_stripe(given)
    elif scheme.is_standard:
        signatures = [each for each in given.split(" ") if each]
    else:
        signatures = [given]
    if len(signatures) > _MOST_SIGNATURES:
        raise InvalidSignature(f"there are {len(signatures)} signatures")
    has_time = "{timestamp}" in scheme.signed or bool(scheme.timestamp)
    if has_time and not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature("the time is missing or is none")
    if "{id}" in scheme.signed and not message_id:
        raise InvalidSignature(f"the header {scheme.id} is missing")
    candidates = [found for each in signatures if (found := _decode(scheme, each)) is not None]
    signed = _signed(scheme, message_id, timestamp, body)
    is_right = False
    for key in keys:
        expected = _digest(scheme, key, signed)
        for candidate in candidates:
            is_right |= hmac.compare_digest(expected, candidate)
    if not candidates:
        raise InvalidSignature("the signature is missing or is none")
    if not is_right:
        raise InvalidSignature("the signature does not match")
    if has_time and abs(now_s - int(timestamp)) > tolerance_s:
        raise InvalidSignature(f"it was signed {now_s - int(timestamp):.0f} s ago")


def _digest(scheme: Scheme, key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, getattr(hashlib, scheme.hash)).digest()


def _signed(scheme: Scheme, message_id: str, timestamp: str, body: bytes) -> bytes:
    if scheme.signed == "{body}":
        return body
    parts = {b"body": body, b"id": message_id.encode(), b"timestamp": timestamp.encode()}
    return _PLACE.sub(lambda found: parts[found[1]], scheme.signed.encode())


def _decode(scheme: Scheme, text: str) -> bytes | None:
    """The bytes of a signature; None for what is none, such as one of a version that we do not know."""
    if not text.startswith(scheme.prefix):
        return None
    text = text[len(scheme.prefix) :]
    try:
        if scheme.encoding == "hex":
            return bytes.fromhex(text) if text and text.isalnum() else None
        return base64.b64decode(text, validate=True) or None
    except ValueError:
        return None


def _read_stripe(text: str) -> tuple[str, list[str]]:
    """From `t=1492774577,v1=5257a8…,v1=…`; other versions are left out."""
    timestamps: list[str] = []
    signatures: list[str] = []
    for part in text.split(",")[: 2 * _MOST_SIGNATURES]:
        name, _, value = part.strip().partition("=")
        if name == "t":
            timestamps.append(value)
        elif name == "v1":
            signatures.append(value)
    if len(timestamps) != 1:
        raise InvalidSignature("the time is missing, or there are several")
    return timestamps[0], signatures
