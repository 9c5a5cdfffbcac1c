"""Hypothesis strategies for any declared message in any version, derived from the declaration itself."""

from functools import cache

from hypothesis import strategies as st

from headrace.protocol.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    Primitive,
    RawTag,
)

# More than 127 items or bytes: a compact length of two bytes.
LARGE = 130
FIRST_UNKNOWN_TAG = 100


def _integers(bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.sampled_from([low, -1, 0, 1, high]) | st.integers(low, high)


PRIMITIVES = {
    BOOLEAN: st.booleans(),
    INT8: _integers(8),
    INT16: _integers(16),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: _integers(32),
    INT64: _integers(64),
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
    STRING: st.sampled_from(["", "topic", "ü€𐍈", "x" * 127, "y" * LARGE]) | st.text(max_size=10),
    BYTES: st.sampled_from([b"", b"z" * LARGE]) | st.binary(max_size=10),
    RECORDS: st.sampled_from([b"", b"r" * 1000]) | st.binary(max_size=10),
}


class Values:
    """Strategies for one version; `primitive` may narrow what a field's values are, and None leaves it out."""

    def __init__(self, version, *, flexible, unknown_tags=False, primitive=None):
        self.version = version
        self.tagging = flexible and unknown_tags
        self.primitive = primitive or (lambda field: PRIMITIVES[field.type])

    def struct(self, cls, depth=0):
        fields = [field for field in cls.__schema__.fields if field.exists(self.version)]
        made = {field.name: found for field in fields if (found := self.field(field, depth)) is not None}
        if self.tagging:
            made["unknown_tags"] = _unknown_tags()
        return st.builds(cls, **made)

    def field(self, field, depth):
        single = self.primitive(field) if isinstance(field.type, Primitive) else self.struct(field.type, depth + 1)
        if single is None:
            return None
        value = self.array(field, single, depth) if field.is_array else single
        if field.nullable(self.version):
            value = st.none() | value
        return value

    def array(self, field, single, depth):
        few = st.lists(single, max_size=2)
        if isinstance(field.type, Primitive) or depth == 0:
            # Large arrays repeat one value: they are about counts, and made in no time.
            return few | single.map(lambda item: [item] * LARGE)
        return few


def _unknown_tags():
    tag = st.sampled_from([FIRST_UNKNOWN_TAG, 127, 128, 2**31 - 1])
    tags = st.dictionaries(tag, st.binary(max_size=4) | st.just(b"t" * LARGE), max_size=2)
    return tags.map(lambda found: tuple(RawTag(tag, data) for tag, data in sorted(found.items())))


@cache  # a strategy costs more to make than an example
def messages(cls, version, *, unknown_tags=False, primitive=None):
    """Instances of a message whose values this version can carry."""
    flexible = cls.__schema__.is_flexible(version)
    return Values(version, flexible=flexible, unknown_tags=unknown_tags, primitive=primitive).struct(cls)
