"""Who may do what, decided by ACLs as Kafka's StandardAuthorizer does."""

from collections.abc import Iterator

from headrace.security.acl import Acl, AclFilter


class Acls:
    """All ACLs, each once."""

    def __init__(self) -> None:
        self._all: dict[Acl, None] = {}

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def add(self, acl: Acl) -> None:
        self._all[acl] = None

    def remove(self, acl: Acl) -> None:
        self._all.pop(acl, None)

    def matching(self, filter_: AclFilter) -> list[Acl]:
        return [acl for acl in self._all if filter_.matches(acl)]
