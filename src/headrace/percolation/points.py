"""Points on the earth: how documents write them, and how far one is from another.

What always holds: latitudes are from -90 to 90 and longitudes from -180 to 180; the earth is the sphere that Lucene
takes it for (the mean radius of the WGS 84 ellipsoid).
"""

import math
import re
from collections.abc import Mapping
from typing import Final

RADIUS_M: Final = 6_371_008.7714

Point = tuple[float, float]
"""Latitude and longitude."""

UNITS_M: Final = {
    "m": 1.0, "km": 1_000.0, "mi": 1_609.344, "yd": 0.9144, "ft": 0.3048, "in": 0.0254, "cm": 0.01, "mm": 0.001,
    "nmi": 1_852.0, "miles": 1_609.344, "meters": 1.0, "metres": 1.0, "kilometers": 1_000.0, "kilometres": 1_000.0,
}  # fmt: skip
_DISTANCE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_WKT: Final = re.compile(r"\s*POINT\s*\(\s*(\S+)\s+(\S+)\s*\)\s*", re.IGNORECASE)


def read_points(value: object) -> list[Point] | None:
    """The points of a field's value, None if it is something else.

    `{"lat": …, "lon": …}`, `"lat,lon"`, `[lon, lat]` and GeoJSON's points (as in GeoJSON), `"POINT (lon lat)"`, or an
    array of these.
    """
    if isinstance(value, list | tuple):
        if 2 <= len(value) <= 3 and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
            return _one(value[1], value[0])
        found = list[Point]()
        for each in value:
            if each is None:
                continue
            points = read_points(each) if not isinstance(each, list) or not _holds_lists(each) else None
            if points is None:
                return None
            found += points
        return found
    if isinstance(value, Mapping):
        if value.get("type") == "Point" and isinstance(value.get("coordinates"), list | tuple):
            coordinates = value["coordinates"]
            return _one(coordinates[1], coordinates[0]) if 2 <= len(coordinates) <= 3 else None
        for latitude, longitude in (("lat", "lon"), ("latitude", "longitude"), ("lat", "lng")):
            if latitude in value and longitude in value:
                return _one(value[latitude], value[longitude])
        return None
    if isinstance(value, str):
        if wkt := _WKT.fullmatch(value):
            return _one(wkt[2], wkt[1])
        parts = value.split(",")
        return _one(parts[0], parts[1]) if len(parts) == 2 else None
    return None


def _holds_lists(value: list[object]) -> bool:
    return any(isinstance(each, list | tuple) for each in value)


def _one(latitude: object, longitude: object) -> list[Point] | None:
    if isinstance(latitude, bool) or isinstance(longitude, bool):
        return None
    try:
        point = float(latitude), float(longitude)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return [point] if is_on_earth(*point) else None


def is_on_earth(latitude: float, longitude: float) -> bool:
    return -90 <= latitude <= 90 and -180 <= longitude <= 180


def read_distance(text: str) -> float | None:
    """A distance in metres; without a unit it is in metres."""
    found = _DISTANCE.fullmatch(text.strip())
    if found is None or found[2].lower() not in {"", *UNITS_M}:
        return None
    return float(found[1]) * UNITS_M.get(found[2].lower(), 1.0)


def distance_m(a: Point, b: Point) -> float:
    """Along the great circle (haversine)."""
    latitude, other = math.radians(a[0]), math.radians(b[0])
    h = (
        math.sin((other - latitude) / 2) ** 2
        + math.cos(latitude) * math.cos(other) * math.sin(math.radians(b[1] - a[1]) / 2) ** 2
    )
    return 2 * RADIUS_M * math.asin(min(1.0, math.sqrt(h)))
