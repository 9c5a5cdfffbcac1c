"""What the broker knows beside its topics, as typed records of `__headrace_metadata`, and the state they add up to.

The topic is compacted: the latest record of a key counts, a tombstone removes it. A new kind of metadata is a key and a
value here, a line in `RECORD_TYPES`, and a line in `MetadataImage` that says what takes it in. What always holds: the
image is the records applied in their order, and nothing else, so it is the same after a restart.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.record_types import RecordType, RecordTypes
from headrace.protocol.schema import Message, Struct, array, blob, float64, int8, int32, nullable_string, string
from headrace.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from headrace.security.authorizer import Acls
from headrace.security.quotas import Entity, Quotas, parse_entity
from headrace.security.scram import NUMBERS, ScramCredential

METADATA_TOPIC = "__headrace_metadata"


class AclKey(Message, versions=range(1)):
    """The whole ACL: two that differ in anything are two."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission: int = int8()


class AclValue(Message, versions=range(1), flexible_since=0):
    """That the ACL holds; there is nothing more to say of it."""


class CredentialKey(Message, versions=range(1)):
    """A user may have a password for each mechanism."""

    user: str = string()
    mechanism: int = int8()


class CredentialValue(Message, versions=range(1), flexible_since=0):
    """What is kept of a password."""

    salt: bytes = blob()
    iterations: int = int32()
    stored_key: bytes = blob()
    server_key: bytes = blob()


class ConfigKey(Message, versions=range(1)):
    """What has settings of its own: the broker, a group, a subscription to client metrics; by Kafka's numbers."""

    resource_type: int = int8()
    resource_name: str = string()


class ConfigEntry(Struct):
    name: str = string()
    value: str = string()


class ConfigValue(Message, versions=range(1), flexible_since=0):
    """All of its settings: they change together or not at all."""

    entries: list[ConfigEntry] = array(ConfigEntry)


class QuotaPart(Struct):
    """A user, a client id or an address; null instead of a name is the default."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


class QuotaKey(Message, versions=range(1)):
    """What quotas are set for; its parts stand in the order of their types, so that there is one key for it."""

    entity: list[QuotaPart] = array(QuotaPart)


class QuotaEntry(Struct):
    key: str = string()
    value: float = float64()


class QuotaValue(Message, versions=range(1), flexible_since=0):
    """All of its quotas: they change together or not at all."""

    entries: list[QuotaEntry] = array(QuotaEntry)


RECORD_TYPES = RecordTypes(
    METADATA_TOPIC,
    [
        RecordType(0, AclKey, AclValue, 0),
        RecordType(1, CredentialKey, CredentialValue, 0),
        RecordType(2, ConfigKey, ConfigValue, 0),
        RecordType(3, QuotaKey, QuotaValue, 0),
    ],
)
_MECHANISMS = {number: name for name, number in NUMBERS.items()}


class MetadataImage:
    """Everything that the records say, as of the last one applied."""

    def __init__(self) -> None:
        self.acls = Acls()
        self.credentials: dict[tuple[str, str], ScramCredential] = {}  # by mechanism and user
        self.removed_credentials = 0  # how many were, as far as the records tell
        self.quotas = Quotas()
        self._configs: dict[int, dict[str, dict[str, str]]] = {}
        self._take_in: dict[type[Message], Callable[[Any, Any], None]] = {
            AclKey: self._take_in_acl,
            CredentialKey: self._take_in_credential,
            ConfigKey: self._take_in_config,
            QuotaKey: self._take_in_quotas,
        }

    def apply(self, record: CoordinatorRecord) -> None:
        self._take_in[type(record.key)](record.key, record.value)  # type: ignore[index]  # decoded by RECORD_TYPES

    def _take_in_acl(self, key: AclKey, value: AclValue | None) -> None:
        acl = _acl_of(key)
        acl.check()
        if value is None:
            self.acls.remove(acl)
        else:
            self.acls.add(acl)

    def _take_in_credential(self, key: CredentialKey, value: CredentialValue | None) -> None:
        mechanism = _MECHANISMS.get(key.mechanism)
        if mechanism is None:
            return  # of a later version, which can be told apart by nobody who logs in here
        if value is None:
            self.removed_credentials += 1
            self.credentials.pop((mechanism, key.user), None)
        else:
            self.credentials[mechanism, key.user] = ScramCredential(
                bytes(value.salt), value.iterations, bytes(value.stored_key), bytes(value.server_key)
            )

    def configs(self, resource_type: int) -> Mapping[str, Mapping[str, str]]:
        """The settings of everything of one type that has any, by name."""
        return self._configs.get(resource_type, {})

    def _take_in_config(self, key: ConfigKey, value: ConfigValue | None) -> None:
        by_name = self._configs.setdefault(key.resource_type, {})
        if value is None:
            by_name.pop(key.resource_name, None)
        else:
            by_name[key.resource_name] = {entry.name: entry.value for entry in value.entries}

    def _take_in_quotas(self, key: QuotaKey, value: QuotaValue | None) -> None:
        entity = parse_entity({part.entity_type: part.entity_name for part in key.entity})
        self.quotas.set(entity, {entry.key: entry.value for entry in value.entries} if value else {})


class MetadataChange(NamedTuple):
    """What is decided about a request that changes metadata: the records to write, and the answer once they are."""

    response: Message
    records: Sequence[CoordinatorRecord] = ()


def config_record(resource_type: int, resource_name: str, settings: Mapping[str, str]) -> CoordinatorRecord:
    """The record of all settings of something; without any it is a tombstone."""
    entries = [ConfigEntry(name=name, value=value) for name, value in settings.items()]
    key = ConfigKey(resource_type=resource_type, resource_name=resource_name)
    return CoordinatorRecord(key, ConfigValue(entries=entries) if entries else None)


def quota_record(entity: Entity, quotas: Mapping[str, float]) -> CoordinatorRecord:
    """The record of all quotas of an entity; without any it is a tombstone."""
    parts = [QuotaPart(entity_type=kind, entity_name=name) for kind, name in sorted(entity.parts.items())]
    entries = [QuotaEntry(key=key, value=value) for key, value in quotas.items()]
    return CoordinatorRecord(QuotaKey(entity=parts), QuotaValue(entries=entries) if entries else None)


def record_of(acl: Acl, *, is_removed: bool = False) -> CoordinatorRecord:
    key = AclKey(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )
    return CoordinatorRecord(key, None if is_removed else AclValue())


def record_of_credential(mechanism: str, user: str, credential: ScramCredential | None) -> CoordinatorRecord:
    """With no credential, the record that removes it."""
    key = CredentialKey(user=user, mechanism=NUMBERS[mechanism])
    if credential is None:
        return CoordinatorRecord(key, None)
    value = CredentialValue(
        salt=credential.salt,
        iterations=credential.rounds,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
    )
    return CoordinatorRecord(key, value)


def _acl_of(key: AclKey) -> Acl:
    return Acl(
        ResourceType(key.resource_type),
        key.resource_name,
        PatternType(key.pattern_type),
        key.principal,
        key.host,
        Operation(key.operation),
        Permission(key.permission),
    )
