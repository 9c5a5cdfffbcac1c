"""Who may connect, and encryption: CURVE, ZeroMQ's own.

A listener has keys of its own, and those who connect know its public one; each of them has keys too. With `clients`
only those whose public keys it names are let in. A key is 40 characters of Z85; a file of them has the form that
pyzmq's `zmq.auth.create_certificates` writes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from headrace.extras import load
from headrace.gateways.errors import GatewayError
from headrace.secret_files import check_private, write_private

if TYPE_CHECKING:
    import zmq
    from zmq.utils import z85
else:
    zmq = load("zmq", "a socket of ZeroMQ")
    z85 = load("zmq.utils.z85")

_KEY_CHARACTERS: Final = 40
_DOMAIN: Final = "headrace"  # of ZAP, by which a socket asks its context who may connect


class InvalidKey(GatewayError):
    """A text or a file that holds no key."""


def check_key(key: str, what: str) -> str:
    """A key of Z85, or what is wrong with it; the key itself is not shown."""
    try:
        if isinstance(key, str) and len(key) == _KEY_CHARACTERS and len(z85.decode(key)) == 32:
            return key
    except (KeyError, ValueError, UnicodeError):
        pass
    raise InvalidKey(f"{what} is not a key: it has to be {_KEY_CHARACTERS} characters of Z85, as Keys.new() makes them")


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """A pair of keys; the secret one is never shown."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Keys(public={self.public!r})"

    @classmethod
    def new(cls) -> Self:
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """From a file that nobody else can read."""
        check_private(path, "the file of keys")
        public, secret = _load(path)
        if secret is None:
            raise InvalidKey(f"the file {path} has no secret key: name the one that ends in .key_secret")
        return cls(public, secret)

    def write(self, path: str | Path) -> None:
        """To a file that nobody else can read."""
        text = f'metadata\ncurve\n    public-key = "{self.public}"\n    secret-key = "{self.secret}"\n'
        write_private(Path(path), text)


def _load(path: str | Path) -> tuple[str, str | None]:
    import zmq.auth

    try:
        public, secret = zmq.auth.load_certificate(Path(path))
    except (OSError, ValueError) as error:
        raise InvalidKey(
            f"the file {path} holds no keys of CURVE ({error}): write one with Keys.new().write(…)"
        ) from None
    found = check_key(public.decode(errors="replace"), f"the public key in {path}")
    return found, None if secret is None else check_key(secret.decode(errors="replace"), f"the secret key in {path}")


def read_public_keys(path: str | Path) -> frozenset[str]:
    """The public keys of those who may connect: a line each, or a folder of files that have them."""
    where = Path(path)
    try:
        if where.is_dir():
            return frozenset(_load(each)[0] for each in sorted(where.glob("*.key")))
        lines = [line.strip() for line in where.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidKey(
            f"the public keys in {path} cannot be read ({error}): name a file with one in each line"
        ) from None
    return frozenset(
        check_key(line, f"line {number} of {path}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    )


@dataclass(frozen=True, slots=True)
class CurveServer:
    """For whoever listens."""

    keys: Keys
    clients: Collection[str] | None = None
    """Public keys of those who may connect; None lets in everybody who knows the public key of the listener."""


@dataclass(frozen=True, slots=True)
class CurveClient:
    """For whoever connects."""

    keys: Keys
    server: str
    """The public key of the listener."""


Curve = CurveServer | CurveClient


class _Provider:
    def __init__(self, clients: Collection[str]) -> None:
        self._clients = frozenset(check_key(key, "a key in clients").encode() for key in clients)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - pyzmq asks so
        return key in self._clients


class Guard:
    """Lets in those whose keys are known, for the sockets of a context, in a thread of its own."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", clients: Collection[str]) -> None:
        from zmq.auth.thread import ThreadAuthenticator

        provider = _Provider(clients)  # whatever is wrong with them, before there is a thread to be stopped
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, credentials_provider=provider)

    def close(self) -> None:
        self._authenticator.stop()


def protect(socket: "zmq.Socket[bytes]", curve: Curve) -> None:
    """Set a socket's keys."""
    socket.curve_secretkey = check_key(curve.keys.secret, "the secret key").encode()
    socket.curve_publickey = check_key(curve.keys.public, "the public key").encode()
    if isinstance(curve, CurveServer):
        socket.curve_server = True
        if curve.clients is not None:
            socket.zap_domain = _DOMAIN.encode()
    else:
        socket.curve_serverkey = check_key(curve.server, "the server's key").encode()
