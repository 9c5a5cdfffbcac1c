"""Where boxes and lines of a drawing stand that flows from left to right. Pure.

The method is Sugiyama's: layers by the longest path, an order within each layer that avoids crossings, heights that
keep lines straight. A line that skips layers passes through points of its own, so it never runs under a box. Lines
that lead back (a cycle) are drawn below the boxes.

What always holds: no two boxes overlap; every coordinate is inside the drawing; every line that enters a box has a
port of its own there, with room for a label before it; the same graph gives the same drawing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

BOX_WIDTH = 172
LABEL_WIDTH = 74  # before a port
BEND_WIDTH = 38  # where lines cross from one layer to the next
GAP = 18  # between boxes of a layer
PORT_HEIGHT = 30
MARGIN = 8
LINE_HEIGHT = 16
NAME_CHARS, NAME_LINES = 18, 2
_PITCH = BOX_WIDTH + BEND_WIDTH + LABEL_WIDTH
_BOX_HEIGHT = 46  # besides the name
_SWEEPS = 12
_BREAKS = "./-_: "
_ELLIPSIS = "…"


class Box(NamedTuple):
    """One part, placed; `lines` is its name as it fits."""

    key: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]


class Line(NamedTuple):
    """One edge, placed: its path, and where the label before its end goes."""

    source: str
    target: str
    path: str
    label_x: float
    label_y: float
    is_back: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: float
    height: float


Node = str | tuple[str, str, int]  # a part, or the point where an edge passes a layer


@lru_cache(maxsize=32)
def draw(names: tuple[tuple[str, str], ...], edges: tuple[tuple[str, str], ...]) -> Drawing:
    """A drawing of parts (key and name, in the order that counts where nothing else does) and edges between them."""
    lines = {key: wrap_name(name) for key, name in names}
    known = list(dict.fromkeys(edge for edge in edges if edge[0] in lines and edge[1] in lines))
    forward, back = _without_cycles(list(lines), known)
    layer_of = _layers(list(lines), forward)
    links = _links(forward, layer_of)
    layers = _order(_fill(list(lines), layer_of, links), links)
    entering = {key: sum(1 for _, target in known if target == key) for key in lines}
    heights = {
        key: max(_BOX_HEIGHT + LINE_HEIGHT * len(lines[key]), PORT_HEIGHT * entering[key] + 8.0) for key in lines
    }
    middles = _middles(layers, links, heights)
    # Lines that lead back need room at both ends.
    left = MARGIN + (LABEL_WIDTH + BEND_WIDTH if back else 0)
    boxes = {
        key: Box(key, left + layer_of[key] * _PITCH, middles[key] - heights[key] / 2, BOX_WIDTH, heights[key], text)
        for key, text in lines.items()
    }
    bottom = max((box.y + box.height for box in boxes.values()), default=0.0)
    placed = _lines(known, set(back), boxes, layer_of, middles, bottom)
    depth = max((edge_bottom for _, edge_bottom in placed), default=0.0)
    return Drawing(
        tuple(boxes[key] for layer in layers for key in layer if isinstance(key, str)),
        tuple(line for line, _ in placed),
        max((box.x + box.width for box in boxes.values()), default=0.0) + MARGIN + (BEND_WIDTH if back else 0),
        max(bottom, depth) + MARGIN,
    )


# --- names


def wrap_name(name: str, width: int = NAME_CHARS, most: int = NAME_LINES) -> tuple[str, ...]:
    """A name in lines, broken after a separator; the middle of a name that is too long is left out."""
    if len(name) <= width:
        return (name,)
    if most == 1:
        head = (width - 1) // 2
        return (name[:head] + _ELLIPSIS + name[len(name) - (width - 1 - head) :],)
    cut = max(name.rfind(mark, 0, width) + 1 for mark in _BREAKS) or width
    return (name[:cut], *wrap_name(name[cut:], width, most - 1))


# --- layers


def _without_cycles(
    keys: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The edges that lead on, and those that lead back to where one came from."""
    after: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        after[source].append(target)
    done: set[str] = set()
    back: set[tuple[str, str]] = set()
    entered = {target for _, target in edges}
    for start in [*(key for key in keys if key not in entered), *keys]:
        if start in done:
            continue
        path, trail = {start}, [(start, iter(after[start]))]
        done.add(start)
        while trail:
            key, rest = trail[-1]
            for onward in rest:
                if onward in path:
                    back.add((key, onward))
                elif onward not in done:
                    done.add(onward)
                    path.add(onward)
                    trail.append((onward, iter(after[onward])))
                    break
            else:
                path.discard(key)
                trail.pop()
    return [edge for edge in edges if edge not in back], [edge for edge in edges if edge in back]


def _layers(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest way from a beginning; what nothing leads to stands right before what it leads to."""
    before: dict[str, list[str]] = {key: [] for key in keys}
    after: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    found: dict[str, int] = {}
    left = {key: len(before[key]) for key in keys}
    ready = [key for key in keys if not left[key]]
    while ready:
        key = ready.pop()
        found[key] = max((found[source] + 1 for source in before[key]), default=0)
        for target in after[key]:
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    for key in keys:
        if not before[key] and after[key]:
            found[key] = min(found[target] for target in after[key]) - 1
    return found


Links = Sequence[tuple[Node, Node]]  # between neighbouring layers


def _links(edges: Sequence[tuple[str, str]], layer_of: Mapping[str, int]) -> list[tuple[Node, Node]]:
    found: list[tuple[Node, Node]] = []
    for source, target in edges:
        points = [(source, target, layer) for layer in range(layer_of[source] + 1, layer_of[target])]
        chain: list[Node] = [source, *points, target]
        found += pairwise(chain)
    return found


def _fill(keys: Sequence[str], layer_of: Mapping[str, int], links: Links) -> list[list[Node]]:
    layers: list[list[Node]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for key in keys:
        layers[layer_of[key]].append(key)
    points = {node: None for link in links for node in link if not isinstance(node, str)}
    for point in points:
        layers[point[2]].append(point)
    return layers


# --- the order within layers


def _order(layers: list[list[Node]], links: Links) -> list[list[Node]]:
    """Sweeps to and fro, each node to the mean place of its neighbours; the order with the fewest crossings counts."""
    before, after = _neighbours(links)
    best, fewest = layers, crossings(layers, links)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        layers = [list(layer) for layer in layers]
        forth = sweep % 2 == 0
        for index in range(1, len(layers)) if forth else range(len(layers) - 2, -1, -1):
            beside = {node: at for at, node in enumerate(layers[index - 1 if forth else index + 1])}
            near = before if forth else after
            wanted = {
                node: sum(beside[other] for other in near[node]) / len(near[node]) if near.get(node) else float(at)
                for at, node in enumerate(layers[index])
            }
            layers[index].sort(key=wanted.__getitem__)
        found = crossings(layers, links)
        if found < fewest:
            best, fewest = layers, found
    return best


def _neighbours(links: Links) -> tuple[dict[Node, list[Node]], dict[Node, list[Node]]]:
    before: dict[Node, list[Node]] = {}
    after: dict[Node, list[Node]] = {}
    for source, target in links:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    return before, after


def crossings(layers: Sequence[Sequence[Node]], links: Links) -> int:
    place = {node: (layer, at) for layer, nodes in enumerate(layers) for at, node in enumerate(nodes)}
    by_layer: dict[int, list[tuple[int, int]]] = {}
    for source, target in links:
        by_layer.setdefault(place[source][0], []).append((place[source][1], place[target][1]))
    total = 0
    for ends in by_layer.values():
        ends.sort()
        total += sum(
            first[1] > second[1] for at, second in enumerate(ends) for first in ends[:at] if first[0] < second[0]
        )
    return total


# --- heights


def _middles(layers: Sequence[Sequence[Node]], links: Links, heights: Mapping[str, float]) -> dict[Node, float]:
    """The middle of each node: as near to its neighbours as the others of its layer leave room for."""
    before, after = _neighbours(links)

    def height(node: Node) -> float:
        return heights[node] if isinstance(node, str) else PORT_HEIGHT

    found: dict[Node, float] = {}
    for layer in layers:
        top = float(MARGIN)
        for node in layer:
            found[node] = top + height(node) / 2
            top += height(node) + GAP
    for turn in range(6):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            wanted = []
            for node in layer:
                near = (
                    [*before.get(node, ()), *after.get(node, ())] if turn > 1 else (before, after)[turn].get(node, [])
                )
                wanted.append(sum(found[other] for other in near) / len(near) if near else found[node])
            apart = [(height(one) + height(other)) / 2 + GAP for one, other in pairwise(layer)]
            found |= zip(layer, _apart(wanted, apart), strict=True)
    highest = min((found[node] - height(node) / 2 for node in found), default=0.0)
    return {node: round(middle - highest + MARGIN, 1) for node, middle in found.items()}


def _apart(wanted: Sequence[float], apart: Sequence[float]) -> list[float]:
    """The numbers nearest to those wanted (least squares) that are this far apart: pool adjacent violators."""
    offsets = [0.0]
    for distance in apart:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, int]] = []  # mean and size
    for number, offset in zip(wanted, offsets, strict=False):
        mean, size = number - offset, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, size = (mean * size + other * others) / (size + others), size + others
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=False)]


# --- lines


def _lines(
    edges: Iterable[tuple[str, str]],
    back: set[tuple[str, str]],
    boxes: Mapping[str, Box],
    layer_of: Mapping[str, int],
    middles: Mapping[Node, float],
    bottom: float,
) -> list[tuple[Line, float]]:
    coming: dict[str, list[tuple[float, str]]] = {}
    for source, target in edges:
        is_back = (source, target) in back
        last = source if layer_of[target] - layer_of[source] == 1 else (source, target, layer_of[target] - 1)
        coming.setdefault(target, []).append((bottom + 1 if is_back else middles[last], source))
    ports: dict[tuple[str, str], float] = {}
    for target, sources in coming.items():
        box = boxes[target]
        first = box.y + box.height / 2 - PORT_HEIGHT * (len(sources) - 1) / 2
        for at, (_, source) in enumerate(sorted(sources)):
            ports[source, target] = round(first + at * PORT_HEIGHT, 1)
    found = []
    lanes = 0
    for source, target in edges:
        box, start = boxes[target], boxes[source]
        end_x, end_y = box.x, ports[source, target]
        x, y = start.x + start.width, round(start.y + start.height / 2, 1)
        enter_x = end_x - LABEL_WIDTH
        if (source, target) in back:
            lanes += 1
            lane = bottom + 14 + 8 * lanes
            middle_x, left_x = x + BEND_WIDTH / 2, enter_x - 6
            path = (
                f"M{x} {y} C{middle_x} {y} {middle_x} {lane} {x} {lane} L{left_x + 8} {lane} "
                f"C{left_x} {lane} {left_x} {end_y} {left_x + 8} {end_y} L{end_x} {end_y}"
            )
            found.append((Line(source, target, path, end_x - 8, end_y, is_back=True), lane))
            continue
        path = f"M{x} {y}"
        for layer in range(layer_of[source] + 1, layer_of[target] + 1):
            is_end = layer == layer_of[target]
            passed_x = start.x + (layer - layer_of[source]) * _PITCH  # where boxes of this layer begin
            left = passed_x - LABEL_WIDTH
            next_y = end_y if is_end else middles[source, target, layer]
            half = (x + left) / 2
            path += f" C{half} {y} {half} {next_y} {left} {next_y}"
            x = end_x if is_end else passed_x + BOX_WIDTH
            path += f" L{x} {next_y}"
            y = next_y
        found.append((Line(source, target, path, end_x - 8, end_y, is_back=False), 0.0))
    return found
