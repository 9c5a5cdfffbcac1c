"""Whether the broker is there, asked every second; and what else is asked of it, one question at a time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError

T = TypeVar("T")
_EVERY_S: Final = 1.0
_PATIENCE_S: Final = 3.0


class Watch:
    """Of one cluster; for an event loop."""

    def __init__(self, bootstrap: Sequence[Address], name: str) -> None:
        settings = ConnectionSettings(
            client_id=f"headrace-gateway-{name}", connect_timeout_s=_PATIENCE_S, request_timeout_s=_PATIENCE_S
        )
        self._cluster = Cluster(bootstrap, settings, retry=PATIENT.at_most(1))
        self._pool = ThreadPoolExecutor(1, f"headrace-{name}-watch")
        self.problem = ""
        self._since = 0.0

    @property
    def away_s(self) -> float:
        """For how long the broker has not been there; 0 if it is."""
        return time.monotonic() - self._since if self.problem else 0.0

    async def ask(self, question: Callable[[Cluster], T]) -> T:
        """Raises a `ClientError`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, question, self._cluster)

    async def look(self) -> None:
        try:
            await self.ask(lambda cluster: cluster.brokers(refresh=True))
            self.problem = ""
        except ClientError as error:
            if not self.problem:
                self._since = time.monotonic()
            self.problem = str(error)

    async def keep_looking(self, each: Callable[[], "asyncio.Future[None] | None"]) -> None:
        while True:
            await self.look()
            if (then := each()) is not None:
                await then
            await asyncio.sleep(_EVERY_S)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._cluster.close()
