"""A listener at work: what its connections have in common, and what of it is read again while the broker runs."""

from typing import TYPE_CHECKING

from headrace.broker.config import Address, BrokerConfig, Listener
from headrace.broker.settings import InvalidSetting
from headrace.telemetry.logs import RareLines, get_logger

if TYPE_CHECKING:
    from headrace.broker.tls import Certificates

_QUIET_S = 10.0


class Endpoint:
    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        """Raises `InvalidSetting` if a certificate is missing or cannot be used."""
        if listener.has_sasl:
            raise InvalidSetting(
                f"listener {listener}: SASL is not served yet; use SSL:// with ssl.client.auth=required"
            )
        self.listener = listener
        self.refusals = RareLines(get_logger(__name__), _QUIET_S)
        self.setup_s = config.number("socket.connection.setup.timeout.ms") / 1000
        self.certificates = _load_certificates(listener, config) if listener.has_tls else None

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
