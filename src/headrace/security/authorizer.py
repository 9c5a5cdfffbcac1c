"""Who may do what, decided by ACLs as Kafka's StandardAuthorizer decides.

What always holds: a super user may do everything; for anybody else one ACL that denies outweighs every one that allows;
and what no ACL allows is denied, unless no ACL bears on the resource and `allow.everyone.if.no.acl.found` is set. An
ACL that allows something allows what it implies, too (whoever may read a topic may describe it); one that denies
something denies that alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from headrace.model import MAX_TOPIC_NAME
from headrace.security.acl import WILDCARD, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from headrace.security.principal import EVERYONE, Principal

# What an ACL that allows the first allows besides.
_IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}

_TOPIC_AND_CONFIGS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
# What can be done to a resource at all.
OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: _TOPIC_AND_CONFIGS,
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
}

_MOST_REMEMBERED = 100_000  # decisions; beyond it all are made anew
_LONGEST_REMEMBERED = MAX_TOPIC_NAME  # no longer name is worth the memory: whoever asks chooses what is kept


class Action(NamedTuple):
    """Somebody, from some host, wants to do something to one resource."""

    principal: Principal
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


class _Pattern(NamedTuple):
    resource_type: ResourceType
    name: str


class Acls:
    """All ACLs, each once, found by the resource that they bear on."""

    def __init__(self) -> None:
        self._literal: dict[_Pattern, dict[Acl, None]] = {}
        self._prefixed: dict[_Pattern, dict[Acl, None]] = {}
        self._prefix_lengths: Counter[tuple[ResourceType, int]] = Counter()

    def __iter__(self) -> Iterator[Acl]:
        for patterns in (self._literal, self._prefixed):
            for acls in patterns.values():
                yield from acls

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._table_of(acl).get(_Pattern(acl.resource_type, acl.resource_name), ())

    def _table_of(self, acl: Acl) -> dict[_Pattern, dict[Acl, None]]:
        return self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal

    def add(self, acl: Acl) -> None:
        if acl in self:
            return
        self._table_of(acl).setdefault(_Pattern(acl.resource_type, acl.resource_name), {})[acl] = None
        if acl.pattern_type is PatternType.PREFIXED:
            self._prefix_lengths[acl.resource_type, len(acl.resource_name)] += 1

    def remove(self, acl: Acl) -> None:
        if acl not in self:
            return
        table, pattern = self._table_of(acl), _Pattern(acl.resource_type, acl.resource_name)
        del table[pattern][acl]
        if not table[pattern]:
            del table[pattern]
        if acl.pattern_type is PatternType.PREFIXED:
            length = (acl.resource_type, len(acl.resource_name))
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]

    def matching(self, filter_: AclFilter) -> list[Acl]:
        return [acl for acl in self if filter_.matches(acl)]

    def bearing_on(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """Those of the resource's name, of a prefix of it, and of all resources of the type."""
        yield from self._literal.get(_Pattern(resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get(_Pattern(resource_type, WILDCARD), ())
        for kind, length in self._prefix_lengths:
            if kind is resource_type and length <= len(name):
                yield from self._prefixed.get(_Pattern(resource_type, name[:length]), ())

    def decide(self, action: Action) -> bool | None:
        """Whether the action is allowed; None if no ACL bears on the resource."""
        verdict: bool | None = None
        for acl in self.bearing_on(action.resource_type, action.name):
            verdict = verdict or False
            if bears_on(acl, action):
                if acl.permission is Permission.DENY:
                    return False
                verdict = True
        return verdict

    def allow_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether an ACL allows the operation on some resource of the type, whichever that may be.

        As in Kafka, operations that are implied do not count, and an ACL that allows is outweighed by one that denies
        the same name, a prefix of it, or all.
        """
        concerning = [
            acl
            for acl in self
            if acl.resource_type is resource_type
            and _concerns(acl, principal, host)
            and acl.operation in (operation, Operation.ALL)
        ]
        denied = {(acl.pattern_type, acl.resource_name) for acl in concerning if acl.permission is Permission.DENY}
        allowed = {(acl.pattern_type, acl.resource_name) for acl in concerning if acl.permission is Permission.ALLOW}
        every = (PatternType.LITERAL, WILDCARD)
        if every in denied:
            return False
        return any(
            pattern == every or not (pattern in denied or _has_prefix_in(pattern[1], denied)) for pattern in allowed
        )


def bears_on(acl: Acl, action: Action) -> bool:
    """Whether an ACL of the resource says something of this user, host and operation."""
    return _concerns(acl, action.principal, action.host) and _covers(acl, action.operation)


def _has_prefix_in(name: str, denied: set[tuple[PatternType, str]]) -> bool:
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _concerns(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (str(principal), str(EVERYONE)) and (acl.host == WILDCARD or _is_host(acl.host, host))


def _is_host(written: str, host: str) -> bool:
    """Whether an ACL's host is the client's; an IPv6 address may be written in several ways."""
    if written == host:
        return True
    try:
        return ":" in written and ip_address(written) == ip_address(host)
    except ValueError:
        return False


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is Permission.ALLOW and _IMPLIED.get(acl.operation) is operation


class Authorizer:
    """Decides by the ACLs as they are at the moment; what it has decided it remembers until `forget` is called."""

    def __init__(
        self, acls: Callable[[], Acls], *, super_users: frozenset[Principal], allow_if_no_acl: bool = False
    ) -> None:
        self._acls = acls
        self._super_users = super_users
        self._allow_if_no_acl = allow_if_no_acl
        self.revision = 0  # grows with every change of the ACLs
        self.remembered: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}  # by `Action`

    def allows_anybody(self) -> bool:
        """Whether there is somebody who may do something."""
        return bool(self._super_users or self._allow_if_no_acl or any(self._acls()))

    def forget(self) -> None:
        """Decide anew, since an ACL has come or gone."""
        self.revision += 1
        self.remembered.clear()

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        action = Action(principal, host, operation, resource_type, name)
        known = self.remembered.get(action)
        if known is None:
            known = self._decide(action)
            if len(name) <= _LONGEST_REMEMBERED:
                if len(self.remembered) >= _MOST_REMEMBERED:
                    self.remembered.clear()
                self.remembered[action] = known
        return known

    def _decide(self, action: Action) -> bool:
        if action.principal in self._super_users:
            return True
        verdict = self._acls().decide(action)
        return self._allow_if_no_acl if verdict is None else verdict

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of the type, whichever that may be."""
        some = "hardcode"  # Kafka's own: whoever may do it to a resource that nobody named is a super user, or as good
        return self.allows(principal, host, operation, resource_type, some) or self._acls().allow_any(
            principal, host, operation, resource_type
        )

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """What is allowed, as the bits of the operations' numbers."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def every_operation(resource_type: ResourceType) -> int:
    """The bits where nothing is authorised."""
    return sum(1 << operation for operation in OPERATIONS[resource_type])
