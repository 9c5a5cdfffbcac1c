"""What a query's progress report says, in the words that people use. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, NamedTuple

from headrace.model import TopicPartition
from headrace.pipelines.jobs.patterns import PatternProgress
from headrace.pipelines.observed import LATE_ROWS
from headrace.pipelines.source.planning import offsets_in


class Written(NamedTuple):
    """What an output is: `kind` is topic, view or store; `text` says it to people."""

    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class SourceProgress:
    name: str
    input_rate: float
    processing_rate: float
    end: Mapping[TopicPartition, int]
    lag_records: int | None


@dataclass(frozen=True)
class Progress:
    job: str
    output: str
    batch: int
    time: str
    rows: int
    input_rate: float
    processing_rate: float
    batch_ms: int
    watermark: str | None
    state_rows: int
    state_bytes: int
    late_rows: int
    sources: tuple[SourceProgress, ...]
    lag_ms: int | None = None
    late_rows_total: int = 0  # since the run began
    writes: Written | None = None
    dead_letter_topics: tuple[str, ...] = ()  # topics for records of its inputs that it cannot decode
    dead_letters: int = 0  # how many there are of this job
    dead_letter_reasons: Mapping[str, int] = field(default_factory=dict)
    events_matched: int = 0  # rows that patterns looked at
    patterns: tuple[PatternProgress, ...] = ()

    @property
    def lag_records(self) -> int | None:
        """How many records wait in all inputs; None where a source does not tell."""
        known = [source.lag_records for source in self.sources if source.lag_records is not None]
        return sum(known) if known else None

    def as_json(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        sources = [
            {
                "name": source.name,
                "input_rate": source.input_rate,
                "processing_rate": source.processing_rate,
                "lag_records": source.lag_records,
                "offsets": {str(where): offset for where, offset in source.end.items()},
            }
            for source in self.sources
        ]
        return plain | {
            "lag_records": self.lag_records,
            "writes": self.writes._asdict() if self.writes else None,
            "dead_letter_topics": list(self.dead_letter_topics),
            "dead_letter_reasons": dict(self.dead_letter_reasons),
            "sources": sources,
            "patterns": [pattern.as_json() for pattern in self.patterns],
        }


def read(job: str, output: str, inputs: tuple[str, ...], report: Mapping[str, Any], late_before: int = 0) -> Progress:
    """From Spark's own report, a dictionary as its JSON has it; late rows are counted on from `late_before`."""
    operators = report.get("stateOperators") or []
    late = _late(operators, report.get("observedMetrics") or {})
    sources = tuple(
        _source(inputs[index] if index < len(inputs) else f"input {index}", source)
        for index, source in enumerate(report.get("sources") or [])
    )
    return Progress(
        job=job,
        output=output,
        batch=int(report["batchId"]),
        time=str(report["timestamp"]),
        rows=int(report.get("numInputRows") or 0),
        input_rate=_rate(report.get("inputRowsPerSecond")),
        processing_rate=_rate(report.get("processedRowsPerSecond")),
        batch_ms=int((report.get("durationMs") or {}).get("triggerExecution") or 0),
        watermark=_watermark((report.get("eventTime") or {}).get("watermark")),
        state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
        state_bytes=sum(int(operator.get("memoryUsedBytes") or 0) for operator in operators),
        late_rows=late,
        sources=sources,
        late_rows_total=late_before + late,
    )


def _late(operators: Sequence[Mapping[str, Any]], observed: Mapping[str, Any]) -> int:
    """Rows that found their window closed, or had no time: by Spark's own windows, and by ours, which observe them."""
    dropped = sum(int(operator.get("numRowsDroppedByWatermark") or 0) for operator in operators)
    counts = [counted for name, counted in observed.items() if name.startswith(LATE_ROWS)]
    return dropped + sum(int(counted[kind] or 0) for counted in counts for kind in ("late", "no_time"))


def _source(name: str, source: Mapping[str, Any]) -> SourceProgress:
    end, latest = offsets_in(source.get("endOffset")), offsets_in(source.get("latestOffset"))
    lag = sum(max(offset - end.get(where, 0), 0) for where, offset in latest.items()) if latest else None
    return SourceProgress(
        name, _rate(source.get("inputRowsPerSecond")), _rate(source.get("processedRowsPerSecond")), end, lag
    )


def _rate(value: Any) -> float:
    """Spark says NaN where nothing was measured yet."""
    rate = float(value or 0.0)
    return rate if rate == rate and rate not in (float("inf"), float("-inf")) else 0.0


def _watermark(text: str | None) -> str | None:
    """Spark starts watermarks at 1970, which means that there is none yet."""
    if not text:
        return None
    return text if datetime.fromisoformat(text).timestamp() > 0 else None
