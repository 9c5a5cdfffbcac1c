"""What becomes of followed files at a look, and how pieces are cut into lines."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateways.files.following import Identity, Seen, Tracked, cut_lines, look

BASE = "/log/a"
PATTERNS = {BASE}


def seen(inode: int, content: bytes, *, live: bool = True, at: int = 0) -> Seen:
    path = BASE if live else f"{BASE}.{inode}"
    return Seen(Identity(1, inode), path, BASE, live, len(content), at, content[:1024], BASE)


def read(inode: int, content: bytes, path: str = BASE) -> Tracked:
    return Tracked(Identity(1, inode), path, BASE, len(content), content)


def known(*files: Tracked) -> dict[Identity, Tracked]:
    return {file.identity: file for file in files}


def offsets(found: dict[Identity, Tracked]) -> dict[int, int]:
    return {identity.inode: file.offset for identity, file in found.items()}


def test_the_first_look_takes_rotated_files_for_done() -> None:
    files = [seen(1, b"new\n"), seen(2, b"old\n", live=False)]
    assert offsets(look({}, files, begun=()).tracked) == {2: 4, 1: 0}
    assert offsets(look({}, files, begun=(), from_end=True).tracked) == {2: 4, 1: 4}


def test_later_everything_new_is_read_from_its_beginning_the_oldest_first() -> None:
    files = [seen(1, b"new\n", at=9), seen(2, b"missed\n", live=False, at=5), seen(3, b"before\n", live=False, at=4)]
    found = look({}, files, begun=PATTERNS, from_end=True).tracked
    assert list(offsets(found).items()) == [(3, 0), (2, 0), (1, 0)]


def test_a_renamed_file_goes_on_under_its_new_name() -> None:
    found = look(known(read(1, b"a\n")), [seen(1, b"a\nb\n", live=False), seen(2, b"c\n")], begun=PATTERNS)
    assert offsets(found.tracked) == {1: 2, 2: 0}
    assert found.tracked[Identity(1, 1)].path == "/log/a.1"


def test_an_emptied_file_goes_on_in_its_copy() -> None:
    files = [seen(1, b"c\n"), seen(2, b"a\nb\n", live=False)]
    assert offsets(look(known(read(1, b"a\n")), files, begun=PATTERNS).tracked) == {2: 2, 1: 0}
    grown = [seen(1, b"c\nd\ne\n"), seen(2, b"a\nb\n", live=False)]
    assert offsets(look(known(read(1, b"a\n")), grown, begun=PATTERNS).tracked) == {2: 2, 1: 0}, "longer than before"
    lost = look(known(read(1, b"a\n")), [seen(1, b"")], begun=PATTERNS)
    assert (offsets(lost.tracked), offsets(known(*lost.emptied))) == ({1: 0}, {1: 2})


def test_a_copy_is_left_alone_until_its_original_is_emptied() -> None:
    before = known(read(1, b"a\n"))
    for copy in (b"", b"a\n", b"a\nb\n"):
        found = look(before, [seen(1, b"a\nb\n"), seen(2, copy, live=False)], begun=PATTERNS)
        assert offsets(found.tracked) == {1: 2}
    unread = look(
        known(Tracked(Identity(1, 1), BASE, BASE)), [seen(1, b""), seen(2, b"a\n", live=False)], begun=PATTERNS
    )
    assert offsets(unread.tracked) == {2: 0, 1: 0}, "nothing was read before it was emptied"


def test_a_copy_comes_before_its_original_of_which_nothing_was_read() -> None:
    unread = known(Tracked(Identity(1, 1), BASE, BASE))
    found = look(unread, [seen(1, b"b\n"), seen(2, b"a\n", live=False)], begun=PATTERNS)
    assert list(offsets(found.tracked)) == [2, 1], "the copy is new, and its lines are the older ones"


def test_of_files_of_one_time_the_one_that_was_rotated_more_often_is_older() -> None:
    files = [seen(inode, b"%d\n" % inode, live=inode == 1, at=7) for inode in (1, 2, 9, 10)]
    assert list(offsets(look({}, files, begun=PATTERNS).tracked)) == [10, 9, 2, 1]


def test_an_inode_that_is_used_again_is_another_file() -> None:
    found = look(known(read(1, b"a\nb\n")), [seen(1, b"longer than before\n")], begun=PATTERNS)
    assert offsets(found.tracked) == {1: 0}


def test_a_file_on_a_device_with_another_number_goes_on() -> None:
    """As after a machine has started again: nothing is read twice."""
    now = seen(1, b"a\nb\n")
    moved = replace(now, identity=Identity(2, 1))
    found = look(known(read(1, b"a\n"), read(3, b"c\n")), [moved], begun=PATTERNS)
    assert found.tracked == {moved.identity: replace(read(1, b"a\n"), identity=moved.identity)}
    assert [file.identity.inode for file in found.gone] == [3]
    other = replace(seen(1, b"other\n"), identity=Identity(2, 1))
    assert offsets(look(known(read(1, b"a\n")), [other], begun=PATTERNS).tracked) == {1: 0}
    both = look(known(read(1, b"a\n")), [now, moved], begun=PATTERNS)
    assert both.tracked[moved.identity].offset == 0, "the first is still there"


def test_what_is_in_no_folder_is_gone() -> None:
    found = look(known(read(1, b"a\n")), [seen(2, b"b\n")], begun=PATTERNS)
    assert [file.identity.inode for file in found.gone] == [1]
    assert offsets(found.tracked) == {2: 0}


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=12), st.integers(1, 8),
       st.lists(st.integers(1, 20), min_size=1), st.booleans())  # fmt: skip
def test_lines_do_not_depend_on_how_a_file_is_read(
    lines: list[bytes], limit: int, sizes: list[int], has_end: bool
) -> None:
    content = b"\n".join(lines) + (b"\n" if lines and has_end else b"")
    found: list[bytes] = []
    too_long, at, skipping, turn = 0, 0, False, 0
    while at < len(content):
        size = limit + sizes[turn % len(sizes)]  # a piece is always longer than the longest line that is kept
        piece = content[at : at + size]
        cut = cut_lines(piece, limit, is_skipping=skipping, is_ended=at + size >= len(content))
        assert cut.taken
        found += cut.lines
        too_long += cut.too_long
        at, skipping, turn = at + cut.taken, cut.is_skipping, turn + 1
    written = content.split(b"\n")
    if not written[-1]:
        written.pop()
    assert [line.removesuffix(b"\r") for line in found] == [line[:limit].removesuffix(b"\r") for line in written]
    assert too_long >= sum(len(line) > limit + 1 for line in written)
