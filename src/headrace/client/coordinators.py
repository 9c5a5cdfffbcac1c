"""FindCoordinator: which broker looks after a group or a transactional id, and questions put to it.

The answer is kept until it proves wrong, for all who ask through the same `Cluster`: a broker that is gone, or that
says it is not the one, is forgotten, and the next try looks anew.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import LostConnection, Refused
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

R = TypeVar("R")

_MANY_SINCE = 4  # KIP-699
_MOST = 1000
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CoordinatorType(IntEnum):
    """What is looked after; the number is Kafka's."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """The coordinators of the groups, or of the transactional ids, that were asked about so far."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        self.cluster = cluster
        self._kind = kind
        self._nodes = cluster.coordinators.setdefault(kind, {})

    def node_of(self, name: str) -> int:
        """The node that looks after a name, whether there is such a group or not."""
        return self.cluster.run_with_retries(lambda: self._node_of(name))

    def ask(self, name: str, question: Callable[[Connection], R], *, may_repeat: bool = True) -> R:
        """What `question` learns from the name's coordinator, asked again while its error may pass."""

        def attempt() -> R:
            node = self._node_of(name)
            try:
                return question(self.cluster.broker(node))
            except LostConnection:
                self._nodes.pop(name, None)
                raise
            except Refused as refusal:
                if refusal.code in _MOVED:
                    self._nodes.pop(name, None)
                raise

        return self.cluster.run_with_retries(attempt, may_repeat=may_repeat)

    def _node_of(self, name: str) -> int:
        if name not in self._nodes:
            if len(self._nodes) >= _MOST:  # of whoever has new names all the time
                self._nodes.clear()
            self._nodes[name] = self._find(name)
        return self._nodes[name]

    def _find(self, name: str) -> int:
        self.cluster.brokers()  # once the cluster has answered, trouble is worth another try
        connection = self.cluster.any_broker()
        is_new = connection.version_of(ApiKey.FIND_COORDINATOR) >= _MANY_SINCE
        request = (
            FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[name])
            if is_new
            else FindCoordinatorRequest(key_type=self._kind, key=name)
        )
        response = connection.request(request, FindCoordinatorResponse)
        found = response.coordinators[0] if is_new and response.coordinators else response
        if found.error_code:
            raise Refused(
                f"coordinator of {self._kind.name.lower()} {name!r}",
                ErrorCode.of(found.error_code),
                found.error_message,
            )
        return found.node_id
