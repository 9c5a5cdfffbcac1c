"""Signatures of webhooks: vectors that providers published, every way to be wrong, and anything at all."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateways.errors import GatewayError
from headrace.gateways.webhooks.delivery import JsonBody, Wanted, read_delivery, read_source
from headrace.gateways.webhooks.memory import Memory, identity
from headrace.gateways.webhooks.secrets import NoSecret, Secrets
from headrace.gateways.webhooks.signatures import (
    SCHEMES,
    InvalidSecret,
    InvalidSignature,
    Scheme,
    keys_of,
    sign_standard,
    standard_key,
    verify,
)
from headrace.secret_files import ExposedSecret

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD = [
    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
    ("webhook-timestamp", "1614265330"),
    ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
]
STANDARD_BODY = b'{"test": 2432232314}'
SIGNED_AT = 1614265330
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.co"
    b"m%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a"
    b"14d10d2c447fce8b6703c"
)


def check(provider: str, secret: str, headers: list[tuple[str, str]], body: bytes, now_s: float = SIGNED_AT) -> None:
    scheme = SCHEMES[provider]
    verify(scheme, keys_of(scheme, [secret]), headers, body, now_s, 300)


# --- what providers published


def test_github() -> None:
    """docs.github.com, Validating webhook deliveries: Testing the webhook payload validation."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = [("x-hub-signature-256", signature)]
    check("github", "It's a Secret to Everybody", headers, b"Hello, World!")
    with pytest.raises(InvalidSignature, match="does not match"):
        check("github", "It's a Secret to Everybody", headers, b"Hello, World?")
    with pytest.raises(InvalidSignature, match="missing"):
        check("github", "It's a Secret to Everybody", [("x-hub-signature", signature)], b"Hello, World!")


def test_standard_webhooks() -> None:
    """The vector of the specification's reference libraries."""
    check("standard", STANDARD_SECRET, STANDARD, STANDARD_BODY)
    check(
        "svix", STANDARD_SECRET, [(name.replace("webhook", "svix"), value) for name, value in STANDARD], STANDARD_BODY
    )
    signed = sign_standard([standard_key(STANDARD_SECRET)], STANDARD[0][1], SIGNED_AT, STANDARD_BODY)
    assert signed == STANDARD[2][1]
    several = ("webhook-signature", "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v1a,xyz " + STANDARD[2][1])
    check("standard", STANDARD_SECRET, [*STANDARD[:2], several], STANDARD_BODY)


def test_slack() -> None:
    """api.slack.com, Verifying requests from Slack."""
    headers = [
        ("x-slack-request-timestamp", "1531420618"),
        ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    ]
    check("slack", "8f742231b10e8888abcd99yyyzzz85a5", headers, SLACK_BODY, 1531420618)


def test_stripe() -> None:
    """docs.stripe.com, Verify webhook signatures manually: the form is theirs, the secret is not published."""
    body = b'{"id": "evt_test_webhook", "object": "event"}'
    digest = hmac.new(b"whsec_test_secret", b"1492774577." + body, hashlib.sha256).hexdigest()
    for given_ in (
        f"t=1492774577,v1={digest}",
        f"t=1492774577,v1={'00' * 32},v1={digest},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39",
        f"t=1492774577, v1={digest}",
    ):
        check("stripe", "whsec_test_secret", [("stripe-signature", given_)], body, 1492774577 + 299)
    for bad in (f"v1={digest}", f"t=1492774577,t=1,v1={digest}", f"t=1492774577,v0={digest}", f"t=,v1={digest}", ""):
        with pytest.raises(InvalidSignature):
            check("stripe", "whsec_test_secret", [("stripe-signature", bad)], body, 1492774577)
    for now_s in (1492774577 + 301, 1492774577 - 301):
        with pytest.raises(InvalidSignature, match="s ago"):
            check("stripe", "whsec_test_secret", [("stripe-signature", f"t=1492774577,v1={digest}")], body, now_s)


def test_shopify() -> None:
    signature = base64.b64encode(hmac.new(b"hush", b"{}", hashlib.sha256).digest()).decode()
    check("shopify", "hush", [("x-shopify-hmac-sha256", signature)], b"{}")


# --- every way to be wrong


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_other"},
        {"webhook-id": ""},
        {"webhook-timestamp": "1614265331"},
        {"webhook-timestamp": "+1614265330"},
        {"webhook-timestamp": "1_614_265_330"},
        {"webhook-timestamp": "١٦١٤٢٦٥٣٣٠"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1"},
        {"webhook-signature": STANDARD[2][1].removeprefix("v1,")},
        {"webhook-signature": STANDARD[2][1].replace("v1,", "v2,")},
        {"webhook-signature": STANDARD[2][1][:-2]},
        {"webhook-signature": " ".join([STANDARD[2][1]] * 33)},
    ],
)
def test_what_was_changed_is_refused(change: dict[str, str]) -> None:
    headers = [(name, change.get(name, value)) for name, value in STANDARD]
    with pytest.raises(InvalidSignature):
        check("standard", STANDARD_SECRET, headers, STANDARD_BODY)


@pytest.mark.parametrize("name", [name for name, _ in STANDARD])
def test_a_header_that_comes_twice_is_refused(name: str) -> None:
    with pytest.raises(InvalidSignature, match="came 2 times"):
        check(
            "standard",
            STANDARD_SECRET,
            [*STANDARD, *((each, v) for each, v in STANDARD if each == name)],
            STANDARD_BODY,
        )


def test_any_of_several_secrets_will_do_while_they_are_changed() -> None:
    scheme = SCHEMES["github"]
    signature = hmac.new(b"new", b"x", hashlib.sha256).hexdigest()
    verify(scheme, keys_of(scheme, ["old", "new"]), [(scheme.header, f"sha256={signature}")], b"x", 0, 300)
    with pytest.raises(InvalidSignature):
        verify(scheme, keys_of(scheme, ["old"]), [(scheme.header, f"sha256={signature}")], b"x", 0, 300)
    with pytest.raises(InvalidSignature):
        verify(scheme, (), [(scheme.header, f"sha256={signature}")], b"x", 0, 300)


def test_the_time_of_a_comparison_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every secret is compared with every signature, in constant time, also after a match."""
    compared: list[bytes] = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(other) or real(one, other))
    scheme = SCHEMES["github"]
    signature = hmac.new(b"a", b"x", hashlib.sha256).hexdigest()
    verify(scheme, keys_of(scheme, ["a", "b", "c"]), [(scheme.header, f"sha256={signature}")], b"x", 0, 300)
    assert len(compared) == 3


@pytest.mark.parametrize("secret", ["whsec_", "", "whsec_!", "whsec_MfKQ9r8G KYqr", "é"])
def test_a_secret_of_standard_webhooks_is_base64(secret: str) -> None:
    with pytest.raises(InvalidSecret) as raised:
        standard_key(secret)
    assert not secret.removeprefix("whsec_") or secret.removeprefix("whsec_") not in str(raised.value)


# --- anything at all


@given(
    st.sampled_from(sorted(SCHEMES)),
    st.lists(st.tuples(st.sampled_from([*(s.header for s in SCHEMES.values()), "webhook-id"]), st.text()), max_size=5),
    st.binary(max_size=50),
)
def test_headers_of_any_form_are_refused_and_do_no_harm(
    provider: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    scheme = SCHEMES[provider]
    with pytest.raises(InvalidSignature):
        verify(scheme, (b"key",), headers, body, 0, 300)


@given(
    st.sampled_from(["sha1", "sha256", "sha384", "sha512"]),
    st.sampled_from(["hex", "base64"]),
    st.text(alphabet="abcXYZ012=,-", max_size=8),
    st.sampled_from(["{body}", "{timestamp}.{body}", "v0:{timestamp}:{id}:{body}", "{body}{body}"]),
    st.binary(max_size=200),
    st.binary(min_size=1, max_size=40),
    st.integers(0, 10**11),
    st.text(alphabet=st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20),
)
def test_whatever_is_signed_is_verified_and_nothing_else(
    hash_: str, encoding: str, prefix: str, signed: str, body: bytes, key: bytes, at: int, message_id: str
) -> None:
    scheme = Scheme("sig", prefix, hash_, encoding, signed, "ts" if "{timestamp}" in signed else "", "id")
    parts = {b"{body}": body, b"{timestamp}": str(at).encode(), b"{id}": message_id.encode()}
    text, rest = b"", signed.encode()
    while rest:  # one place after the other: what is filled in is not looked into
        place = next((name for name in parts if rest.startswith(name)), None)
        text += parts[place] if place else rest[:1]
        rest = rest[len(place) if place else 1 :]
    digest = hmac.new(key, text, hash_).digest()
    said = prefix + (digest.hex() if encoding == "hex" else base64.b64encode(digest).decode())
    headers = [("sig", said), ("ts", str(at)), ("id", message_id)]
    verify(scheme, (b"other", key), headers, body, at, 0)
    with pytest.raises(InvalidSignature):
        verify(scheme, (b"other",), headers, body, at, 0)
    with pytest.raises(InvalidSignature):
        verify(scheme, (key,), headers, body + b"x", at, 0)


# --- what becomes of a request

IDS = Wanted(
    read_source("/data/id", "id"), read_source("x-event", "event"), read_source("/repo/0/name", "key"), ("x-a",)
)


def test_a_delivery_as_a_record() -> None:
    body = b'{"data": {"id": 17}, "repo": [{"name": "mill"}]}'
    headers = [("content-type", "application/json"), ("x-event", "push"), ("x-a", "1"), ("authorization", "no")]
    found = read_delivery(IDS, headers, body, 5)
    carried = (("content-type", b"application/json"), ("webhook-id", b"17"), ("webhook-event", b"push"), ("x-a", b"1"))
    assert found == ("17", (b"mill", body, 5, carried))
    assert read_delivery(IDS, [("idempotency-key", "k")], b"no json", 5) == (
        "k",
        (None, b"no json", 5, (("webhook-id", b"k"),)),
    )
    for wrong in (b'{"data": {"id": "' + b"x" * 257 + b'"}}', b'{"repo": [{"name": "' + b"x" * 4097 + b'"}]}'):
        with pytest.raises(GatewayError, match="send one of at most"):
            read_delivery(IDS, [], wrong, 5)


@given(
    st.binary(max_size=100) | st.integers(1, 100_000).map(lambda depth: b"[" * depth), st.lists(st.text(), max_size=4)
)
def test_any_body_has_a_text_at_any_pointer(body: bytes, pointer: list[str]) -> None:
    assert isinstance(JsonBody(body).at(pointer), str)


# --- memory


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=60), st.integers(1, 8))
def test_memory_against_a_list(steps: list[tuple[int, int]], most: int) -> None:
    """The same as a list of what was taken last, which ends after 20 ms and holds so many."""
    memory, taken, now, gone = Memory(most), list[tuple[bytes, int]](), 0, list[bytes]()
    for number, wait in steps:
        now += wait
        each = identity("e", str(number))
        taken = [one for one in taken if one[1] > now]
        assert memory.knows(each, now) is (each in dict(taken))
        if each not in dict(taken):
            memory.remember([each], now + 20, now)
            taken = [*taken, (each, now + 20)][-most:]
        assert len(memory) <= most
        gone += memory.take_forgotten(3)
    now += 100
    memory.tidy(now)
    while more := memory.take_forgotten(3):
        gone += more
    assert len(memory) == 0
    assert set(gone) <= {identity("e", str(number)) for number, _ in steps}


@pytest.mark.parametrize("most", [1, 10, 1_000, 20_000])
def test_memory_is_bounded_at_any_size(most: int) -> None:
    memory = Memory(most)
    memory.load({identity("e", str(n)): 1000 + n for n in range(most + 90)}, 0)
    assert len(memory) == most
    assert memory.knows(identity("e", str(most + 89)), 0)
    for number in range(most):
        memory.remember([identity("f", str(number))], 10**9 + number, 0)
        assert len(memory) == most
    assert not memory.knows(identity("e", str(most + 89)), 0)
    assert len(memory.take_forgotten(10**9)) == most + 90


# --- secrets


def test_a_secret_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, now = tmp_path / "secret", [0.0]
    file.write_text("one\n\n")
    file.chmod(0o600)
    secrets = Secrets("[here]", path=str(file), clock=lambda: now[0])
    assert secrets.current() == ("one",)
    file.write_text("one\n two \n")
    assert secrets.current() == ("one",)
    now[0] += 2
    assert secrets.current() == ("one", "two")
    file.write_text("")
    now[0] += 2
    with pytest.raises(NoSecret, match="here"):
        secrets.current()
    file.write_text("three")
    file.chmod(0o644)
    now[0] += 2
    with pytest.raises(ExposedSecret, match="chmod 600"):
        secrets.current()


def test_secrets_are_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "hush")
    secrets = Secrets.of("[here]", {"secret_env": "HOOK_SECRET"})
    assert secrets is not None
    assert secrets.current() == ("hush",)
    assert "hush" not in repr(secrets)
    assert Secrets.of("[here]", {}) is None
    with pytest.raises(GatewayError, match="has secret and secret_env: write one of them"):
        Secrets.of("[here]", {"secret": "a", "secret_env": "B"})
