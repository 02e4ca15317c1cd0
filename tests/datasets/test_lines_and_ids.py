"""The inner loops of the readers: splitting lines, and detecting repeated ids."""

import io

import pytest

from agentv.support import lines as lines_module
from agentv.support.hash_table import IdSet, PackedIds
from agentv.support.lines import BATCH, line_batches


class Dribble(io.RawIOBase):
    """A stream that returns its bytes in chunks of given sizes."""

    def __init__(self, data, sizes):
        self.data, self.sizes, self.at = data, sizes, 0

    def read(self, size=-1):
        wanted = next(self.sizes)
        start, self.at = self.at, self.at + wanted
        return self.data[start : self.at]


def split(data, size=None, limit=1 << 30):
    stream = io.BytesIO(data) if size is None else Dribble(data, iter([size] * (len(data) // size + 2)))
    batches = list(line_batches(stream, limit))
    return [line for batch, _ in batches for line in batch], batches


@pytest.mark.parametrize("size", [1, 2, 3, 7, None])
@pytest.mark.parametrize(
    ("data", "lines", "cut"),
    [
        (b"", [], False),
        (b"a", [b"a"], True),
        (b"a\n", [b"a\n"], False),
        (b"\n", [b"\n"], False),
        (b"\n\n", [b"\n", b"\n"], False),
        (b"a\nb", [b"a\n", b"b"], True),
        (b"a\r\nb\r\n", [b"a\r\n", b"b\r\n"], False),
        ("a\u2028b\u0085\x0b\x0c\x1c\n".encode(), ["a\u2028b\u0085\x0b\x0c\x1c\n".encode()], False),
        (b"\xff\xfe\n\x00", [b"\xff\xfe\n", b"\x00"], True),
    ],
)
def test_only_line_feeds_end_lines_however_the_bytes_arrive(size, data, lines, cut):
    found, batches = split(data, size)
    assert found == lines
    assert any(flag for _, flag in batches) == cut


@pytest.mark.parametrize("size", [1, 5, None])
def test_a_line_above_the_limit_is_none_and_other_lines_are_kept(size):
    found, _ = split(b"12345\n123456\n12345", size, limit=5)
    assert found == [b"12345\n", None, b"12345"]
    assert split(b"123456", size, limit=5)[0] == [None]


def test_batches_are_small_and_only_the_last_may_be_cut():
    _, batches = split(b"\n".join(b"x" for _ in range(1000)))
    assert [len(batch) for batch, _ in batches] == [BATCH, BATCH, BATCH, 1000 - 3 * BATCH - 1, 1]
    assert [cut for _, cut in batches] == [False, False, False, False, True]


def test_lines_are_whole_across_the_chunks_of_a_large_file():
    data = b"".join(b"%d" % n * 1000 + b"\n" for n in range(1000))
    assert len(data) > 4 * lines_module._CHUNK
    assert split(data)[0] == data.splitlines(keepends=True)


@pytest.mark.parametrize("kind", [IdSet, PackedIds])
class TestRepeatedIds:
    def test_positions_of_repeats_within_and_across_batches(self, kind):
        seen = kind()
        assert seen.repeats(["a", "b", "a"]) == [2]
        assert seen.repeats(["c", "b", "c", "c"]) == [1, 2, 3]
        assert seen.repeats([]) == []
        assert seen.repeats(["d"]) == []

    def test_many_ids(self, kind):
        seen = kind()
        for start in range(0, 100_000, 250):
            assert seen.repeats([str(n) for n in range(start, start + 250)]) == []
        assert seen.repeats([str(n) for n in range(0, 100_000, 1000)]) == list(range(100))

    def test_expect_does_not_change_the_result(self, kind):
        seen = kind()
        seen.repeats(["a"])
        seen.expect(50_000)
        assert seen.repeats(["a", "b"]) == [0]


def test_packed_ids_take_about_16_bytes_per_case():
    seen = PackedIds()
    for start in range(0, 200_000, 1000):
        seen.repeats([str(n) for n in range(start, start + 1000)])
    assert len(seen._slots) * seen._slots.itemsize <= 24 * 200_000
