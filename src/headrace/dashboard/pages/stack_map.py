"""Map: databases, captures, topics, pipelines, views and derived systems, and what flows between them."""

from collections.abc import Mapping
from typing import Any

from headrace.dashboard.desk import Desk
from headrace.dashboard.flow import Edge, Part, flow_of
from headrace.dashboard.layout import draw
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.watch import State


def model(state: State) -> Model:
    """What the page shows."""
    flow = flow_of(state)
    linked = {end for edge in flow.edges for end in (edge.source, edge.target)}
    drawing = draw(
        tuple((key, part.name) for key, part in sorted(flow.parts.items())),
        tuple(sorted({(edge.source, edge.target) for edge in flow.edges})),
    )
    edges = {(edge.source, edge.target): edge for edge in flow.edges}
    return {
        "drawing": drawing,
        "boxes": [{"box": box, "part": flow.parts[box.key]} for box in drawing.boxes],
        "lines": [{"line": line, "edge": edges[line.source, line.target]} for line in drawing.lines],
        "parts": [_described(flow.parts[box.key], edges, flow.parts) for box in drawing.boxes],
        "is_empty": not linked,
        "alone": sorted(flow.alone),
        "hidden": flow.hidden,
    }


def _described(part: Part, edges: Mapping[tuple[str, str], Edge], parts: Mapping[str, Part]) -> dict[str, Any]:
    """A part in words, for who does not see the drawing, and for small screens."""
    return {
        "part": part,
        "reads": [
            {"part": parts[source], "edge": edge} for (source, target), edge in edges.items() if target == part.key
        ],
        "writes": [parts[target] for source, target in edges if source == part.key],
    }


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    return model(desk.state)


PAGE = Page("/map", "Map", "map.html", view, Menu("Processing", "Map", "m", "map"))
