"""A connector put together: source, envelope, topics and runtime from a capture's settings."""

from collections.abc import Sequence
from typing import Any

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.connect.avro.places import schemas_at
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.envelope import AVRO, EnvelopeSettings, EnvelopeWriter
from headrace.connect.runtime import Runtime
from headrace.connect.source import Source
from headrace.retry import Backoff
from headrace.version import version


def make_runtime(
    settings: CaptureSettings, bootstrap: Sequence[Address], cluster: Cluster, *, backoff: Backoff | None = None
) -> Runtime:
    """What runs a capture; `cluster` is for what a source keeps in topics of its own, and stays the caller's."""

    def writer_of(source: Source) -> EnvelopeWriter:
        opened: Any = source  # every source knows its database's name once it is open
        return make_writer(settings, opened.database, cluster)

    return Runtime(
        settings.name,
        lambda: settings.kind.make(settings.source, cluster, settings.name),
        writer_of,
        bootstrap,
        topics=settings.topics,
        backoff=backoff or Backoff(),
    )


def make_writer(settings: CaptureSettings, database: str, cluster: Cluster) -> EnvelopeWriter:
    """What writes the records of a capture."""
    schema_ids = None
    if settings.writing.get("format") == AVRO:
        schema_ids = schemas_at(settings.registry, lambda: cluster).register
    return EnvelopeWriter(_envelope(settings, database), settings.filters, schema_ids)


def _envelope(settings: CaptureSettings, database: str) -> EnvelopeSettings:
    return EnvelopeSettings(
        connector=settings.kind.connector,
        database=database,
        version=version(),
        names=settings.names,
        **settings.writing,
    )
