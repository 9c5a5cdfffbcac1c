"""Tokens that say who somebody is (JWT, RFC 7519), held against the keys of who signs them (JWKS, RFC 7517).

The signature is PyJWT's to check; what a token must hold besides is decided here, with the time as an argument.

What always holds: only signatures with a private key count, so that nobody who knows the public keys can make a token;
the key decides which algorithm may be used with it, not the token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError
from headrace.extras import load
from headrace.security.login import TokenUser

# By the kind of key; `none` and those with a shared secret are not among them.
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
MOST_TOKEN_BYTES = 64 * 1024


class InvalidToken(HeadraceError):
    """A token that is not valid here; the reason is for our log."""


class UnknownKey(InvalidToken):
    """A token whose key is not among those that are known: there may be newer ones."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str = ""
    audiences: Sequence[str] = ()
    user_claim: str = "sub"
    skew_ms: int = 30_000


def verify_token(token: str, keys: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenUser:
    """Who the token names, if one of the keys of the JWKS signed it and it is valid now."""
    jwt = load("jwt", "OAUTHBEARER")
    if len(token) > MOST_TOKEN_BYTES:
        raise InvalidToken("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
        key = _find_key(keys, header)
        algorithm = header.get("alg")
        if algorithm not in _ALGORITHMS[key["kty"]] or key.get("alg", algorithm) != algorithm:
            raise InvalidToken(f"algorithm {algorithm!r} is not for this key")
        unchecked = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
                     "verify_iss": False, "verify_sub": False, "verify_jti": False}  # fmt: skip
        claims = jwt.decode(token, jwt.PyJWK.from_dict(key).key, algorithms=[algorithm], options=unchecked)
    except jwt.PyJWTError as error:
        raise InvalidToken(f"the token does not hold: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidToken(f"the token or its key cannot be read: {type(error).__name__}") from None
    return _check_claims(claims, rules, now_ms)


def _find_key(keys: Mapping[str, Any], header: Mapping[str, Any]) -> Mapping[str, Any]:
    fitting = [
        key
        for key in keys.get("keys", ())
        if key.get("kty") in _ALGORITHMS and key.get("use", "sig") == "sig" and "kid" in header
        and key.get("kid") == header["kid"]
    ]  # fmt: skip
    if not fitting and "kid" not in header:
        usable = [key for key in keys.get("keys", ()) if key.get("kty") in _ALGORITHMS]
        fitting = usable if len(usable) == 1 else []
    if not fitting:
        raise UnknownKey("the token's key is unknown")
    return fitting[0]  # type: ignore[no-any-return]


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenUser:
    expires_ms = _time_of(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("the token has no end (exp)")
    if expires_ms + rules.skew_ms <= now_ms:
        raise InvalidToken("the token has expired")
    if (_time_of(claims, "nbf") or 0) - rules.skew_ms > now_ms:
        raise InvalidToken("the token is not valid yet (nbf)")
    issued_ms = _time_of(claims, "iat")
    if issued_ms is None or issued_ms - rules.skew_ms > now_ms:
        raise InvalidToken("the token was not issued in the past (iat)")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token's issuer is another (iss)")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not any(each in audiences for each in rules.audiences):
        raise InvalidToken("the token is for somebody else (aud)")
    name = claims.get(rules.user_claim)
    if not isinstance(name, str) or not name.strip() or not _is_text(name):
        raise InvalidToken(f"the token names nobody ({rules.user_claim})")
    return TokenUser(name, expires_ms)


def _is_text(name: str) -> bool:
    """JSON can write half of a surrogate pair, which no answer and no log can hold."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _time_of(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InvalidToken(f"the token's {name} is not a time")
    return int(value * 1000)
