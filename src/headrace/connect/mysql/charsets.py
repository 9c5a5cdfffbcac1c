"""Character sets of columns: how their bytes in the log become wire text. Pure."""

from collections.abc import Callable
from typing import Final

from headrace.connect.errors import SourceRefused
from headrace.connect.table import to_wire

_UTF8: Final = {"utf8mb4", "utf8mb3", "utf8", "ascii"}
_CODECS: Final = {
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "ucs2": "utf_16_be",
    "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be", "cp1250": "cp1250", "cp1251": "cp1251",
    "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932",
    "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr", "gb2312": "gb2312", "gbk": "gbk",
    "gb18030": "gb18030", "big5": "big5", "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r",
    "koi8u": "koi8_u", "tis620": "tis_620", "macroman": "mac_roman", "macce": "mac_latin2",
}  # fmt: skip


def is_utf8(charset: str) -> bool:
    """Whether the bytes are wire text as they stand."""
    return charset in _UTF8


def text_reader(charset: str, where: str) -> Callable[[bytes], str]:
    """A function from bytes in a character set to wire text."""
    if charset in _UTF8:
        return lambda data: data.decode("latin-1")
    codec = _CODECS.get(charset)
    if codec is None:
        raise SourceRefused(
            f"column {where} has the character set {charset}, which is not read here",
            f"ALTER TABLE {where.rpartition('.')[0]} CONVERT TO CHARACTER SET utf8mb4",
        )

    def read(data: bytes) -> str:
        try:
            return to_wire(data.decode(codec))
        except UnicodeDecodeError:
            # Five bytes of cp1252 mean nothing to the rest of the world; MySQL takes them as control characters.
            return to_wire("".join(_one(byte, codec) for byte in data))

    return read


def _one(byte: int, codec: str) -> str:
    try:
        return bytes([byte]).decode(codec)
    except UnicodeDecodeError:
        return chr(byte)
