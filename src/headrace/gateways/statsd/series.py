"""Which series there are: a number for each, up to a limit, given again when one is forgotten. Pure."""

from headrace.gateways.statsd.parse import SeriesId


class Registry:
    """Numbers of series: small, dense, and each of one series at a time."""

    __slots__ = ("_by_id", "_free", "_limit", "refused", "series")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_id: dict[SeriesId, int] = {}
        self._free: list[int] = []
        self.series: list[SeriesId | None] = []  # by number
        self.refused = 0  # values of series that there was no room for

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, series: SeriesId) -> int | None:
        """Its number, if it has one."""
        return self._by_id.get(series)

    def number(self, series: SeriesId) -> int | None:
        """Its number, a new one if there is room; what is refused is counted."""
        number = self._by_id.get(series)
        if number is not None:
            return number
        if len(self._by_id) >= self._limit:
            return None
        if self._free:
            number = self._free.pop()
            self.series[number] = series
        else:
            number = len(self.series)
            self.series.append(series)
        self._by_id[series] = number
        return number

    def forget(self, number: int) -> None:
        series = self.series[number]
        assert series is not None
        del self._by_id[series]
        self.series[number] = None
        self._free.append(number)
