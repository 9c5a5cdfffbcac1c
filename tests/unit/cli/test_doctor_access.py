"""What the doctor says of certificates, files, listeners and ACLs: what is broken, and that what is well is so."""

import datetime as dt
import ipaddress
import socket

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.broker.config import BrokerConfig, parse_listeners
from headrace.cli.doctor import Verdict
from headrace.cli.doctor_access import check_setup, judge_acls
from headrace.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from headrace.security.explanation import Rules
from headrace.security.principal import Principal

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
PEM = serialization.Encoding.PEM


class Issuer:
    """Signs certificates; with nobody above it, its own."""

    def __init__(self, name, above=None, days=365, names=(), is_authority=True):
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = above or self
        self.subject = subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 10 * DAY)
            .not_valid_after(NOW + days * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self.pem = builder.sign(signer.key, hashes.SHA256()).public_bytes(PEM).decode()
        kinds = (PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.key_pem = self.key.private_bytes(*kinds).decode()


ROOT = Issuer("root")
LOOPBACK = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")),)
EXAMPLE = (x509.DNSName("kafka.example"),)


def write(path, text, mode=0o600):
    path.touch(mode)
    path.write_text(text)
    return path


@pytest.fixture
def authority(tmp_path):
    return write(tmp_path / "authority.pem", ROOT.pem)


def check(tmp_path, text, authority, *, advertised=(), mode=0o600, settings=None):
    store = write(tmp_path / "broker.pem", text, mode)
    settings = {"ssl.keystore.location": str(store), **(settings or {})}
    listeners = parse_listeners(["SSL://127.0.0.1:0"], advertised, settings)
    return list(check_setup(BrokerConfig("", listeners, settings), authority))


def leaf(**options):
    made = Issuer("broker", options.pop("above", ROOT), is_authority=False, **options)
    return made.key_pem + made.pem


def of(findings, verdict):
    return [finding for finding in findings if finding.verdict is verdict]


def test_a_good_certificate_is_fine(tmp_path, authority):
    findings = check(tmp_path, leaf(names=LOOPBACK), authority)
    assert {finding.verdict for finding in findings} == {Verdict.FINE}
    text = " ".join(finding.found for finding in findings)
    assert "is valid until" in text
    assert "it is for IP Address:127.0.0.1, and clients come to 127.0.0.1" in text
    assert f"clients that trust {authority} take it" in text


@pytest.mark.parametrize(
    ("make", "sentence", "mend"),
    [
        (lambda: leaf(names=LOOPBACK, days=-1), "has expired", "put a new one into"),
        (lambda: leaf(names=EXAMPLE), "it is for DNS:kafka.example, and clients come to 127.0.0.1", "subjectAltName"),
        (lambda: Issuer("x").key_pem + Issuer("y").pem, "key values mismatch", "give both in PEM"),
        (lambda: "not a certificate", "no private key with its certificate can be read", "give both in PEM"),
        (
            lambda: leaf(names=LOOPBACK, above=Issuer("other")),
            "refuse it (unable to get local issuer",
            "lead to the authority",
        ),
    ],
)
def test_what_clients_would_refuse_is_broken(tmp_path, authority, make, sentence, mend):
    broken = of(check(tmp_path, make(), authority), Verdict.BROKEN)
    assert any(sentence in finding.found and mend in finding.mend for finding in broken), broken


def test_a_certificate_that_ends_soon_is_noted(tmp_path, authority):
    (note,) = of(check(tmp_path, leaf(names=LOOPBACK, days=9), authority), Verdict.NOTE)
    assert "(8 days)" in note.found
    assert "renew it soon" in note.mend


def test_a_chain_is_followed_and_one_that_has_a_gap_is_broken(tmp_path, authority):
    between = Issuer("between", ROOT)
    text = leaf(names=LOOPBACK, above=between)
    assert not of(check(tmp_path, text + between.pem, authority), Verdict.BROKEN)
    (broken,) = of(check(tmp_path, text, authority), Verdict.BROKEN)
    assert "unable to get local issuer certificate" in broken.found


def test_names_are_held_against_the_advertised_address(tmp_path, authority):
    text = leaf(names=EXAMPLE)
    assert not of(check(tmp_path, text, authority, advertised=["SSL://kafka.example:0"]), Verdict.BROKEN)
    (broken,) = of(check(tmp_path, text, authority, advertised=["SSL://other.example:0"]), Verdict.BROKEN)
    assert "clients come to other.example" in broken.found


def test_files_that_others_can_read_are_broken(tmp_path, authority):
    (broken,) = of(check(tmp_path, leaf(names=LOOPBACK), authority, mode=0o644), Verdict.BROKEN)
    assert "can be read by others" in broken.found
    assert broken.mend.startswith("chmod 600")
    users = write(tmp_path / "users", "alice=x\n", 0o644)
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    found = check(fixed, leaf(names=LOOPBACK), authority, settings={"users.file": str(users)})
    assert [finding.check for finding in of(found, Verdict.BROKEN)] == ["users.file"]


def test_an_authority_of_clients_that_has_expired_is_broken(tmp_path, authority):
    trusted = write(tmp_path / "trusted.pem", Issuer("old", days=-1).pem)
    settings = {"ssl.client.auth": "required", "ssl.truststore.location": str(trusted)}
    (broken,) = of(check(tmp_path, leaf(names=LOOPBACK), authority, settings=settings), Verdict.BROKEN)
    assert f"an authority in {trusted} has expired" in broken.found


def test_a_listener_answers_or_not():
    def look(port):
        listeners = parse_listeners([f"127.0.0.1:{port}"])
        (finding,) = check_setup(BrokerConfig("", listeners), None)
        return finding

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert look(port).verdict is Verdict.FINE
    assert look(port).verdict is Verdict.NOTE
    assert "nothing answers at" in look(port).found


def rule(principal, permission=Permission.ALLOW, host="*", name="orders", pattern=PatternType.LITERAL, operation=None):
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation or Operation.READ, permission)


def test_acls_without_effect_are_noted():
    acls = [
        rule("User:alice"),
        rule("User:ghost"),
        rule("User:alice", host="10.0.0.0/8"),
        rule("User:*", Permission.DENY, name="pay", pattern=PatternType.PREFIXED, operation=Operation.ALL),
        rule("User:alice", name="payments"),
    ]
    rules = Rules(acls, frozenset([Principal("admin")]))
    found = {finding.check: finding for finding in judge_acls(rules, ["alice"])}
    assert found["acls"].found == "5 ACLs, super users: User:admin"
    assert "10.0.0.0/8" in found["acl hosts"].found
    assert "User:ghost" in found["acl users"].found
    assert found["acl in vain"].found == (
        "User:alice allow read topic payments from * is in vain: User:* deny all topic pay… from *"
    )


def test_sane_acls_leave_nothing_to_say():
    rules = Rules([rule("User:alice"), rule("User:*", host="10.0.0.7"), rule("User:ANONYMOUS")], None)
    (only,) = judge_acls(rules, ["alice"])
    assert (only.verdict, only.found) == (Verdict.FINE, "3 ACLs, super users are not told")
