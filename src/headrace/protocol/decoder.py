"""Compiles the decoder of one version of one message.

A decoder is one function without calls for the usual case: neighbouring fixed-size fields are unpacked at once, and
the first byte of the length or count that follows is unpacked with them. It never trusts a length: each is checked
against the bytes that are left before anything is read or made, so what it allocates is in proportion to its input.

Two flavours exist. A message without record batches is decoded from `bytes`, whose slices are cheap. One with record
batches, and a header (which stands in front of any body), is decoded in place from whatever buffer it is in.

For a large message there is a decoder in steps: a generator that yields after every so many entries, so that whoever
runs it can do something else in between, and that refuses a message with more than `MAX_ENTRIES` of them: an entry of a
few bytes becomes an object of a few hundred.
"""

from collections.abc import Callable, Generator
from struct import error as struct_error
from typing import Any

from headrace.protocol import primitives
from headrace.protocol.primitives import UNPACK_ROW, Flaw
from headrace.protocol.schema import BYTES, RECORDS, STRING, Buffer, Field, Message, Primitive, RawTag, Struct
from headrace.protocol.source import Source, place_of

# Takes the buffer and where to start; returns the message and the position after it.
Decoder = Callable[[Buffer, int], tuple[Any, int]]
SteppingDecoder = Callable[[Buffer, int], Generator[None, None, tuple[Any, int]]]

MAX_ENTRIES = 50_000  # of all arrays of a message together
ENTRIES_A_STEP = 128

_FIRST_BYTE = "B"  # of a varint, unpacked with the fixed-size fields before it


def compile_decoder(message: type[Message], version: int) -> Decoder:
    made: Decoder = _DecoderSource(message, version, in_steps=False).compile("decode")
    return made


def compile_stepping_decoder(message: type[Message], version: int) -> SteppingDecoder:
    made: SteppingDecoder = _DecoderSource(message, version, in_steps=True).compile("decode")
    return made


def keeps_view(message: type[Message]) -> bool:
    """Whether the message is decoded in place, without a copy of the frame."""
    return message.__schema__.api_key is None or _has_records(message)


def _has_records(struct: type[Struct]) -> bool:
    return any(
        field.type is RECORDS or (not isinstance(field.type, Primitive) and _has_records(field.type))
        for field in struct.__schema__.fields
    )


def smallest_size(field: Field, version: int, *, flexible: bool, item: bool = False) -> int:
    """The fewest bytes that a field, or an `item` of it if it is an array, can take."""
    compact = flexible and field.flexible
    if field.is_array and not item:
        return 1 if compact else 4
    if not isinstance(field.type, Primitive):
        if field.nullable(version) and not item:
            return 1
        own = sum(
            smallest_size(inner, version, flexible=flexible)
            for inner in field.type.__schema__.fields
            if inner.exists(version) and inner.tag is None
        )
        return own + flexible
    if field.type.size:
        return field.type.size
    if compact:
        return 1
    return 2 if field.type is STRING else 4


class _DecoderSource(Source):
    def __init__(self, message: type[Message], version: int, *, in_steps: bool) -> None:
        title = f"{message.__name__} v{version}"
        super().__init__(f"{title} decoder{' in steps' if in_steps else ''}")
        self._version = version
        self._in_steps = in_steps
        self._flexible = message.__schema__.is_flexible(version)
        self._in_place = keeps_view(message)
        self._targets: list[str] = []
        self._letters = ""
        self._run_place = ""
        self._names = 0
        self._write(message, title)

    def _write(self, message: type[Message], title: str) -> None:
        flaws = self.constant("FLAWS", (IndexError, struct_error, UnicodeDecodeError, Flaw))
        with self.block("def decode(data, position):"):
            self.line("size = len(data)")
            if _has_records(message):
                self.line("view = memoryview(data)")
            if self._in_steps:
                self.line("entries = steps = 0")
            with self.block("try:"):
                root = self._struct(message, "")
                self.line(f"return {root}, position")
                if self._in_steps:
                    self.line("yield")  # behind the return: a generator even without any arrays
            with self.block(f"except {flaws} as error:"):
                self.line(f"place = {self._use(place_of)}(error, {title!r}, PLACES)")
                self.line(f"raise {self._use(primitives.malformed)}(error, place, position) from None")

    def _count(self, count: str) -> None:
        """A line that refuses a message with too many entries."""
        if self._in_steps:
            self.line(f"entries += {count}")
            with self.block(f"if entries > {MAX_ENTRIES}:"):
                self.line(f"raise {self._use(primitives.too_many)}({MAX_ENTRIES})")

    def _step(self) -> None:
        """Lines that let others have a turn now and then."""
        if self._in_steps:
            self.line("steps += 1")
            with self.block(f"if not steps % {ENTRIES_A_STEP}:"):
                self.line("yield")

    def _use(self, function: Callable[..., Any]) -> str:
        return self.constant(function.__name__, function)

    def _name(self, hint: str) -> str:
        self._names += 1
        return f"{hint}_{self._names}"

    # Fixed-size fields are collected until something of unknown size comes, then read at once.

    def _collect(self, target: str, letters: str) -> None:
        if not self._targets:
            self._run_place = self.place
        self._targets.append(target)
        self._letters += letters

    def _flush(self) -> None:
        targets, letters = self._targets, self._letters
        self._targets, self._letters = [], ""
        if targets:
            with self.about(self._run_place):
                self._unpack(targets, letters)

    def _unpack(self, targets: list[str], letters: str) -> None:
        if letters == _FIRST_BYTE:
            self.line(f"{targets[0]} = data[position]")
            self.line("position += 1")
        elif letters == "?":
            self.line(f"{targets[0]} = data[position] != 0")
            self.line("position += 1")
        else:
            unpack, size = self.unpacker(letters)
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(data, position)")
            self.line(f"position += {size}")

    def _struct(self, struct: type[Struct], path: str) -> str:
        """Lines that decode a struct into a new variable; its name."""
        made = self._name("it")
        self.line(f"{made} = {self.constant('new', object.__new__)}({self.constant(struct.__name__, struct)})")
        tagged = []
        for field in struct.__schema__.fields:
            place = f"{path}{field.name}"
            with self.about(place):
                if not field.exists(self._version):
                    self._default(f"{made}.{field.name}", field)
                elif field.tag is None:
                    self._field(f"{made}.{field.name}", field, place)
                else:
                    tagged.append(field)
                    self._default(f"{made}.{field.name}", field)
        with self.about(f"{path}tagged fields"):
            self._tags(made, tagged, path)
        return made

    def _default(self, target: str, field: Field) -> None:
        if field.default is None:
            self.line(f"{target} = None")
        elif field.is_array:
            self.line(f"{target} = []")
        elif not isinstance(field.type, Primitive):
            made = self._name("it")
            self.line(f"{made} = new({self.constant(field.type.__name__, field.type)})")
            for inner in field.type.__schema__.fields:
                self._default(f"{made}.{inner.name}", inner)
            self.line(f"{made}.unknown_tags = ()")
            self.line(f"{target} = {made}")
        else:
            self.line(f"{target} = {field.default!r}")

    def _tags(self, made: str, tagged: list[Field], path: str) -> None:
        self.line(f"{made}.unknown_tags = ()")
        if not self._flexible:
            self._flush()
            return
        self._collect("count", _FIRST_BYTE)
        self._flush()
        with self.block("if count:"):
            if not tagged:
                read = self._use(primitives.read_unknown_tags)
                self.line(f"{made}.unknown_tags, position = {read}(data, position, size, count)")
                self._count(f"len({made}.unknown_tags)")
                return
            unknown, end = self._name("unknown"), self._name("end")
            read = self._use(primitives.read_tag_count)
            self.line(f"count, position = {read}(data, position, size, count)")
            self._count("count")
            self.line(f"{unknown} = []")
            with self.block("for _ in range(count):"):
                read = self._use(primitives.read_tag)
                self.line(f"tag, position, {end} = {read}(data, position, size)")
                for number, field in enumerate(tagged):
                    place = f"{path}{field.name}"
                    with self.about(place), self.block(f"{'el' if number else ''}if tag == {field.tag}:"):
                        self._field(f"{made}.{field.name}", field, place)
                        self._flush()
                        with self.block(f"if position != {end}:"):
                            self.line(f'raise {self._use(Flaw)}("its size is not that of its tag")')
                with self.block("else:"):
                    raw = self._use(RawTag)
                    self.line(f"{unknown}.append({raw}(tag, bytes(data[position:{end}])))")
                    self.line(f"position = {end}")
            self.line(f"{made}.unknown_tags = tuple({unknown})")

    def _field(self, target: str, field: Field, place: str) -> None:
        nullable = field.nullable(self._version)
        if field.is_array:
            self._array(target, field, place)
        elif not isinstance(field.type, Primitive):
            if not nullable:
                self._flush()
                self.line(f"{target} = {self._struct(field.type, place + '.')}")
                return
            # KIP-893: a byte in front, negative for null. For a tagged struct Kafka's generator makes it a varint, and
            # null is 0; nobody writes one of more than a byte.
            self._collect("marker", "b")
            self._flush()
            with self.block("if marker < 0:" if field.tag is None else "if marker <= 0:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.line(f"{target} = {self._struct(field.type, place + '.')}")
        elif field.type.format:
            self._collect(target, field.type.format)
        else:
            self._decode_sized(f"{target} = {{}}", field, nullable=nullable)

    def _decode_sized(self, store: str, field: Field, *, nullable: bool) -> None:
        """A string, bytes or records: a length, then as many bytes; `store` says what is done with the value."""
        compact = self._flexible and field.flexible
        if compact:
            self._collect("length", _FIRST_BYTE)
            self._flush()
            read = self._use(primitives.read_string_length if field.type is STRING else primitives.read_varint)
            with self.block("if length > 127:"):
                self.line(f"length, position = {read}(data, position, length)")
        else:
            self._collect("length", "h" if field.type is STRING else "i")
            self._flush()
        if nullable:
            with self.block("if length == 0:" if compact else "if length == -1:"):
                self.line(store.format(None))
            with self.block("else:"):
                self._sized_value(store, field, compact=compact)
        else:
            self._sized_value(store, field, compact=compact)

    def _sized_value(self, store: str, field: Field, *, compact: bool) -> None:
        length = "length - 1" if compact else "length"
        self.line(f"end = position + {length}")
        with self.block("if not position <= end <= size:"):
            self.line(f"raise {self._use(primitives.overrun)}({length}, size - position)")
        if field.type is RECORDS:
            value = "view[position:end]"
        elif field.type is BYTES:
            value = "bytes(data[position:end])" if self._in_place else "data[position:end]"
        else:
            value = 'str(data[position:end], "utf-8")' if self._in_place else "data[position:end].decode()"
        self.line(store.format(value))
        self.line("position = end")

    def _array(self, target: str, field: Field, place: str) -> None:
        compact = self._flexible and field.flexible
        if compact:
            self._collect("count", _FIRST_BYTE)
            self._flush()
            with self.block("if count > 127:"):
                self.line(f"count, position = {self._use(primitives.read_varint)}(data, position, count)")
            self.line("count -= 1")
        else:
            self._collect("count", "i")
            self._flush()
        if field.nullable(self._version):
            with self.block("if count == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._items(target, field, place)
        else:
            self._items(target, field, place)

    def _items(self, target: str, field: Field, place: str) -> None:
        smallest = smallest_size(field, self._version, flexible=self._flexible, item=True)
        assert smallest > 0, f"{place}: items without any bytes would let a count go unchecked"
        bound = "count" if smallest == 1 else f"count * {smallest}"
        with self.block(f"if not 0 <= {bound} <= size - position:"):
            self.line(f"raise {self._use(primitives.crowd)}(count, size - position)")
        self._count("count")
        if isinstance(field.type, Primitive) and field.type.format:
            rows = self.constant(f"unpack_{field.type.name}s", UNPACK_ROW[field.type])
            # Many are empty: the offline replicas of every partition, to begin with.
            with self.block("if count:"):
                self.line(f"{target} = list({rows}[count](data, position))")
                self.line(f"position += {bound}")
            with self.block("else:"):
                self.line(f"{target} = []")
            return
        add = self._name("add")
        self.line(f"items = {target} = []")
        self.line(f"{add} = items.append")
        with self.block("for _ in range(count):"):
            self._step()
            if isinstance(field.type, Primitive):
                self._decode_sized(f"{add}({{}})", field, nullable=False)
            else:
                self.line(f"{add}({self._struct(field.type, place + '.')})")
