"""Repair of JSON with lone surrogates or a byte order mark."""

import json

import pytest

from agentv.support.json_values import repair_json

WHOLE = "\U0001f600"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"plain", "plain"),
        (r"\ud83d\ude00", WHOLE),
        (r"a\ud83d", "a\ufffd"),
        (r"\ude00b", "\ufffdb"),
        (r"\ud83d\ud83d\ude00", "\ufffd" + WHOLE),
        (r"\uDE00\uD83D", "\ufffd\ufffd"),
        (r"\\ud83d", "\\ud83d"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"\n\u00e9\t", "\n\u00e9\t"),
        (r"\ud7ff\ue000", "\ud7ff\ue000"),
        (r"\ud83dx\ude00", "\ufffdx\ufffd"),
    ],
)
def test_a_lone_surrogate_becomes_a_replacement_character(written, meant):
    assert json.loads(repair_json(f'"{written}"'.encode())) == meant


def test_a_byte_order_mark_is_removed():
    assert repair_json(b"\xef\xbb\xbf{}") == b"{}"


def test_other_data_is_unchanged():
    assert repair_json(rb"Write \ud83d for half a face") == rb"Write \ud83d for half a face"
