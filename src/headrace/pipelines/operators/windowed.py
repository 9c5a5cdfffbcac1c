"""What operators over windows have in common: their aggregates, and the columns that come out. Pure."""

from collections.abc import Mapping

import pyarrow as pa

from headrace.pipelines.operators.asides import TIME, aside_field
from headrace.pipelines.operators.closing import Closing
from headrace.pipelines.operators.fold import Fold, fold
from headrace.pipelines.operators.intervals import in_words
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.telling import Telling, tells_columns


class Windowed:
    """The base of the operators, which are dataclasses with these among their fields."""

    time: str
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema

    @property
    def parameters(self) -> dict[str, object]:
        """What all windows mean by what they keep: whose time, of what, and how long it is kept to be corrected."""
        late = in_words(self.stragglers.allowed_us) if self.stragglers.corrects else "never"
        aggregates = {f"aggregate {name}": each for name, each in self.aggregates.items()}
        return {"time": self.time, "stragglers corrected": late, **aggregates}

    @property
    def fold(self) -> Fold:
        """The aggregates over the rows' types."""
        return fold(self.aggregates, self.rows)

    @property
    def telling(self) -> Telling:
        """Whether results are told more than once."""
        return Telling(self.stragglers.corrects, self.closing.early_us is not None)

    @property
    def carried(self) -> list[pa.Field]:
        """Columns of a row that come out before its results."""
        return []

    @property
    def output(self) -> pa.Schema:
        """What comes out behind the keys."""
        edges = [pa.field("window_start", TIME), pa.field("window_end", TIME)]
        about = [*tells_columns(self.telling), aside_field(self.rows, self.stragglers)]
        return pa.schema([*self.carried, *edges, *self.fold.results, *about])
