"""Tokens: which are valid, and which are not, however they were made."""

import base64
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headrace.security.tokens import InvalidToken, TokenRules, UnknownKey, verify_token

NOW_S = 1_800_000_000
RULES = TokenRules("https://issuer", ["kafka"], "sub", 30_000)
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": NOW_S - 5, "exp": NOW_S + 60}
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key, kid, **more):
    algorithms = jwt.algorithms
    kinds = {rsa.RSAPrivateKey: algorithms.RSAAlgorithm, ec.EllipticCurvePrivateKey: algorithms.ECAlgorithm}
    fitting = next((found for kind, found in kinds.items() if isinstance(key, kind)), algorithms.OKPAlgorithm)
    return fitting.to_jwk(key.public_key(), as_dict=True) | {"kid": kid} | more


KEYS = {"keys": [jwk(RSA, "r"), jwk(EC, "e", use="sig", alg="ES256"), jwk(ED, "d")]}


def signed(claims, key=RSA, algorithm="RS256", kid="r"):
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "r"), (RSA, "PS512", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")],
)
def test_a_good_token_names_its_user_and_its_end(key, algorithm, kid):
    user = verify_token(signed(CLAIMS, key, algorithm, kid), KEYS, RULES, NOW_S * 1000)
    assert user == ("alice", (NOW_S + 60) * 1000)


def test_a_key_without_a_name_will_do_if_there_is_one_only():
    only = {"keys": [jwk(RSA, "r")]}
    assert verify_token(signed(CLAIMS, kid=None), only, RULES, NOW_S * 1000).name == "alice"
    with pytest.raises(UnknownKey):
        verify_token(signed(CLAIMS, kid=None), KEYS, RULES, NOW_S * 1000)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "no end"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not issued in the past"),
        ({"iat": None}, "not issued in the past"),
        ({"iss": "https://another"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "web"}, "somebody else"),
        ({"aud": ["web", "mail"]}, "somebody else"),
        ({"aud": None}, "somebody else"),
        ({"aud": 5}, "somebody else"),
        ({"aud": {"kafka": 1}}, "somebody else"),
        ({"aud": [{"kafka": 1}, ["kafka"]]}, "somebody else"),
        ({"sub": ""}, "names nobody"),
        ({"sub": None}, "names nobody"),
        ({"sub": "half of a pair \ud83d"}, "names nobody"),
    ],
)
def test_what_a_token_must_hold(changed, why):
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    with pytest.raises(InvalidToken, match=why):
        verify_token(signed(claims), KEYS, RULES, NOW_S * 1000)


def test_clocks_may_differ_a_little():
    claims = CLAIMS | {"exp": NOW_S - 29, "nbf": NOW_S + 29, "iat": NOW_S + 29}
    assert verify_token(signed(claims), KEYS, RULES, NOW_S * 1000).name == "alice"


def test_one_audience_of_several_and_another_claim_for_the_user():
    claims = CLAIMS | {"aud": ["web", "kafka"], "email": "alice@example"}
    rules = TokenRules("", ["kafka"], "email")
    assert verify_token(signed(claims), KEYS, rules, NOW_S * 1000).name == "alice@example"


def encode(part):
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")


def test_a_token_that_nobody_signed():
    for algorithm in ("none", "None", "nOnE", ""):
        token = encode({"alg": algorithm, "kid": "r"}) + b"." + encode(CLAIMS) + b"."
        with pytest.raises(InvalidToken):
            verify_token(token.decode(), KEYS, RULES, NOW_S * 1000)


def test_a_public_key_is_no_shared_secret():
    """The old trick: sign with what everybody knows, and say that it is a shared secret."""
    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = encode({"alg": "HS256", "kid": "r"}) + b"." + encode(CLAIMS)
    token = head + b"." + base64.urlsafe_b64encode(hmac.digest(public, head, "sha256")).rstrip(b"=")
    with pytest.raises(InvalidToken, match="not for this key"):
        verify_token(token.decode(), KEYS, RULES, NOW_S * 1000)
    shared = {"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}
    forged = jwt.encode(CLAIMS, b"secretsecretsecretsecretsecret" * 2, "HS256", headers={"kid": "s"})
    with pytest.raises(UnknownKey):
        verify_token(forged, shared, RULES, NOW_S * 1000)


def test_the_key_decides_on_the_algorithm():
    with pytest.raises(InvalidToken, match="not for this key"):
        verify_token(signed(CLAIMS, EC, "ES256", "e"), {"keys": [jwk(EC, "e", alg="ES384")]}, RULES, NOW_S * 1000)


def test_another_key_and_another_payload():
    other = rsa.generate_private_key(65537, 2048)
    with pytest.raises(InvalidToken):
        verify_token(signed(CLAIMS, other), KEYS, RULES, NOW_S * 1000)
    head, _, signature = signed(CLAIMS).split(".")
    forged = f"{head}.{encode(CLAIMS | {'sub': 'root'}).decode()}.{signature}"
    with pytest.raises(InvalidToken):
        verify_token(forged, KEYS, RULES, NOW_S * 1000)
    with pytest.raises(UnknownKey):
        verify_token(signed(CLAIMS, kid="x"), KEYS, RULES, NOW_S * 1000)


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "...", "e30.e30.e30", "x" * 70_000])
def test_what_is_no_token(token):
    with pytest.raises(InvalidToken):
        verify_token(token, KEYS, RULES, NOW_S * 1000)


@pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": [{}]}, {"keys": [{"kty": "RSA", "kid": "r"}]}])
def test_keys_that_are_none(keys):
    with pytest.raises(InvalidToken):
        verify_token(signed(CLAIMS), keys, RULES, NOW_S * 1000)
