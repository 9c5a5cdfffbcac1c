"""Whom we trust and who we are under TLS: values only, so that whoever connects in the open does not load OpenSSL."""

import contextlib
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

VERSIONS = ("TLSv1.2", "TLSv1.3")
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key, in a file or as text; `option` is who gave them, for whoever has to mend them."""

    option: str
    path: str = ""
    text: str = field(default="", repr=False)

    @contextlib.contextmanager
    def as_file(self) -> Iterator[str]:
        """A file that holds it: OpenSSL reads keys from files only. What we write is ours alone, and gone after."""
        if self.path:
            yield self.path
            return
        descriptor, path = tempfile.mkstemp(prefix="headrace-", suffix=".pem")  # readable by this user only
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(_in_lines(self.text))
            yield path
        finally:
            os.unlink(path)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How to make a connection private; the defaults trust whom the operating system trusts."""

    authorities: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None  # where it is not in the same place as the certificate
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True
    versions: tuple[str, ...] = VERSIONS


BY_DEFAULT = TlsSettings()


def _in_lines(text: str) -> str:
    """PEM as OpenSSL wants it: from a properties file it comes in one line, or with the line ends spelt out."""

    def block(found: re.Match[str]) -> str:
        label, body = found.groups()
        packed = "".join(body.replace("\\n", "").split())
        if _NOT_BASE64.search(packed):
            # With headers of its own, as old encrypted keys have: these need their lines as they are.
            return found[0] + "\n"
        return "\n".join((f"-----BEGIN {label}-----", *textwrap.wrap(packed, 64), f"-----END {label}-----", ""))

    return "".join(map(block, _PEM_BLOCK.finditer(text)))
