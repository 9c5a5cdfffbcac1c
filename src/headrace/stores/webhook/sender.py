"""One record posted to a receiver: the one sender of derived systems, of side effects and of registered endpoints.

`post` sends JSON with an idempotency key, and with a secret `X-Headrace-Signature: sha256=…`, the HMAC of the body: an
answer of 2xx is success, a 4xx that will not change is a refusal, everything else may be tried again. `send` sends
bytes as they are and leaves it to the caller what an answer means.

What always holds: a request goes to public addresses and to those that were allowed, a redirect is not followed, and it
is over within the time-out as a whole.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.http_client import AddressRefused, Answer, HttpServer, InvalidServer, NoAnswer, host_in
from headrace.reach import InvalidHost, InvalidNetwork, Reach, check_host
from headrace.stores.values import encode_row

_MOST_BYTES: Final = 64 * 1024  # read of an answer, so that the connection can be used again; its status is what counts
_LATER: Final = frozenset({408, 409, 423, 425, 429})  # these answers may be another tomorrow


class WebhookFailed(HeadraceError):
    """A record that did not arrive, or was answered with an error that may pass."""


class WebhookRefused(HeadraceError):
    """A record that the receiver will never take."""


def own_reach(url: str, allow_private: Iterable[str]) -> Reach:
    """Where a URL may lead that stands in our own settings: an address in it, or `localhost`, is meant as it is said.

    A name that leads to a private address is refused in spite of that, for it may lead there only today. Raises
    `InvalidServer`.
    """
    try:
        return Reach.parse(allow_private).and_host(host_in(url))
    except InvalidNetwork as error:
        raise InvalidServer(f"has an allow_private that cannot be: {error}") from None


class Sender:
    """Posts to one URL; any thread may use it."""

    def __init__(
        self,
        url: str,
        secret: str | None = None,
        *,
        reach: Reach | None = None,
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
        connections: int = 1,
        ca_file: str | None = None,
    ) -> None:
        """Raises `InvalidServer` for a URL that cannot be used; without `reach`, it is one of our own settings."""
        try:
            check_host(host_in(url))
        except InvalidHost as error:
            raise InvalidServer(str(error)) from None
        self._server = HttpServer(
            url,
            timeout_s,
            headers,
            ca_file=ca_file,
            connections=connections,
            reach=own_reach(url, ()) if reach is None else reach,
            is_over_in_time=True,
        )
        self._secret = secret

    @property
    def host(self) -> str:
        return self._server.host

    def send(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request; raises `WebhookFailed` if there was no answer, or none is asked for."""
        try:
            return self._server.ask("POST", self._server.path, body, headers, most_bytes=_MOST_BYTES)
        except (NoAnswer, AddressRefused) as error:
            raise WebhookFailed(str(error)) from error

    def post(self, record: Mapping[str, Any], key: str) -> None:
        """Returns when the receiver has it; raises `WebhookFailed` or `WebhookRefused`."""
        body = encode_row(record).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._secret is not None:
            digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Headrace-Signature"] = f"sha256={digest}"
        answer = self.send(body, headers)
        if answer.is_success:
            return
        if 400 <= answer.status < 500 and answer.status not in _LATER:
            raise WebhookRefused(f"{self.host} refused the record with status {answer.status}")
        raise WebhookFailed(f"{self.host} answered with status {answer.status}")

    def close(self) -> None:
        """Disconnect."""
        self._server.close()
