"""Dates and times as the binary log holds them, made into the text that the database itself writes. Pure.

Text is what both the log and a query can be brought to, and the only thing that holds `0000-00-00` and its kin.
"""

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the text that is made of it is UTC and says so nowhere
_SIGN_DATETIME = 1 << 39
_SIGN_TIME = 1 << 23


def fraction_size(precision: int) -> int:
    """How many bytes a fraction of so many digits takes."""
    return (precision + 1) // 2


def _fraction(data: bytes, precision: int) -> str:
    """Hundredths, ten-thousandths or millionths, shown with the digits that the column has."""
    if not precision:
        return ""
    digits = 2 * fraction_size(precision)
    return f".{int.from_bytes(data):0{digits}d}"[: precision + 1]


def date_text(data: bytes) -> str:
    """Three bytes: day, month, year."""
    packed = int.from_bytes(data, "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


def datetime_text(data: bytes, precision: int) -> str:
    """Five bytes, and a fraction."""
    packed = int.from_bytes(data[:5]) - _SIGN_DATETIME
    year, month = divmod(packed >> 22, 13)
    clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
    text = f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {clock}"
    return text + _fraction(data[5:], precision) if precision else text


def timestamp_text(data: bytes, precision: int) -> str:
    """Seconds since 1970, and a fraction; in UTC. Nothing at all stands for `0000-00-00 00:00:00`."""
    seconds = int.from_bytes(data[:4])
    fraction = _fraction(data[4:], precision)
    if not seconds and not any(data[4:]):
        return f"0000-00-00 00:00:00{fraction}"
    return f"{_EPOCH + dt.timedelta(seconds=seconds)}{fraction}"


def time_text(data: bytes, precision: int) -> str:
    """Three bytes and a fraction; a negative time is the complement of both together."""
    size = 3 + fraction_size(precision)
    packed = int.from_bytes(data[:size])
    middle = _SIGN_TIME << 8 * (size - 3)
    is_negative = packed < middle
    packed = abs(packed - middle)
    clock, fraction = packed >> 8 * (size - 3), packed & (1 << 8 * (size - 3)) - 1
    shown = _fraction(fraction.to_bytes(size - 3), precision)
    return f"{'-' if is_negative else ''}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}{shown}"


def old_datetime_text(data: bytes) -> str:
    """Eight bytes holding the digits YYYYMMDDhhmmss, as before MySQL 5.6."""
    digits = f"{int.from_bytes(data, 'little'):014d}"
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}"


def old_timestamp_text(data: bytes) -> str:
    """Four bytes of seconds, as before MySQL 5.6."""
    return timestamp_text(data[::-1], 0)


def old_time_text(data: bytes) -> str:
    """Three bytes holding the digits hhmmss, as before MySQL 5.6."""
    number = int.from_bytes(data, "little", signed=True)
    digits = f"{abs(number):06d}"
    return f"{'-' if number < 0 else ''}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}"
