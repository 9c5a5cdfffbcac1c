"""ACLs as values: what one says, and which ones a filter matches. Numbers and rules are Kafka's (KIP-11, KIP-290)."""

from enum import IntEnum
from ipaddress import ip_address
from typing import NamedTuple

from headrace.errors import HeadraceError


class InvalidAcl(HeadraceError):
    """An ACL that cannot be kept, or a filter that cannot match."""


class _Known(IntEnum):
    __hash__ = int.__hash__  # in C: an enum's own is Python's, and every decision is looked up by two of them

    @classmethod
    def _missing_(cls, _: object) -> "_Known":
        """As in Kafka a number that is not known stands for UNKNOWN."""
        return cls(0)


class ResourceType(_Known):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Known):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Known):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Known):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD = "*"  # as a literal name: every resource of the type; as a host: every host
CLUSTER_NAME = "kafka-cluster"  # the only resource of type CLUSTER


class Acl(NamedTuple):
    """Allows or denies one principal one operation on the resources that match, from one host or every one."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType  # LITERAL or PREFIXED
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def check(self) -> None:
        """Refuse what only a filter may say, and a resource without a name or with a wrong one."""
        if self.resource_type is ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        if not self.resource_name:
            raise InvalidAcl("Invalid empty resource name")
        if self.resource_type <= ResourceType.ANY:
            raise InvalidAcl(f"Invalid resourceType {self.resource_type.name}")
        if self.pattern_type < PatternType.LITERAL:
            raise InvalidAcl(f"Invalid patternType {self.pattern_type.name}")
        if self.operation <= Operation.ANY:
            raise InvalidAcl(f"Invalid operation {self.operation.name}")
        if self.permission <= Permission.ANY:
            raise InvalidAcl(f"Invalid permissionType {self.permission.name}")


def is_some_host(host: str) -> bool:
    """Whether an ACL's host is that of some client: clients are known by their addresses, IPv4 ones as such.

    Kafka takes any text for a host; one that is not an address of that form bears on nobody.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host == WILDCARD
    return not (address.version == 6 and address.ipv4_mapped)


class AclFilter(NamedTuple):
    """Which ACLs to list or remove; None and ANY match everything.

    The pattern type MATCH asks for the ACLs that bear on a resource of that name: its own, those of a prefix of it, and
    those of all.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)
