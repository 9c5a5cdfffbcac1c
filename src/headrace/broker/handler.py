"""What every handler is given besides the request, what it may answer, and what its caller has to be allowed.

Each API says in `registry.py` what it needs. Of the request as a whole that is asked before its handler runs; of the
single topics, groups and so on that a request names it is asked where the handler looks them up, by `Context`. There a
handler can only ask for what the registry says: anything else is an error, and the client is hung up on. So what is not
declared is not allowed.

Every denial is recorded in the audit log where it is decided, and every change when it is answered, before the client
hears of it; a handler has nothing to do with either.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import GeneratorType, MappingProxyType
from typing import Any, NamedTuple, TypeVar

from headrace.broker.changes import FREQUENT, Change, Changes, word_of
from headrace.broker.config import PLAINTEXT, Address
from headrace.broker.errors import BrokerError
from headrace.broker.runtime import Runtime
from headrace.broker.throttling import Meter
from headrace.broker.topics import Topic
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message
from headrace.security.acl import CLUSTER_NAME, Operation, ResourceType
from headrace.security.authorizer import every_operation
from headrace.security.principal import ANONYMOUS, Principal
from headrace.telemetry import audit
from headrace.telemetry.audit import Caller

T = TypeVar("T")

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

_DENIED = {
    TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


def denial(resource_type: ResourceType) -> BrokerError:
    return BrokerError(*_DENIED[resource_type])


class Needs(NamedTuple):
    """What the caller of an API has to be allowed; nothing, if nothing is said."""

    # of the request as a whole
    cluster: tuple[Operation, ...] = ()  # one of them
    group: Operation | None = None  # on the group that `group_id` names
    transactional_id: Operation | None = None  # on the one that `transactional_id` names, if it is not null
    # of each resource that the request or its answer names
    each: Mapping[ResourceType, Operation] = MappingProxyType({})
    or_cluster: tuple[Operation, ...] = ()  # one of them on the cluster, instead of that
    also: frozenset[tuple[Operation, ResourceType]] = frozenset()  # what else the handler asks about single resources
    refuses_each: bool = False  # an answer to what is not allowed as a whole names every entry besides
    api: str = ""  # whose these are, by its name of Kafka's


NOTHING = Needs()


def _let_go() -> None:
    """Where nothing is held."""


def _hold_nothing() -> Callable[[], None]:
    return _let_go


@dataclass(slots=True)
class Peer:
    """What a connection knows of its client; the software is named by ApiVersions (KIP-511)."""

    port: int = 0
    software_name: str = "unknown"
    software_version: str = "unknown"
    when_closed: dict[Hashable, Callable[[], object]] = field(default_factory=dict)  # what ends with the connection
    hold: Callable[[], Callable[[], None]] = _hold_nothing  # have no more requests taken until it is let go of again

    def leave(self) -> None:
        """The connection is closed: end what ends with it, and hold nothing of it."""
        self.hold = _hold_nothing
        for end in tuple(self.when_closed.values()):
            end()
        self.when_closed.clear()


@dataclass(slots=True)
class Context:
    broker: Runtime
    version: int
    client_id: str | None
    served: Mapping[int, range]  # every API that is served, and its versions
    client_host: str
    advertised: Address  # what this client is told of where this broker is
    principal: Principal = ANONYMOUS  # who the client is
    listener: str = PLAINTEXT  # the name of the listener that it came through
    peer: Peer = field(default_factory=Peer)
    needs: Needs = NOTHING
    meter: Meter | None = None  # counts what the request uses, if quotas are set
    refused: BrokerError | None = None  # what each entry is answered, since the request as a whole is not allowed

    # --- what the client may do: everything, where nothing is authorised

    def allows(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do to a resource that it names what this API needs; if not, that is a denial."""
        if self.sees(resource_type, name):
            return True
        if self.refused is None:
            self._record_denial(self.needs.each[resource_type], resource_type, name)
        return False

    def sees(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """The same of a resource that the client did not name: a list leaves it out, and nothing was denied."""
        if self.broker.authorizer is None:
            return True
        if self.refused is not None:
            return False
        return self._may(self.needs.each[resource_type], resource_type, name) or self._may_one(self.needs.or_cluster)

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do something else, which the registry lists for this API."""
        self._check_declared(operation, resource_type)
        return self._may(operation, resource_type, name)

    def may_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do it to some resource of the type."""
        self._check_declared(operation, resource_type)
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows_any(self.principal, self.client_host, operation, resource_type)

    def _check_declared(self, operation: Operation, resource_type: ResourceType) -> None:
        if self.broker.authorizer and (operation, resource_type) not in self.needs.also:
            raise AssertionError(f"{operation.name} on {resource_type.name} is not declared for this API")

    def _may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows(self.principal, self.client_host, operation, resource_type, name)

    def _may_one(self, operations: tuple[Operation, ...]) -> bool:
        return any(self._may(operation, CLUSTER, CLUSTER_NAME) for operation in operations)

    def require(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Refuse what the client may not do to a resource."""
        if self.broker.authorizer is not None and not self.allows(resource_type, name):
            raise self.refused or denial(resource_type)

    def require_also(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Refuse what the client may not do besides, which the registry lists for this API."""
        if not self.may(operation, resource_type, name):
            raise self.deny(operation, resource_type, name)

    def topic(self, name: str, topic_id: bytes = b"", *, by_id: bool = False) -> Topic:
        """The topic, if the client may do to it what this API does; if not, nobody learns whether it is there."""
        broker, authorizer = self.broker, self.broker.authorizer
        if authorizer is not None:
            if by_id and self.refused is None:
                name = broker.topic(name, topic_id, by_id=True).name
            # What was allowed before is not asked for in full again: records are produced and fetched by this.
            action = (self.principal, self.client_host, self.needs.each[TOPIC], TOPIC, name)
            if self.refused is not None or not authorizer.remembered.get(action):
                self.require(TOPIC, name)
        return broker.topic(name, topic_id, by_id=by_id)

    def charge_mutations(self, partitions: int, *, strict: bool) -> None:
        """Count partitions that are about to be made or deleted; a strict quota that is used up refuses them."""
        if self.meter is not None:
            self.meter.charge_mutations(partitions, strict=strict)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the client may do to a resource, as the bits of Kafka's operations."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return every_operation(resource_type)
        return authorizer.operations(self.principal, self.client_host, resource_type, name)

    def deny_whole(self, request: Any) -> BrokerError | None:
        """Why the request as a whole is not allowed, if it is not."""
        needs = self.needs
        if needs.cluster and not self._may_one(needs.cluster):
            return self.deny(needs.cluster[0], CLUSTER)
        name = request.transactional_id if needs.transactional_id is not None else None
        if (
            needs.transactional_id
            and name is not None
            and not self._may(needs.transactional_id, TRANSACTIONAL_ID, name)
        ):
            return self.deny(needs.transactional_id, TRANSACTIONAL_ID, name)
        if needs.group is not None and not self._may(needs.group, GROUP, request.group_id):
            return self.deny(needs.group, GROUP, request.group_id)
        return None

    # --- what is recorded of it

    @property
    def caller(self) -> Caller:
        client = str(Address(self.client_host, self.peer.port))
        return Caller(str(self.principal), client, self.client_id, self.listener)

    def deny(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> BrokerError:
        """What a client is answered that may not do something, which is recorded."""
        self._record_denial(operation, resource_type, name)
        return denial(resource_type)

    def _record_denial(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        if not self.broker.audit.wants(audit.DENIALS):  # then it costs no more than to count it: clients can ask a lot
            self.broker.audit.counts[audit.DENIAL, audit.DENIED] += 1
            return
        api, word, kind = self.needs.api, word_of(operation), word_of(resource_type)
        self.broker.audit.record_often(
            audit.DENIALS,
            audit.DENIAL,
            audit.DENIED,
            self.caller,
            (self.principal, self.client_host, self.client_id, api, operation, resource_type, name),
            api=api,
            operation=word,
            resources=[{"type": kind, "name": name}],
        )

    def record_changes(self, api: str, changes: Iterable[Change], *, is_frequent: bool = False) -> None:
        """Record what was changed, and what was tried in vain; what was denied is recorded already.

        Of changes that are made every second by whoever is not an administrator, those alike are counted.
        """
        if not self.broker.audit.wants(audit.CHANGES):
            return
        by_code: dict[int | None, list[dict[str, Any]]] = {}
        for change in changes:
            if not change.is_denied:
                resource = {"type": change.resource_type, "name": change.name, **change.facts}
                by_code.setdefault(change.error_code, []).append(resource)
        record = self.broker.audit
        for code, resources in by_code.items():
            outcome = audit.UNKNOWN if code is None else audit.FAILED if code else audit.OK
            facts: dict[str, Any] = {"api": api, **({"error": ErrorCode.of(code).name} if code else {})}
            if not is_frequent:
                record.record_resources(audit.CHANGE, outcome, self.caller, resources, **facts)
                continue
            key = (self.principal, self.client_host, self.client_id, api, resources[0]["name"], code)
            facts["resources"] = resources[: audit.RESOURCES_A_LINE]
            record.record_often(audit.CHANGES, audit.CHANGE, outcome, self.caller, key, **facts)

    async def record_made(self, making: Awaitable[T], api: str, change: Change) -> T:
        """What comes of making something that the answer does not tell of; recorded, also if the client leaves.

        Nothing is recorded if what comes of it is false: then somebody else was first.
        """
        try:
            made = await making
        except asyncio.CancelledError:
            self.record_changes(api, [change._replace(error_code=None)])
            raise
        if made:
            self.record_changes(api, [change])
        return made


# A handler answers at once, later, or (Produce with acks=0) not at all. A None that comes later hangs up on the client.
Answer = Message | Deferred[Message] | Deferred[Message | None] | Coroutine[Any, Any, Message | None] | None

# One that goes through an array of the request does so in steps: it yields after each entry, since there may be many.
Handled = Answer | Steps[Answer]

Run = Callable[[Context, Any], Handled]


class Handler(NamedTuple):
    run: Run
    versions: range
    needs: Needs


def authorized(run: Run, needs: Needs, response: type[Message]) -> Run:
    """The handler, behind what it needs.

    A request that is not allowed as a whole is answered with the error alone; if its answer has no place for that, each
    entry is refused: the handler runs, and whatever it looks up, `Context` refuses.
    """
    fields = {field.name: field for field in response.__schema__.fields}
    has_whole = bool(needs.cluster or needs.group or needs.transactional_id)
    is_for_transactions = bool(needs.transactional_id and not needs.cluster and not needs.group)

    def handle(ctx: Context, request: Any) -> Handled:
        if ctx.broker.authorizer is None:
            return run(ctx, request)
        ctx.needs = needs
        if not has_whole or (is_for_transactions and request.transactional_id is None):  # as most that are produced
            return run(ctx, request)
        denied = ctx.deny_whole(request)
        if denied is None:
            return run(ctx, request)
        if needs.refuses_each or "error_code" not in fields or not fields["error_code"].exists(ctx.version):
            ctx.refused = denied
            return run(ctx, request)
        answer: Any = response(error_code=denied.code)  # type: ignore[call-arg]  # it has one, as was seen
        if "error_message" in fields and fields["error_message"].exists(ctx.version):
            answer.error_message = str(denied)
        return answer  # type: ignore[no-any-return]

    return handle


def audited(run: Run, api: str, changes: Changes) -> Run:
    """The handler of an API that changes something; what it changed is recorded before it is answered."""

    def handle(ctx: Context, request: Any) -> Handled:
        if not ctx.broker.audit.wants(audit.CHANGES) or getattr(request, "validate_only", False):
            return run(ctx, request)

        def see(response: Message | None) -> None:
            ctx.record_changes(api, changes(request, response), is_frequent=changes in FREQUENT)

        answer = run(ctx, request)
        return _see_in_steps(answer, see) if isinstance(answer, GeneratorType) else _see_answer(answer, see)

    return handle


See = Callable[[Message | None], None]


def _see_answer(answer: Any, see: See) -> Any:
    if isinstance(answer, Deferred):
        return answer.after(see)
    if answer is None or isinstance(answer, Message):
        see(answer)
        return answer
    return _see_later(answer, see)


async def _see_later(answer: Coroutine[Any, Any, Message | None], see: See) -> Message | None:
    try:
        message = await answer
    except asyncio.CancelledError:  # the client left; what was begun may go on
        see(None)
        raise
    see(message)
    return message


def _see_in_steps(steps: Steps[Any], see: See) -> Steps[Any]:
    try:
        answer = yield from steps
    except GeneratorExit:
        see(None)
        raise
    return _see_answer(answer, see)
