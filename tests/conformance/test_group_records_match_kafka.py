"""The records of `__consumer_offsets` and `__share_group_state` against the schemas inside Kafka's coordinators."""

import json
import re
import zipfile

import pytest

from headrace.coordinator.group.records import RECORD_TYPES as OF_GROUPS
from headrace.coordinator.share.records import RECORD_TYPES as OF_SHARES
from tests.conformance import test_schemas_match_kafka as comparison

pytestmark = pytest.mark.java

JARS = ("kafka-group-coordinator-4.3.1.jar", "kafka-share-coordinator-4.3.1.jar")
RECORD_TYPES = (*OF_GROUPS, *OF_SHARES)
STRUCTS = [struct for kind in RECORD_TYPES for struct in (kind.key, kind.value)]


@pytest.fixture(scope="module")
def record_schemas(kafka_jars):
    schemas = {}
    for path in JARS:
        with zipfile.ZipFile(kafka_jars / path) as jar:
            for name in jar.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                    schema = json.loads(text)
                    schemas[schema["name"]] = schema
    assert len(schemas) > 30, "the jar does not hold the schemas that it used to"
    # Kafka means null here (its JSON has null, where its generator wants "null"), and always writes it.
    (classic,) = [
        field
        for field in schemas["ConsumerGroupMemberMetadataValue"]["fields"]
        if field["name"] == "ClassicMemberMetadata"
    ]
    assert classic["default"] is None
    classic["default"] = "null"
    # And it does not say since when this one is there.
    (configs,) = [
        field for field in schemas["StreamsGroupMetadataValue"]["fields"] if field["name"] == "LastAssignmentConfigs"
    ]
    assert "versions" not in configs
    configs["versions"] = "0+"
    return schemas


@pytest.mark.parametrize("message", STRUCTS, ids=lambda message: message.__name__)
def test_the_declaration_is_kafkas(record_schemas, message):
    declared, schema = message.__schema__, record_schemas[message.__name__]
    versions = comparison._versions(schema["validVersions"], range(1 << 15))
    flexible = comparison._versions(schema["flexibleVersions"], versions)

    assert declared.versions == versions
    assert declared.flexible_since == (flexible.start if flexible else None)
    for version in versions:
        is_flexible = version in flexible
        ours = comparison._our_struct(message, version, flexible=is_flexible)
        assert ours == comparison._kafka_struct(schema, schema["fields"], versions, version, flexible=is_flexible)


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.key.__name__)
def test_a_type_has_kafkas_number(record_schemas, kind):
    assert record_schemas[kind.key.__name__]["apiKey"] == kind.number
    assert record_schemas[kind.value.__name__]["apiKey"] == kind.number


def test_no_type_of_these_groups_is_missing(record_schemas):
    ours = {kind.key.__name__ for kind in RECORD_TYPES}
    theirs = {name for name in record_schemas if name.endswith("Key")}
    assert theirs - ours == {"LegacyOffsetCommitKey"}
