"""A provider whose answers are objects, lists, numbers and text."""


def call_api(prompt, options, context):
    return {
        "obj": {"output": {"a": 1, "b": [1, 2]}},
        "bad": {"output": {"error": "x"}},
        "list": {"output": [1, 2]},
        "msgs": {"output": [{"role": "assistant", "content": "hi"}]},
        "num": {"output": 3.0},
        "zero": {"output": 0},
        "false": {"output": False},
        "empty": {"output": ""},
        "none": {"output": None},
        "bare": "hello",
        "nooutput": {"foo": 1},
        "floats": {"output": {"a": 1.0, "b": 1.5, "c": 12345678901234567890}},
        "intkeys": {"output": {"x": 1, "2": "a", "1": "b"}},
        "uni": {"output": {"x": "é"}},
        "text": {"output": '{"a": 1}'},
        "bare words": {"output": "some words"},
        "big": {"output": '{"id": 12345678901234567890}'},
    }[prompt]
