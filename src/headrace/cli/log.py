"""`headrace log`: look at a data directory on disk, whoever wrote it; nothing is changed."""

from collections.abc import Iterator
from itertools import islice

import click
from rich.markup import escape
from rich.progress import Progress

from headrace.cli.output import console, human_bytes, human_time, json_option, print_json, print_table, text
from headrace.model import TopicPartition
from headrace.records import marker_in
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import OsFileSystem
from headrace.storage.inspection import (
    PartitionSummary,
    partitions_in,
    records_in,
    segment_files,
    summarize,
    verify,
)

_data_dir = click.argument("data_dir", type=click.Path(file_okay=False))


class _PartitionType(click.ParamType[TopicPartition]):
    name = "topic-partition"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        partition = TopicPartition.from_folder(value)
        if partition is None:
            self.fail(f"{value!r} is not a partition: write the topic, a dash and a number, as in orders-0", param, ctx)
        return partition


@click.group()
def log() -> None:
    """Look at a data directory on disk, ours or Kafka's, without changing it."""


@log.command("list")
@_data_dir
@json_option
def list_logs(data_dir: str, as_json: bool) -> None:
    """List the partitions, their offsets and their disk space."""
    summaries = [
        summarize(OsFileSystem(), data_dir, partition) for partition in partitions_in(OsFileSystem(), data_dir)
    ]
    if as_json:
        print_json([_summary(summary) for summary in summaries])
        return
    if not summaries:
        click.echo(f"no partitions in {data_dir}")
        return
    print_table(
        ["topic", ">partition", ">segments", ">start", ">end", ">records", ">size"],
        [
            (
                summary.partition.topic,
                summary.partition.partition,
                len(summary.segments),
                summary.start_offset,
                summary.end_offset,
                sum(segment.records for segment in summary.segments),
                human_bytes(summary.size_bytes),
            )
            for summary in summaries
        ],
    )


def _summary(summary: PartitionSummary) -> dict[str, object]:
    return {
        "topic": summary.partition.topic,
        "partition": summary.partition.partition,
        "start_offset": summary.start_offset,
        "end_offset": summary.end_offset,
        "size_bytes": summary.size_bytes,
        "segments": len(summary.segments),
    }


@log.command()
@_data_dir
@click.argument("partition", type=_PartitionType())
@json_option
def segments(data_dir: str, partition: TopicPartition, as_json: bool) -> None:
    """Show the segments of a PARTITION, such as orders-0."""
    summary = summarize(OsFileSystem(), data_dir, partition)
    if as_json:
        print_json([segment._asdict() for segment in summary.segments])
        return
    print_table(
        [">base offset", ">next offset", ">batches", ">records", ">size", "oldest", "youngest", ""],
        [
            (
                segment.base_offset,
                segment.next_offset,
                segment.batches,
                segment.records,
                human_bytes(segment.size_bytes),
                human_time(segment.first_timestamp),
                human_time(segment.last_timestamp),
                segment.problem,
            )
            for segment in summary.segments
        ],
    )


@log.command()
@_data_dir
@click.argument("partition", type=_PartitionType())
@click.option("--from", "start", type=int, default=0, help="Begin at this offset.")
@click.option("--limit", type=click.IntRange(min=0), help="Show at most so many records.")
@json_option
def dump(data_dir: str, partition: TopicPartition, start: int, limit: int | None, as_json: bool) -> None:
    """Show the records of a PARTITION, markers of transactions included; with --json one object a line.

    \b
      headrace log dump data orders-0 --from 1200 --limit 10
    """
    for line in islice(_dump(data_dir, partition, start), limit):
        if as_json:
            print_json(line)
        else:
            value = line["marker"] or ("∅ (tombstone)" if line["value"] is None else line["value"])
            stamp = human_time(int(str(line["timestamp"])))
            click.echo(f"{line['offset']:>10}  {stamp}  {line['key'] or '–'}  {value}")


def _dump(data_dir: str, partition: TopicPartition, start: int) -> Iterator[dict[str, object]]:
    for header, record in records_in(OsFileSystem(), data_dir, partition):
        if record.offset < start:
            continue
        marker = marker_in(record) if header.is_control else None
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": None if header.is_control else text(record.key),
            "value": None if header.is_control else text(record.value),
            "headers": [[text(key.encode(errors="surrogateescape")), text(value)] for key, value in record.headers],
            "producer_id": header.producer_id if header.producer_id >= 0 else None,
            "transactional": header.is_transactional,
            "marker": marker[0].name.lower() if marker else None,
        }


@log.command("verify")
@_data_dir
@json_option
def verify_logs(data_dir: str, as_json: bool) -> None:
    """Check every batch by length, checksum and offset; exit with 1 if any is damaged."""
    filesystem = OsFileSystem()
    files = [
        path
        for partition in partitions_in(filesystem, data_dir)
        for _, path in segment_files(filesystem, f"{data_dir}/{partition}")
    ]
    good_bytes, problems = 0, []
    terminal = console()
    with Progress(console=terminal, transient=True, disable=as_json or not terminal.is_terminal) as progress:
        for path in progress.track(files, description="verifying"):
            good, found = verify(filesystem, path)
            good_bytes += good
            problems += found
    if as_json:
        print_json(
            {"files": len(files), "good_bytes": good_bytes, "problems": [problem._asdict() for problem in problems]}
        )
    else:
        terminal.print(f"{len(files)} segments, {human_bytes(good_bytes)} of whole batches")
        for problem in problems:
            place = f"{problem.path} at byte {problem.position}, {problem.size} bytes: {problem.reason}"
            terminal.print(f"[red]damaged[/red] {escape(place)}")
    if problems:
        raise StorageError(f"{len(problems)} damaged stretch(es) in {data_dir}: restore the files named above")
