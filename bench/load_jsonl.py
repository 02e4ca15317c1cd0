"""Speed and memory of loading JSONL as validated cases, compared with msgspec decoding the same lines to structs."""

from __future__ import annotations

import gc
import gzip
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

import generate
import harness
from harness import Goal, Measurement, Options, Pair, Work
from loading import load_list, load_stream

MILLION = 1_000_000
SIZES = (10_000, 100_000, MILLION)
QUICK_SIZES = (10_000,)
VARIANT_CASES, QUICK_VARIANT_CASES = 100_000, 5_000

SPEED_AT_A_MILLION = Goal("ratio", "≥", 0.6)
LIST_MB_AT_A_MILLION = Goal("ours", "≤", 700)
STREAM_MB, STREAM_BYTES_A_CASE = 64, 16


class TextRow(msgspec.Struct, gc=False):
    id: str
    expected_outcome: str
    input: str
    expected_output: str


class MessageRow(msgspec.Struct, gc=False):
    role: str
    content: str


class MessagesRow(msgspec.Struct, gc=False):
    id: str
    expected_outcome: str
    input: list[MessageRow]
    expected_output: list[MessageRow]


class AnnotatedRow(msgspec.Struct, gc=False):
    id: str
    expected_outcome: str
    input: str
    expected_output: str
    metadata: dict[str, Any]
    tags: list[str]


class AgentmarkRow(msgspec.Struct, gc=False):
    input: dict[str, Any]
    expected_output: str


ROWS: dict[str, type[msgspec.Struct]] = {
    row.__name__: row for row in (TextRow, MessagesRow, AnnotatedRow, AgentmarkRow)
}


def floor_list(path: str, row: str) -> Callable[[], Any]:
    """The minimum for typed objects: one decoder, one line at a time, garbage collector off."""
    decode = msgspec.json.Decoder(ROWS[row]).decode
    opened = opener(path)

    def work() -> list[Any]:
        gc.disable()
        with opened(path, "rb") as lines:
            return [decode(line) for line in lines]

    return work


def floor_stream(path: str, row: str) -> Callable[[], Any]:
    """The same, without keeping the objects."""
    decode = msgspec.json.Decoder(ROWS[row]).decode
    opened = opener(path)

    def work() -> int:
        gc.disable()
        with opened(path, "rb") as lines:
            return sum(1 for _ in map(decode, lines))

    return work


def opener(path: str) -> Callable[..., IO[bytes]]:
    """Return the function that opens a file of this name, compressed or not."""
    if path.endswith(".gz"):
        return gzip.open  # type: ignore[return-value]
    zstd = zstd_module() if path.endswith(".zst") else None
    return open if zstd is None else zstd.open


def zstd_module() -> Any:
    """Python's Zstandard module or its backport; None if neither exists, and the figure is skipped."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return __import__(name, fromlist=["open"])
        except ImportError:
            continue
    return None


@dataclass(frozen=True)
class OverrideKey:
    """Another shape or compression of the same cases."""

    name: str
    shape: generate.Shape
    row: type[msgspec.Struct]
    suffix: str = ".jsonl"
    streamed: bool = False


VARIANTS = (
    OverrideKey("arrays of messages, list", generate.messages, MessagesRow),
    OverrideKey("metadata and tags, list", generate.annotated, AnnotatedRow),
    OverrideKey("AgentMark rows, list", generate.agentmark, AgentmarkRow),
    OverrideKey("gzip, stream", generate.text, TextRow, ".jsonl.gz", streamed=True),
    OverrideKey("Zstandard, stream", generate.text, TextRow, ".jsonl.zst", streamed=True),
)


def measurements(options: Options) -> Iterator[Measurement]:
    """Measure strings at every size and the variants at one size."""
    for cases in options.sizes(SIZES, QUICK_SIZES):
        yield from by_size(cases, options.rounds_for(cases))
    for cases in options.sizes((VARIANT_CASES,), (QUICK_VARIANT_CASES,))[:1]:
        for variant in VARIANTS:
            if not variant.suffix.endswith(".zst") or zstd_module() is not None:
                yield from by_variant(variant, cases, options.rounds_for(cases))


def by_size(cases: int, rounds: int) -> Iterable[Measurement]:
    """Measure the list, and the stream against two floors: one that keeps the objects and one that does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(generate.write_jsonl(Path(folder, "cases.jsonl"), generate.text, cases))
        works = {
            "list": Work(load_list, (path,)),
            "floor list": Work(floor_list, (path, TextRow.__name__)),
            "stream": Work(load_stream, (path,)),
            "floor stream": Work(floor_stream, (path, TextRow.__name__)),
        }
        samples = harness.interleaved(works, rounds, cases)

    speed, list_mb = (SPEED_AT_A_MILLION, LIST_MB_AT_A_MILLION) if cases == MILLION else (None, None)
    stream_mb = Goal("ours", "≤", STREAM_MB + STREAM_BYTES_A_CASE * cases / 1e6)
    title, kept, dropped = f"{cases:,} cases, ", "msgspec structs in a list", "msgspec structs, none kept"
    whole = Pair("load_jsonl", title + "list", samples["list"], samples["floor list"], kept)
    stream = Pair("load_jsonl", title + "stream", samples["stream"], samples["floor list"], kept)
    strict = Pair("load_jsonl", title + "stream, strict floor", samples["stream"], samples["floor stream"], dropped)
    flat = replace(strict, name=stream.name)
    return [whole.speed(speed), whole.memory(list_mb), stream.speed(speed), strict.speed(), flat.memory(stream_mb)]


def by_variant(variant: OverrideKey, cases: int, rounds: int) -> Iterable[Measurement]:
    """Compare one way of loading with its floor."""
    ours, floor = (load_stream, floor_stream) if variant.streamed else (load_list, floor_list)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, f"cases{variant.suffix}"))
        generate.write_jsonl(Path(path), variant.shape, cases, opener(path))
        works = {"ours": Work(ours, (path,)), "floor": Work(floor, (path, variant.row.__name__))}
        samples = harness.interleaved(works, rounds, cases)
    floor_is = f"msgspec structs of the same shape, {'none kept' if variant.streamed else 'in a list'}"
    pair = Pair("load_jsonl", f"{cases:,} cases, {variant.name}", samples["ours"], samples["floor"], floor_is)
    return [pair.speed(), pair.memory()]


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
