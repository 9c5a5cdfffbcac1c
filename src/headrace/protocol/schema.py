"""The language in which the wire's messages are declared.

A message is a class, declared once for all its versions; a field is one line that says its type, since and until which
version it exists, whether it may be null, its default, and its tag (KIP-482). The codec compiles an encoder and a
decoder for one version from that declaration and from nothing else.

    class EndTxnRequest(Message, api_key=26, versions=range(6), flexible_since=3):
        transactional_id: str = string()
        producer_id: int = int64()
        producer_epoch: int = int16()
        committed: bool = boolean()

What always holds:
- an instance has slots, is built by keyword, and a field that is left out has Kafka's default;
- a field is written and read in the order of its declaration;
- tagged fields that the declaration does not know are kept in `unknown_tags`, and written again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NewType,
    Self,
    TypedDict,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

if TYPE_CHECKING:
    from typing import Unpack

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

# Sixteen raw bytes: they hash and compare in C and are packed together with their neighbours, which `uuid.UUID` is not.
Uuid = NewType("Uuid", bytes)
ZERO_UUID = Uuid(bytes(16))


class RawTag(NamedTuple):
    """A tagged field that the declaration does not know, as it was on the wire."""

    tag: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Primitive(Generic[T]):
    """A type of the wire that is not a struct; `format` is the letter of `struct` where its size is fixed."""

    name: str
    default: T
    format: str = ""
    size: int = 0


BOOLEAN = Primitive("bool", default=False, format="?", size=1)
INT8 = Primitive("int8", 0, "b", 1)
INT16 = Primitive("int16", 0, "h", 2)
UINT16 = Primitive("uint16", 0, "H", 2)
INT32 = Primitive("int32", 0, "i", 4)
INT64 = Primitive("int64", 0, "q", 8)
FLOAT64 = Primitive("float64", 0.0, "d", 8)
UUID = Primitive("uuid", ZERO_UUID, "16s", 16)
STRING = Primitive("string", "")
BYTES = Primitive("bytes", b"")
RECORDS: Primitive[Buffer | None] = Primitive("records", None)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: "Primitive[Any] | type[Struct]"
    is_array: bool = False
    since: int = 0
    until: int | None = None
    nullable_since: int | None = None
    default: Any = None
    ignorable: bool = False
    tag: int | None = None
    flexible: bool = True

    def exists(self, version: int) -> bool:
        return version >= self.since and (self.until is None or version <= self.until)

    def nullable(self, version: int) -> bool:
        """Whether null may stand for it in this version."""
        return self.nullable_since is not None and version >= self.nullable_since and self.exists(version)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a class declares: its fields and, for a whole message, the API and versions that it serves."""

    fields: tuple[Field, ...]
    versions: range = range(0)
    flexible_since: int | None = None
    api_key: int | None = None

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact types and tagged fields (KIP-482)."""
        return self.flexible_since is not None and version >= self.flexible_since


class _Pending:
    """What a field function leaves in the class body until the class knows the field's name."""

    __slots__ = ("facts",)

    def __init__(self, **facts: Any) -> None:
        self.facts = facts


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Makes a class with slots of a declaration, and keeps the declaration as its `__schema__`."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: range = range(0),
        flexible_since: int | None = None,
    ) -> "StructType":
        fields = []
        for attribute, value in tuple(namespace.items()):
            if isinstance(value, _Pending):
                fields.append(Field(attribute, **value.facts))
                del namespace[attribute]  # a slot of this name takes its place
        namespace["__schema__"] = Schema(tuple(fields), versions, flexible_since, api_key)
        namespace.setdefault("__slots__", tuple(field.name for field in fields))
        namespace["__init__"] = _init
        return super().__new__(cls, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)


def _init(self: "Struct", **given: Any) -> None:
    """The first instance of a class has its constructor compiled; this one is replaced by it."""
    made: Any = type(self)
    made.__init__ = _compile_init(made)
    made.__init__(self, **given)


def _compile_init(made: "type[Struct]") -> Callable[..., None]:
    """Every field by keyword, with its default. Compiling four hundred of these at each start would be felt."""
    defaults: dict[str, Any] = {}
    parameters, body = [], []
    for field in made.__schema__.fields:
        name, default = field.name, f"_{field.name}"
        parameters.append(f"{name}={default}")
        if field.default is None or (isinstance(field.type, Primitive) and not field.is_array):
            defaults[default] = field.default
            body.append(f"self.{name} = {name}")
        else:  # made anew for each instance, because it could be changed in place
            defaults[default] = _LEFT_OUT
            defaults[f"_new_{name}"] = list if field.is_array else field.type
            body.append(f"self.{name} = _new_{name}() if {name} is _LEFT_OUT else {name}")
    lines = [f"def __init__(self, *, {', '.join([*parameters, 'unknown_tags=()'])}):"]
    lines += [f"    {line}" for line in (*body, "self.unknown_tags = unknown_tags")]
    scope: dict[str, Any] = {**defaults, "_LEFT_OUT": _LEFT_OUT}
    exec("\n".join(lines), scope)  # noqa: S102 - names and defaults of our own declarations
    compiled: Callable[..., None] = scope["__init__"]
    return compiled


_LEFT_OUT = object()


class Struct(metaclass=StructType):
    """A group of fields inside a message; its versions are those of the message that it stands in."""

    __slots__ = ("unknown_tags",)
    __schema__: ClassVar[Schema]

    if TYPE_CHECKING:
        unknown_tags: tuple[RawTag, ...] = ()

    def replaced(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        held = {field.name: getattr(self, field.name) for field in self.__schema__.fields}
        return type(self)(**{**held, "unknown_tags": self.unknown_tags, **changes})

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine = (getattr(self, field.name) == getattr(other, field.name) for field in self.__schema__.fields)
        return self.unknown_tags == getattr(other, "unknown_tags", ()) and all(mine)

    __hash__ = None  # type: ignore[assignment]  # its fields may change

    def __repr__(self) -> str:
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in self.__schema__.fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request, a response or a header: a struct with versions of its own."""


class Where(TypedDict, total=False):
    """In which versions a field exists, and how."""

    since: int
    until: int
    ignorable: bool  # its value may be dropped in silence where the version has no such field
    tag: int


S = TypeVar("S", bound=Struct)


def boolean(*, default: bool = False, **where: "Unpack[Where]") -> bool:
    """One byte; anything but zero is true."""
    return cast("bool", _Pending(type=BOOLEAN, default=default, **where))


def int8(*, default: int = 0, **where: "Unpack[Where]") -> int:
    return cast("int", _Pending(type=INT8, default=default, **where))


def int16(*, default: int = 0, **where: "Unpack[Where]") -> int:
    """A signed integer of two bytes, big-endian as all of them."""
    return cast("int", _Pending(type=INT16, default=default, **where))


def uint16(*, default: int = 0, **where: "Unpack[Where]") -> int:
    """An unsigned integer of two bytes: a port."""
    return cast("int", _Pending(type=UINT16, default=default, **where))


def int32(*, default: int = 0, **where: "Unpack[Where]") -> int:
    """A signed integer of four bytes."""
    return cast("int", _Pending(type=INT32, default=default, **where))


def int64(*, default: int = 0, **where: "Unpack[Where]") -> int:
    """A signed integer of eight bytes."""
    return cast("int", _Pending(type=INT64, default=default, **where))


def float64(*, default: float = 0.0, **where: "Unpack[Where]") -> float:
    """A number of eight bytes as IEEE 754 has it; it may be infinite, or not a number at all."""
    return cast("float", _Pending(type=FLOAT64, default=default, **where))


def uuid(**where: "Unpack[Where]") -> Uuid:
    """Sixteen bytes; all zero means none."""
    return cast("Uuid", _Pending(type=UUID, default=ZERO_UUID, **where))


def string(*, default: str = "", **where: "Unpack[Where]") -> str:
    """UTF-8 text of at most 32767 bytes."""
    return cast("str", _Pending(type=STRING, default=default, **where))


def nullable_string(
    *, default: str | None = "", nullable_since: int = 0, flexible: bool = True, **where: "Unpack[Where]"
) -> str | None:
    """Text that may be null; not `flexible` means that its length is two bytes in every version."""
    return cast(
        "str | None", _Pending(type=STRING, default=default, nullable_since=nullable_since, flexible=flexible, **where)
    )


def blob(**where: "Unpack[Where]") -> bytes:
    """Bytes that mean nothing to the protocol; they are copied out of the frame."""
    return cast("bytes", _Pending(type=BYTES, default=b"", **where))


def record_batches(*, nullable_since: int | None = 0, **where: "Unpack[Where]") -> Buffer | None:
    """Record batches, or null where that is allowed; decoded as a view into the frame, without a copy."""
    return cast("Buffer | None", _Pending(type=RECORDS, default=None, nullable_since=nullable_since, **where))


def struct(item: type[S], **where: "Unpack[Where]") -> S:
    return cast("S", _Pending(type=item, default=item, **where))


def nullable_struct(item: type[S], **where: "Unpack[Where]") -> S | None:
    """One struct or null, which is the default (KIP-893)."""
    return cast("S | None", _Pending(type=item, default=None, nullable_since=0, **where))


@overload
def array(item: Primitive[T], **where: "Unpack[Where]") -> list[T]: ...


@overload
def array(item: type[S], **where: "Unpack[Where]") -> list[S]: ...


def array(item: Any, **where: "Unpack[Where]") -> list[Any]:
    """Any number of items, none by default."""
    return cast("list[Any]", _Pending(type=item, is_array=True, default=(), **where))


@overload
def nullable_array(
    item: Primitive[T], *, default: tuple[()] | None = (), nullable_since: int = 0, **where: "Unpack[Where]"
) -> list[T] | None: ...


@overload
def nullable_array(
    item: type[S], *, default: tuple[()] | None = (), nullable_since: int = 0, **where: "Unpack[Where]"
) -> list[S] | None: ...


def nullable_array(
    item: Any, *, default: tuple[()] | None = (), nullable_since: int = 0, **where: "Unpack[Where]"
) -> list[Any] | None:
    """Any number of items, or null; null often means "all"."""
    return cast(
        "list[Any] | None", _Pending(type=item, is_array=True, default=default, nullable_since=nullable_since, **where)
    )
