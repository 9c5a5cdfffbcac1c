"""Sockets that listen, and certificates for them: what every server has, whatever it speaks."""

import socket
import ssl

from headrace.errors import HeadraceError
from headrace.secret_files import check_private


def listening(host: str, port: int, refusal: type[HeadraceError]) -> socket.socket:
    """A socket that has the port; 0 stands for a free one."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen()  # whoever was told the address and connects at once waits, instead of being refused
    except OSError as error:
        made.close()
        raise refusal(f"cannot listen on {host}:{port} ({error.strerror}): choose another --port") from error
    return made


class InvalidCertificate(HeadraceError):
    """A file that is not a private key with its certificates."""


def load_certificate(path: str) -> ssl.SSLContext:
    """TLS with what a PEM file holds, which others must not be able to read."""
    check_private(path, "the certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(path, password="")  # an encrypted key fails, where OpenSSL would ask in the terminal
    except (OSError, ValueError):
        raise InvalidCertificate(
            f"the certificate {path} cannot be used: give a PEM file of a private key without a password and of its "
            "certificates"
        ) from None
    return context
