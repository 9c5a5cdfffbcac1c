"""What a handler knows besides the request: the broker, and who is asking."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.config import Address
from headrace.broker.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Context:
    """One request's surroundings."""

    broker: Runtime
    version: int
    client_id: str | None
    served: Mapping[int, range]  # every API that is served, and its versions
    client_host: str
    local: Address  # where the client reached us, and so where it can come back to

    @property
    def advertised(self) -> Address:
        """The address that this client is told for this broker."""
        return self.broker.config.advertised or self.local
