"""Compiles the encoder of one version of one message.

An encoder appends parts to a list and leaves the joining to its caller, so that record batches reach a gathering write
without a copy. Neighbouring fixed-size fields are packed at once, with the length or count that follows if it fits.

For a message that may be large there is an encoder in steps: a generator that yields after every so many entries, so
that whoever sends a long answer can do something else in between.

A value that is set in a field that the version does not have is an error, as it is in Kafka, unless the field is
ignorable: then, and only then, it is dropped in silence.
"""

from collections.abc import Callable, Generator
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any

from headrace.protocol import primitives
from headrace.protocol.errors import NotRepresentable
from headrace.protocol.primitives import PACK_ROW
from headrace.protocol.schema import STRING, UUID, Buffer, Field, Message, Primitive, RawTag, Struct
from headrace.protocol.source import Source, place_of

# Takes the message and appends its bytes, in parts, to the list; the one in steps is to be run to its end.
Encoder = Callable[[Any, list[Buffer]], None]
SteppingEncoder = Callable[[Any, list[Buffer]], Generator[None, None, None]]

ENTRIES_A_STEP = 128

_CONSTANTS = {"-1", "0", "1"}  # the marks of null and of presence, which are packed ahead where they stand alone


def compile_encoder(message: type[Message], version: int) -> Encoder:
    made: Encoder = _EncoderSource(message, version, in_steps=False).compile("encode")
    return made


def compile_stepping_encoder(message: type[Message], version: int) -> SteppingEncoder:
    made: SteppingEncoder = _EncoderSource(message, version, in_steps=True).compile("encode")
    return made


class _EncoderSource(Source):
    def __init__(self, message: type[Message], version: int, *, in_steps: bool) -> None:
        title = f"{message.__name__} v{version}"
        super().__init__(f"{title} encoder{' in steps' if in_steps else ''}")
        self._in_steps = in_steps
        self._version = version
        self._flexible = message.__schema__.is_flexible(version)
        self._values: list[str] = []
        self._letters = ""
        self._run_place = ""
        self._names = 0
        self._sink = "write"
        self._write(message, title)

    def _write(self, message: type[Message], title: str) -> None:
        errors = (struct_error, AttributeError, TypeError, ValueError, OverflowError, NotRepresentable)
        with self.block("def encode(message, parts):"):
            self.line("write = parts.append")
            if self._in_steps:
                self.line("steps = 0")
            with self.block("try:"):
                self._struct("message", message, "")
                if self._in_steps:
                    self.line("return")
                    self.line("yield")  # behind the return: a generator even without any arrays
            with self.block(f"except {self.constant('ERRORS', errors)} as error:"):
                self.line(f"place = {self._use(place_of)}(error, {title!r}, PLACES)")
                self.line(f"raise {self._use(primitives.not_representable)}(error, place) from None")

    def _use(self, function: Callable[..., Any]) -> str:
        return self.constant(function.__name__, function)

    def _name(self, hint: str) -> str:
        self._names += 1
        return f"{hint}_{self._names}"

    # Fixed-size fields are collected until something of unknown size comes, then packed at once.

    def _collect(self, value: str, letters: str) -> None:
        self._run_place = f"{self._run_place}, {self.place}" if self._values else self.place
        self._values = [*self._values, value]  # a new list: a branch may come back to the run as it was
        self._letters += letters

    def _pack_run(self, values: list[str], letters: str) -> None:
        """Lines that write a run, which may be empty; an `x` among the letters is a zero byte without a value."""
        if not letters:
            return
        if all(value in _CONSTANTS for value in values):
            self.line(f"{self._sink}({Layout('>' + letters).pack(*map(int, values))!r})")
        else:
            self.line(f"{self._sink}({self.packer(letters)}({', '.join(values)}))")

    def _flush(self) -> None:
        values, letters = self._values, self._letters
        self._values, self._letters = [], ""
        with self.about(self._run_place if values else self.place):
            self._pack_run(values, letters)

    def _flush_with_varint(self, value: str, long: Callable[[int], bytes]) -> None:
        """Write the run, and a varint after it that is nearly always one byte."""
        values, letters = self._values, self._letters
        self._values, self._letters = [], ""
        with self.block(f"if {value} < 128:"):
            if letters:
                self._pack_run([*values, value], letters + "B")
            else:
                self.line(f"{self._sink}({self.constant('SHORT_VARINTS', primitives.SHORT_VARINTS)}[{value}])")
        with self.block("else:"):
            self._pack_run(values, letters)
            self.line(f"{self._sink}({self._use(long)}({value}))")

    def _struct(self, it: str, struct: type[Struct], path: str) -> None:
        """Lines that write the struct in the variable `it`."""
        tagged = []
        for field in struct.__schema__.fields:
            place = f"{path}{field.name}"
            with self.about(place):
                if not field.exists(self._version):
                    self._refuse(it, field)
                elif field.tag is None:
                    self._field(f"{it}.{field.name}", field, place)
                else:
                    tagged.append(field)
        with self.about(f"{path}tagged fields"):
            if self._flexible:
                self._tags(it, tagged, path)
            else:
                self._flush()
                with self.block(f"if {it}.unknown_tags:"):
                    self._raise("this version has no tagged fields")

    def _raise(self, sentence: str) -> None:
        self.line(f"raise {self.constant('NotRepresentable', NotRepresentable)}({sentence!r})")

    def _refuse(self, it: str, field: Field) -> None:
        if not field.ignorable:
            with self.block(f"if {differs(f'{it}.{field.name}', field)}:"):
                self._raise("it is set, and this version has no such field")

    def _tags(self, it: str, tagged: list[Field], path: str) -> None:
        # Evaluated first so that the usual case, no tags at all, can be packed with the fields before it.
        tests = [differs(f"{it}.{field.name}", field) for field in tagged]
        write_tags = self._use(primitives.write_tags)
        values, letters, run_place = self._values, self._letters, self._run_place
        with self.block(f"if {' or '.join([*tests, f'{it}.unknown_tags'])}:"):
            self._flush()
            if not tagged:
                self.line(f"{write_tags}({self._sink}, [], {it}.unknown_tags)")
            else:
                self._known_tags(it, tagged, tests, path, write_tags)
        self._values, self._letters = [], ""
        with self.block("else:"), self.about(run_place if values else self.place):
            self._pack_run(values, letters + "x")

    def _known_tags(self, it: str, tagged: list[Field], tests: list[str], path: str, write_tags: str) -> None:
        tags, outer = self._name("tags"), self._sink
        self.line(f"{tags} = []")
        for field, test in sorted(zip(tagged, tests, strict=True), key=lambda pair: pair[0].tag or 0):
            place = f"{path}{field.name}"
            with self.about(place), self.block(f"if {test}:"):
                value, self._sink = self._name("value"), self._name("write")
                self.line(f"{value} = []")
                self.line(f"{self._sink} = {value}.append")
                self._field(f"{it}.{field.name}", field, place)
                self._flush()
                self.line(f'{tags}.append({self._use(RawTag)}({field.tag}, b"".join({value})))')
                self._sink = outer
        self.line(f"{write_tags}({outer}, {tags}, {it}.unknown_tags)")

    def _field(self, value: str, field: Field, place: str) -> None:
        nullable = field.nullable(self._version)
        if isinstance(field.type, Primitive) and field.type.format and not field.is_array:
            if field.type is UUID:
                with self.block(f"if len({value}) != 16:"):
                    self.line(f"raise {self._use(primitives.bad_uuid)}({value})")
            self._collect(value, field.type.format)
            return
        held = self._name(field.name)
        self.line(f"{held} = {value}")
        if not nullable:
            if field.nullable_since is not None:
                with self.block(f"if {held} is None:"):
                    self._raise("it is null, which it may not be in this version")
            self._present(held, field, place)
            return
        # The run so far is written in both branches: with the mark for null, or with the value's length.
        values, letters, run_place = self._values, self._letters, self._run_place
        with self.block(f"if {held} is None:"):
            self._null(field)
            self._flush()
        self._values, self._letters, self._run_place = values, letters, run_place
        with self.block("else:"):
            self._present(held, field, place)
            self._flush()

    def _null(self, field: Field) -> None:
        compact = self._flexible and field.flexible
        if not isinstance(field.type, Primitive) and not field.is_array:
            # KIP-893 marks a null struct with -1; Kafka's generator marks a tagged one with a varint, and so with 0.
            self._collect("-1" if field.tag is None else "0", "b")
        elif compact:
            self._collect("0", "B")
        else:
            self._collect("-1", "h" if field.type is STRING and not field.is_array else "i")

    def _present(self, held: str, field: Field, place: str) -> None:
        """Lines that write a value that is not null and not of fixed size."""
        if field.is_array:
            self._array(held, field, place)
        elif isinstance(field.type, Primitive):
            self._encode_sized(held, field)
        else:
            if field.nullable(self._version):
                self._collect("1", "b")
            self._struct(held, field.type, place + ".")

    def _length(self, held: str, *, compact: bool, letters: str, long: Callable[[int], bytes]) -> None:
        if compact:
            self.line(f"size = len({held}) + 1")
            self._flush_with_varint("size", long)
        else:
            self._collect(f"len({held})", letters)
            self._flush()

    def _encode_sized(self, held: str, field: Field) -> None:
        compact = self._flexible and field.flexible
        if field.type is STRING:
            self.line(f"{held} = {held}.encode()")
            self._length(held, compact=compact, letters="h", long=primitives.string_length)
        else:
            self._length(held, compact=compact, letters="i", long=primitives.varint)
        self.line(f"{self._sink}({held})")

    def _array(self, held: str, field: Field, place: str) -> None:
        compact = self._flexible and field.flexible
        self._length(held, compact=compact, letters="i", long=primitives.varint)
        if isinstance(field.type, Primitive) and field.type.format:
            rows = self.constant(f"pack_{field.type.name}s", PACK_ROW[field.type])
            with self.block(f"if {held}:"):
                self.line(f"{self._sink}({rows}[len({held})](*{held}))")
            return
        item = self._name("item")
        with self.block(f"for {item} in {held}:"):
            if self._in_steps:
                self.line("steps += 1")
                with self.block(f"if not steps % {ENTRIES_A_STEP}:"):
                    self.line("yield")
            if isinstance(field.type, Primitive):
                self._encode_sized(item, field)
            else:
                self._struct(item, field.type, place + ".")


def differs(value: str, field: Field) -> str:
    if field.default is None:
        return f"{value} is not None"
    if field.is_array:
        return f"({value} or {value} is None)" if field.nullable_since is not None else value
    if not isinstance(field.type, Primitive):
        inner = [differs(f"{value}.{inner.name}", inner) for inner in field.type.__schema__.fields]
        return f"({' or '.join([*inner, f'{value}.unknown_tags'])})"
    if field.default is False or field.default == "":
        return f"({value} or {value} is None)" if field.nullable_since is not None else value
    return f"{value} != {field.default!r}"
