"""A listener at work: what its connections have in common, and what of it is read again while the broker runs."""

from typing import TYPE_CHECKING

from headrace.broker.config import Address, BrokerConfig, Listener
from headrace.broker.logins import Logins, LoginThreads, UsersFile
from headrace.security.login import FindCredential, Users
from headrace.security.scram import ScramCredential
from headrace.telemetry.logs import RareLines, get_logger

if TYPE_CHECKING:
    from headrace.broker.tls import Certificates

_QUIET_S = 10.0


class Access:
    """Who may log in, the same on every listener, and the threads that work on it."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises if the file of users cannot be used; nobody can log in before `open`."""
        self.file = UsersFile(config.text("users.file"))
        self._find_added: FindCredential = lambda _, __: None
        self.users = Users(self._find)
        self.threads = LoginThreads()

    def open(self, find_added: FindCredential, secret: bytes) -> None:
        """`find_added` knows the users that were added while a broker ran; the secret is the broker's."""
        self.file.load(secret)
        self._find_added = find_added
        self.users.secret = secret

    def _find(self, mechanism: str, name: str) -> ScramCredential | None:
        return self.file.find(mechanism, name) or self._find_added(mechanism, name)

    def has_user(self, name: str) -> bool:
        """Whether somebody of that name can log in by a password."""
        return self.users.has(name)

    def close(self) -> None:
        self.threads.close()


class Endpoint:
    def __init__(self, listener: Listener, config: BrokerConfig, access: Access) -> None:
        """Raises `InvalidSetting` if a certificate is missing or cannot be used."""
        self.listener = listener
        self.refusals = RareLines(get_logger(__name__), _QUIET_S)
        self.setup_s = config.number("socket.connection.setup.timeout.ms") / 1000
        self.certificates = _load_certificates(listener, config) if listener.has_tls else None
        self.logins = Logins(listener, config, access.users, access.threads) if listener.has_sasl else None

    def advertise(self, reached: Address) -> Address:
        """What a client is told that reached us there; an advertised port 0 is the one that was chosen."""
        told = self.listener.advertised
        if told is None:
            return reached
        return told if told.port else Address(told.host, reached.port)

    def reload(self) -> None:
        if self.certificates:
            self.certificates.reload()


def _load_certificates(listener: Listener, config: BrokerConfig) -> "Certificates":
    from headrace.broker.tls import Certificates  # whoever serves in the open does not load OpenSSL

    return Certificates(listener, config)
