"""Values of single records replaced in a log, for good: the one change of what was appended that there is.

The segment is written anew with other bytes in these records, and swapped in as a compacted one is: a crash leaves the
old file or the new one, and nothing else of it. Offsets, timestamps, keys, headers and producers stay as they are.

What always holds: when it returns, whoever reads the log reads the new values, and no file in its folder has the old
ones. Whoever holds a part of the old file reads that to its end.
"""

from collections.abc import Mapping
from contextlib import suppress

from headrace.records import BatchHeader
from headrace.records.batch import assemble
from headrace.records.compression import MAX_BODY_BYTES, compress
from headrace.records.record import body_of, decode, encode
from headrace.storage.compaction.cleaner import swap_in
from headrace.storage.compaction.job import CleanedGroup, Output
from headrace.storage.errors import LogDeleted, refusal
from headrace.storage.log import Log
from headrace.storage.names import CLEANED, LOG, file_name
from headrace.storage.reading import index_of
from headrace.storage.scan import scan_file
from headrace.storage.segment import Segment


def replace_values(log: Log, values: Mapping[int, bytes], now_ms: int) -> int:
    """Give the records at these offsets other values; how many of them are in the log.

    In a thread of its own: appends go on meanwhile. A segment with damage is left alone, and so is what is cut off or
    deleted meanwhile.
    """
    log.finish_swaps()
    wanted = sorted(offset for offset in values if log.start_offset <= offset < log.end_offset)
    if not wanted:
        return 0
    if wanted[-1] >= log.segments[-1].base_offset:
        log.roll(now_ms)  # the active segment is never rewritten
    log.flush()  # or what is copied could come back torn from a crash, though it was not when it was read
    replaced = 0
    for segment in {id(each): each for each in (log.segments[index_of(log.segments, at)] for at in wanted)}.values():
        replaced += _rewrite(log, segment, values)
    return replaced


def _rewrite(log: Log, segment: Segment, values: Mapping[int, bytes]) -> int:
    filesystem, cuts = log.filesystem, log.cuts
    if segment.damage or segment is log.segments[-1]:
        return 0
    path = f"{log.directory}/{file_name(segment.base_offset, LOG)}"
    cleaned = path + CLEANED
    replaced = 0
    try:
        target = filesystem.open(cleaned, create=True)
        try:
            target.truncate(0)
            out = Output(target)
            for _, header, batch in scan_file(filesystem, path, segment.size):
                found = [at for at in range(header.base_offset, header.next_offset) if at in values]
                written = _with_values(header, batch, values) if found and not header.is_control else batch
                out.write(written)
                replaced += len(found)
            out.flush()
            target.sync()
        finally:
            target.close()
        if replaced and log.cuts == cuts:
            aborted = tuple(segment.indexes.transactions.entries)
            swap_in(log, CleanedGroup((segment.base_offset,), aborted, out.position), [segment])
            return replaced
    except OSError as error:
        raise refusal(log.directory, error) from error
    finally:
        with suppress(OSError, LogDeleted):
            if filesystem.exists(cleaned):
                filesystem.remove(cleaned)
    return 0


def _with_values(header: BatchHeader, batch: memoryview, values: Mapping[int, bytes]) -> bytes:
    """The same batch, but for some values; its producer's numbers stay, by which it is known as sent before."""
    records = decode(header, body_of(batch, header, MAX_BODY_BYTES))
    body = b"".join(
        encode(
            record._replace(value=values.get(record.offset, record.value)), header.base_offset, header.base_timestamp
        )
        for record in records
    )
    return assemble(header, compress(header.codec, body))
