"""Every declaration against the schemas that Kafka's own classes are generated from; they are inside its client jar.

Both sides are told in the same plain words, version by version, and compared whole.
"""

import json
import re
import zipfile

import pytest

from headrace.protocol.api import APIS
from headrace.protocol.frame import RequestHeader, ResponseHeader
from headrace.protocol.schema import Primitive

pytestmark = pytest.mark.java

JAR = "kafka-clients-4.3.1.jar"
BODIES = [message for api in APIS.values() for message in (api.request, api.response)]
HEADERS = [RequestHeader, ResponseHeader]
OUR_TAGS = 10_000  # and more: fields that only we know, which everybody else skips
_STRUCT = "struct"  # by its fields; its name is on no wire, and several APIs may share one


@pytest.fixture(scope="module")
def kafka_schemas(kafka_jars):
    """Kafka's schemas by name."""
    schemas = {}
    with zipfile.ZipFile(kafka_jars / JAR) as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                schemas[schema["name"]] = schema
    assert len(schemas) > 150, "the jar does not hold the schemas that it used to"
    return schemas


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _versions(text, within):
    """The versions that a range such as `3+`, `2-4` or `none` names, as far as they are among `within`."""
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(max(int(text[:-1]), within.start), within.stop)
    first, _, last = text.partition("-")
    return range(max(int(first), within.start), min(int(last or first) + 1, within.stop))


def _stable(schemas, name):
    """The versions that a broker of this Kafka speaks without `unstable.api.versions.enable`."""
    everything = _versions(schemas[name]["validVersions"], range(1 << 15))
    asking = schemas.get(name.removesuffix("Request").removesuffix("Response") + "Request", {})
    return everything[:-1] if asking.get("latestVersionUnstable") else everything


def _kafka_default(field):
    default, kind = field.get("default"), field["type"]
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return "a struct of defaults"
    if kind == "bool":
        return str(default).lower() == "true"
    if kind == "string":
        return default or ""
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return bytes(16)
    return int(str(default or 0), 0)


def _kafka_struct(schema, fields, reach, version, *, flexible):
    """What Kafka says of a struct in one version; `reach` are all the versions in which it can occur."""
    shared = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    told = []
    for field in fields:
        exists = _versions(field["versions"], reach)
        if not exists:
            continue  # gone with versions that Kafka has dropped, or not stable yet
        default = _kafka_default(field)
        if version not in exists:
            told.append(("absent", _snake(field["name"]), default, field.get("ignorable", False)))
            continue
        kind = field["type"]
        item = kind.removeprefix("[]")
        inner = None
        if item[0].isupper():
            inner = _kafka_struct(schema, field.get("fields") or shared[item], exists, version, flexible=flexible)
            kind = kind.replace(item, _STRUCT)
        told.append(
            (
                "present",
                _snake(field["name"]),
                kind,
                default,
                version in _versions(field.get("nullableVersions"), exists),
                field["tag"] if version in _versions(field.get("taggedVersions"), exists) else None,
                flexible and field.get("flexibleVersions") != "none",
                inner,
            )
        )
    return told


def _our_default(field):
    if field.default is None:
        return None
    if field.is_array:
        return []
    return field.default if isinstance(field.type, Primitive) else "a struct of defaults"


def _our_struct(struct, version, *, flexible):
    told = []
    for field in struct.__schema__.fields:
        if (field.tag or 0) >= OUR_TAGS:
            continue
        default = _our_default(field)
        if not field.exists(version):
            told.append(("absent", field.name, default, field.ignorable))
            continue
        single = isinstance(field.type, Primitive)
        item = field.type.name if single else _STRUCT
        told.append(
            (
                "present",
                field.name,
                f"[]{item}" if field.is_array else item,
                default,
                field.nullable(version),
                field.tag,
                flexible and field.flexible,
                None if single else _our_struct(field.type, version, flexible=flexible),
            )
        )
    return told


@pytest.mark.parametrize("message", BODIES + HEADERS, ids=lambda message: message.__name__)
def test_the_declaration_is_kafkas(kafka_schemas, message):
    declared, schema = message.__schema__, kafka_schemas[message.__name__]
    versions = _stable(kafka_schemas, message.__name__)
    flexible = _versions(schema["flexibleVersions"], versions)

    assert declared.versions == versions
    assert declared.api_key == schema.get("apiKey")
    assert declared.flexible_since == (flexible.start if flexible else None)
    for version in versions:
        is_flexible = version in flexible
        ours = _our_struct(message, version, flexible=is_flexible)
        assert ours == _kafka_struct(schema, schema["fields"], versions, version, flexible=is_flexible)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_an_api_has_kafkas_name_and_key(kafka_schemas, api):
    asked, answered = api.request.__name__, api.response.__name__
    assert asked.removesuffix("Request") == answered.removesuffix("Response")
    assert api.key.name == _snake(asked.removesuffix("Request")).upper()
    assert api.key == kafka_schemas[asked]["apiKey"] == kafka_schemas[answered]["apiKey"]
