"""TLS through Python's own `ssl`: whom we trust, who we are, and what it means when the other side will not have it.

What always holds: certificates and the host's name are checked unless the settings say not to, and nothing here ever
asks for a passphrase on the terminal. A context is made for each connection, so a certificate that was renewed on the
disk is used from the next connection on.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

from headrace.client.address import Address
from headrace.client.errors import BadSecurity, ClientError, RequestTimedOut, SecureConnectionClosed, TlsRefused
from headrace.client.tls_settings import Pem, TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
HANDSHAKE = "the TLS handshake"
_PEM_LOOKS_LIKE = "it should be text with -----BEGIN CERTIFICATE----- in it"


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """What a connection is made with; raises `BadSecurity` if a file is not there or not what it should be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    chosen = [_VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    context.check_hostname = settings.verify and settings.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    if settings.authorities:
        _load_authorities(context, settings.authorities)
    else:
        context.load_default_certs()
    if settings.certificate:
        _load_certificate(context, settings, settings.certificate)
    return context


def secure(plain: socket.socket, address: Address, settings: TlsSettings, protocol: str) -> ssl.SSLSocket:
    """Make a connected socket private; on an error it is the caller's to close what it has."""
    try:
        return context_of(settings).wrap_socket(plain, server_hostname=address.host)
    except TimeoutError:
        raise RequestTimedOut(address, HANDSHAKE, plain.gettimeout() or 0) from None
    except (OSError, ValueError) as error:  # a ValueError is a host's name that no certificate can have
        raise failure(error, address, HANDSHAKE, protocol) from error


def failure(error: OSError | ValueError, address: Address, doing: str, protocol: str) -> ClientError:
    """What a complaint of OpenSSL or of the network means for the one who has to do something about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        if "mismatch" in reason:
            remedy = (
                "use a name that the broker's certificate has, or leave the check out by an empty "
                "ssl.endpoint.identification.algorithm"
            )
        else:
            remedy = "name the authority that signed the broker's certificate in ssl.ca.location"
        return TlsRefused(address, reason, remedy)
    if isinstance(error, ssl.SSLEOFError):
        return SecureConnectionClosed(address, doing, protocol)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return SecureConnectionClosed(address, doing, protocol, error.strerror or str(error))
    reason = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
    if "certificate required" in reason or "bad certificate" in reason or "unknown ca" in reason:
        remedy = "give a certificate that the broker trusts in ssl.certificate.location and ssl.key.location"
    elif "handshake failure" in reason:
        remedy = "see the broker's log: it may want a certificate of ours (ssl.certificate.location)"
    elif "wrong version number" in reason or "record layer failure" in reason:
        remedy = "what listens there may speak no TLS: check the port, or set security.protocol to PLAINTEXT"
    else:
        remedy = "see the broker's log"
    return TlsRefused(address, reason, remedy)


def _load_authorities(context: ssl.SSLContext, authorities: Pem) -> None:
    with _readable(authorities) as path:
        try:
            if os.path.isdir(path):
                context.load_verify_locations(capath=path)
                return
            context.load_verify_locations(cafile=path)
        except (ssl.SSLError, OSError):
            raise BadSecurity(f"{authorities.option} holds no certificates in PEM: {_PEM_LOOKS_LIKE}") from None


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings, certificate: Pem) -> None:
    key = settings.key or certificate
    passphrase = _Passphrase(settings.key_password)
    with _readable(certificate) as certificate_file, _readable(key) as key_file:
        try:
            context.load_cert_chain(certificate_file, key_file, passphrase)
        except ssl.SSLError as error:
            raise BadSecurity(_why_not_loaded(error, certificate, key, was_locked=passphrase.was_asked)) from None
        except OSError as error:
            raise BadSecurity(f"{certificate.option} or {key.option} cannot be read ({error.strerror})") from None


@contextlib.contextmanager
def _readable(pem: Pem) -> Iterator[str]:
    with pem.as_file() as path:
        if not os.path.exists(path) or not os.access(path, os.R_OK):
            why = "cannot be read by this user" if os.path.exists(path) else "is not there"
            raise BadSecurity(
                f"{pem.option} names {path!r}, which {why}: check the path on every machine that connects"
            )
        yield path


class _Passphrase:
    """What OpenSSL calls for an encrypted key; without it, it would ask on the terminal and a worker would hang."""

    def __init__(self, password: str | None) -> None:
        self._password = password
        self.was_asked = False

    def __call__(self) -> str:
        self.was_asked = True
        if self._password is None:
            raise BadSecurity("the private key is encrypted: set ssl.key.password")
        return self._password


def _why_not_loaded(error: ssl.SSLError, certificate: Pem, key: Pem, *, was_locked: bool) -> str:
    reason = (error.reason or "").lower().replace("_", " ")
    if "mismatch" in reason:
        return f"the key in {key.option} is not the key of the certificate in {certificate.option}: give the pair"
    if was_locked:
        return f"the key in {key.option} does not open with ssl.key.password: check the password"
    places = " or ".join(dict.fromkeys((certificate.option, key.option)))
    said = f" ({reason})" if reason else ""
    return f"{places} holds no certificate and private key in PEM{said}: {_PEM_LOOKS_LIKE}, and the key's like it"
