"""Memory: streaming uses constant memory, also for compressed files; a loaded case is small."""

import gzip
import json
import subprocess
import sys

import pytest

PEAK = """
import gc, sys, tracemalloc, warnings
warnings.simplefilter("ignore")
import agentv
list(agentv.stream_cases(sys.argv[1]))
tracemalloc.start()
count = sum(1 for _ in agentv.stream_cases(sys.argv[2], **eval(sys.argv[3])))
print(count, tracemalloc.get_traced_memory()[1])
"""


def rows(count):
    for n in range(count):
        text = f"Question number {n} about something that takes a sentence or two to ask, as questions do."
        yield json.dumps({"id": f"case-{n}", "expected_outcome": "It works", "input": text, "expected_output": text})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    for name, count in (("one", 1), ("small", 4_000), ("large", 40_000)):
        text = "\n".join(rows(count)).encode()
        (folder / f"{name}.jsonl").write_bytes(text)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text, compresslevel=1))
    return folder


def peak_bytes(files, name, count, options="{}"):
    """Return the peak memory of a stream, in a new process whose modules are already loaded."""
    command = [sys.executable, "-c", PEAK, str(files / "one.jsonl"), str(files / name), options]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert int(output[0]) == count
    return int(output[1])


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_stream_grows_by_the_packed_ids_only(files, suffix):
    small = peak_bytes(files, "small" + suffix, 4_000)
    large = peak_bytes(files, "large" + suffix, 40_000)
    # 16 bytes per id, in a table that is copied when it doubles; a list of the cases would take 16 MB.
    assert large - small < 36_000 * 16 * 5
    assert large < 6_000_000


def test_a_sample_of_a_stream_keeps_a_rank_for_each_case_and_no_cases(files):
    assert peak_bytes(files, "large.jsonl", 100, '{"sample": 100}') < 8_000_000


def test_small_lines_before_large_ones_do_not_mislead(folder):
    tiny = "".join(json.dumps({"id": str(n), "expected_outcome": "", "input": ""}) + "\n" for n in range(300))
    long = json.dumps({"id": "long", "expected_outcome": "", "input": "x" * 30_000_000})
    folder.write("d.jsonl", "\n" * 3000 + tiny + long)
    command = [sys.executable, "-c", PEAK, "d.jsonl", "d.jsonl", "{}"]
    output = subprocess.run(command, capture_output=True, check=True, text=True, cwd=folder.path).stdout.split()
    assert int(output[0]) == 301
    assert int(output[1]) < 250_000_000
