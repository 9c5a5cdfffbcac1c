"""The records of `__transaction_state` against the schemas in the jar of Kafka's transaction coordinator."""

import json
import re
import zipfile

import pytest

from headrace.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from tests.conformance.test_schemas_match_kafka import _kafka_struct, _our_struct, _versions

pytestmark = pytest.mark.java

JAR = "kafka-transaction-coordinator-4.3.1.jar"


def _with_versions(fields):
    """The same fields, with the versions spelled out of those that only ever were tagged."""
    return [
        {"versions": field.get("taggedVersions")} | field | {"fields": _with_versions(field.get("fields", []))}
        for field in fields
    ]


@pytest.fixture(scope="module")
def kafka_schemas(kafka_jars):
    schemas = {}
    with zipfile.ZipFile(kafka_jars / JAR) as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                schema = json.loads(re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE))
                schemas[schema["name"]] = schema | {"fields": _with_versions(schema["fields"])}
    assert set(schemas) == {"TransactionLogKey", "TransactionLogValue"}
    return schemas


@pytest.mark.parametrize("message", [TransactionLogKey, TransactionLogValue], ids=lambda message: message.__name__)
def test_the_declaration_is_kafkas(kafka_schemas, message):
    declared, schema = message.__schema__, kafka_schemas[message.__name__]
    versions = _versions(schema["validVersions"], range(1 << 15))
    flexible = _versions(schema["flexibleVersions"], versions)

    assert schema["apiKey"] == 0, "the number in front of the key"
    assert declared.versions == versions
    assert declared.flexible_since == (flexible.start if flexible else None)
    for version in versions:
        is_flexible = version in flexible
        ours = _our_struct(message, version, flexible=is_flexible)
        assert ours == _kafka_struct(schema, schema["fields"], versions, version, flexible=is_flexible)
