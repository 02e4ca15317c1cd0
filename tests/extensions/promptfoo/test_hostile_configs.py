"""Promptfoo configurations that would never end, or end in a traceback, are read in time or refused."""

import json

import pytest

LOOP = {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a", "x": {"$ref": "#/b"}}}
MANY = {f"a{n}": [{"$ref": f"#/a{n + 1}"}] * 2 for n in range(40)}
PATTERNS = {"^(a+)+$": {"type": "string"}, "^(?=(a+)+$)x": {"type": "string"}}
PROPERTIES = {"patternProperties": PATTERNS, "properties": {"a" * 40 + "!": {}}}
MANY_PATTERNS = {
    "patternProperties": {f"^x{n}$": {"type": "string"} for n in range(400)},
    "properties": {f"y{n}": {} for n in range(2000)},
}


def schema(value):
    return {"tests": [{"vars": {"x": "a"}, "assert": [{"type": "is-json", "value": value}]}]}


CONFIGS = {
    "references in a circle": (LOOP, 0),
    "a long chain of references": ({**{f"a{n}": {"$ref": f"#/a{n + 1}"} for n in range(2000)}, "a2000": 1}, 2),
    "references that multiply": ({**MANY, "a40": []}, 2),
    "a file that names itself": ({"providers": [{"id": "openai:gpt-4o", "config": {"tools": "file://loop.yaml"}}]}, 2),
    "files that multiply": ({"providers": [{"id": "openai:gpt-4o", "config": {"tools": "file://0.yaml"}}]}, 2),
    "names of properties that take long to match": (schema(PROPERTIES), 0),
    "many names and patterns": (schema(MANY_PATTERNS), 0),
    "brackets that are not closed": (schema({"pattern": "[" * 200_000}), 2),
    "a prompt of slashes": ({"prompts": ["a/" * 200_000 + "{{x}}"]}, 0),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_configuration_is_read_in_time_or_refused(folder, command, name):
    more, code = CONFIGS[name]
    folder.write("loop.yaml", "file://loop.yaml\n")
    for number in range(40):
        folder.write(f"{number}.yaml", f"[file://{number + 1}.yaml, file://{number + 1}.yaml]\n")
    folder.write("40.yaml", "[]\n")
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": "a"}}], **more}
    folder.write("promptfooconfig.json", json.dumps(data))
    for arguments in (("cases", "-q"), ("eval", "--dry-run")):
        ended = command(*arguments, "promptfooconfig.json")
        assert ended.code == code, ended.stderr
