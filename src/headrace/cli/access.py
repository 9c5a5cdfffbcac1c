"""Options of every command that answers HTTP: where it listens, and who is let in."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from headrace.client.address import Address
from headrace.serving.access import LOOPBACK, Access, TokensFile, users_of
from headrace.serving.sessions import fresh_key
from headrace.telemetry.audit import AUDIT_BYTES, AUDIT_FILES, AuditFile, AuditLog

_FILE = click.Path(dir_okay=False, path_type=Path)

tokens_option = click.option(
    "--tokens",
    "tokens_file",
    type=_FILE,
    envvar="HEADRACE_TOKENS",
    show_envvar=True,
    metavar="FILE",
    help="Let in programs by the tokens of this file, which headrace user token writes.",
)


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options about access, handed on as `access`; who has a name and a password, the broker of `bootstrap` knows.

    A server that may write asks in any case: by a token that is made here, if by nothing else.
    """

    @wraps(command)
    def run(
        *args: Any,
        bootstrap: tuple[Address, ...],
        host: str,
        host_names: tuple[str, ...],
        tokens_file: Path | None,
        certificate: str,
        insecure: bool,
        audit_file: Path | None,
        token: str | None = None,
        **others: Any,
    ) -> Any:
        tokens, users = TokensFile(tokens_file) if tokens_file else None, users_of(bootstrap)
        if others.get("allow_writes") and not (token or tokens or users):
            token = fresh_key()
        audit = AuditLog(AuditFile(audit_file, AUDIT_BYTES, AUDIT_FILES) if audit_file else None)
        access = Access(host, host_names, token, tokens, users, certificate, insecure, audit)
        return command(*args, bootstrap=bootstrap, access=access, **others)

    for decorate in reversed(
        (
            click.option(
                "--host",
                default=LOOPBACK,
                show_default=True,
                help="Where to listen; another than loopback needs logins or tokens.",
            ),
            click.option(
                "--host-name",
                "host_names",
                multiple=True,
                metavar="NAME",
                help="Also answer to this name; may be given repeatedly.",
            ),
            tokens_option,
            click.option(
                "--certificate",
                default="",
                metavar="FILE",
                help="Speak TLS with the private key and the certificates in this PEM file.",
            ),
            click.option("--insecure", is_flag=True, help="Let anybody in who can reach a public address."),
            click.option(
                "--audit",
                "audit_file",
                type=_FILE,
                metavar="FILE",
                help="Record here who changed something, and who was not let in; headrace audit shows it.",
            ),
        )
    ):
        run = decorate(run)
    return run
