"""The map's geometry: whatever the graph, nothing overlaps, nothing is outside, and lines do not run under boxes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.dashboard.layout import BOX_WIDTH, LABEL_WIDTH, NAME_CHARS, draw, wrap_name

nodes = st.integers(0, 14).map(lambda number: f"part-{number}")
graphs = st.lists(st.tuples(nodes, nodes), max_size=40).map(
    lambda edges: (tuple(sorted({(key, key) for edge in edges for key in edge})), tuple(edges))
)


def drawing(*edges):
    """A drawing of a graph in short: ("a", "b c") is two edges from a."""
    pairs = tuple((source, target) for source, targets in edges for target in targets.split())
    return draw(tuple((key, key) for key in dict.fromkeys(key for pair in pairs for key in pair)), pairs)


def box_of(drawn, key):
    return next(box for box in drawn.boxes if box.key == key)


def numbers(path):
    found = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    return list(zip(found[::2], found[1::2], strict=True))


@given(graphs)
def test_boxes_never_overlap_and_everything_is_inside(graph):
    drawn = draw(*graph)
    assert {box.key for box in drawn.boxes} == {key for key, _ in graph[0]}
    for at, box in enumerate(drawn.boxes):
        assert 0 <= box.x <= drawn.width - box.width
        assert 0 <= box.y <= drawn.height - box.height
        for other in drawn.boxes[:at]:
            apart_x = box.x >= other.x + other.width or other.x >= box.x + box.width
            apart_y = box.y >= other.y + other.height or other.y >= box.y + box.height
            assert apart_x or apart_y
    for line in drawn.lines:
        assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in numbers(line.path)), line


@given(graphs)
def test_every_line_has_a_port_of_its_own_with_room_for_a_label(graph):
    drawn = draw(*graph)
    assert {(line.source, line.target) for line in drawn.lines} == set(graph[1])
    ports = {}
    for line in drawn.lines:
        x, y = numbers(line.path)[-1]
        box = box_of(drawn, line.target)
        assert x == box.x
        assert box.y < y < box.y + box.height
        ports.setdefault(line.target, []).append(y)
        if not line.is_back:
            assert box_of(drawn, line.source).x + BOX_WIDTH + LABEL_WIDTH <= box.x
    for heights in ports.values():
        assert all(later - one >= 28 for one, later in zip(sorted(heights), sorted(heights)[1:], strict=False))


@given(graphs)
def test_straight_parts_of_lines_do_not_run_under_boxes(graph):
    drawn = draw(*graph)
    for line in drawn.lines:
        for segment in re.findall(r"([-\d.]+) ([-\d.]+) L([-\d.]+) ([-\d.]+)", line.path):
            x1, y, x2, _ = map(float, segment)
            for box in drawn.boxes:
                if box.key in (line.source, line.target):
                    continue
                assert not (box.y < y < box.y + box.height and min(x1, x2) < box.x + box.width and max(x1, x2) > box.x)


@given(graphs)
def test_the_same_graph_gives_the_same_drawing(graph):
    assert draw(*graph) == draw.__wrapped__(*graph)


def test_parts_stand_in_the_order_of_the_flow():
    drawn = drawing(
        ("db", "capture"), ("capture", "orders"), ("orders", "job cache"), ("job", "sums"), ("sums", "view")
    )
    across = [box_of(drawn, key).x for key in ("db", "capture", "orders", "job", "sums", "view")]
    assert across == sorted(set(across))
    assert box_of(drawn, "cache").x == box_of(drawn, "job").x


def test_a_topic_that_nobody_is_known_to_write_stands_before_its_reader():
    drawn = drawing(("db", "capture"), ("capture", "orders"), (["orders", "rates"][0], "job"), ("rates", "job"))
    assert box_of(drawn, "rates").x == box_of(drawn, "orders").x


def test_lines_that_need_not_cross_do_not():
    drawn = drawing(("a", "z"), ("b", "y"), ("c", "x"), ("d", "w"))
    order = [sorted("abcd", key=lambda key: box_of(drawn, key).y), sorted("wxyz", key=lambda key: box_of(drawn, key).y)]
    pairs = dict(zip("abcd", "zyxw", strict=True))
    assert [pairs[key] for key in order[0]] == order[1]


def test_a_cycle_is_drawn_below():
    drawn = drawing(("orders", "job"), ("job", "orders"))
    back = next(line for line in drawn.lines if line.is_back)
    assert (back.source, back.target) == ("job", "orders")
    assert max(y for _, y in numbers(back.path)) > max(box.y + box.height for box in drawn.boxes)


def test_sixty_parts_have_room():
    wide = drawing(
        *((f"db{n}", f"capture{n}") for n in range(4)),
        *((f"capture{n}", " ".join(f"topic{n}{t}" for t in range(5))) for n in range(4)),
        *((f"topic{n}{t}", f"job{n} cache{n}{t}") for n in range(4) for t in range(5)),
    )
    assert len(wide.boxes) == 4 + 4 + 20 + 4 + 20
    assert wide.width < 1400
    assert wide.height < 24 * 110


def test_nothing_is_a_drawing_too():
    assert draw((), ()).boxes == ()


@given(st.text(alphabet="abc.-_", min_size=1, max_size=250))
def test_a_name_fits_and_keeps_its_ends(name):
    lines = wrap_name(name)
    assert all(len(line) <= NAME_CHARS for line in lines)
    assert len(lines) <= 2
    joined = "".join(lines)
    assert joined == name if "…" not in joined else joined[:1] == name[:1] and joined[-5:] == name[-5:]
    assert len(name) > NAME_CHARS or lines == (name,)


def test_a_name_breaks_where_its_words_do():
    assert wrap_name("shop.public.customer_addresses") == ("shop.public.", "customer_addresses")
    assert wrap_name("orders") == ("orders",)
    assert wrap_name("db-0.internal.example.com:5432/shop") == ("db-0.internal.", "example.…5432/shop")
