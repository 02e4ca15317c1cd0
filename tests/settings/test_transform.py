"""§4, `transform`: what is taken off an answer and what is picked out of it."""

import pytest

from agentv.model.diagnostics import Problems
from agentv.model.values import freeze
from agentv.settings.transform import Transform, TransformFailure, apply_transform, check_transform

THINKING, FENCES = {"strip": ["thinking"]}, {"strip": ["fences"]}

# (transform, text, result)
ROWS = [
    (None, " as it is ", " as it is "),
    ({}, " as it is ", " as it is "),
    (THINKING, "<think>hm</think>\n\nParis", "Paris"),
    (THINKING, "<thinking>a\nb</thinking>Paris", "Paris"),
    (THINKING, "A <THINK>x</THINK>B<think>y</think> C", "A B C"),
    (THINKING, "hm, well</think>Paris", "Paris"),
    (THINKING, "<think>a<think>b</think>c</think>Paris", "Paris"),
    (THINKING, "<think>about <think> tags</think>Paris", "Paris"),
    (THINKING, "<think>I mention <thinking></think>Paris", "Paris"),
    (THINKING, "Use the <think> tag", "Use the <think> tag"),
    (THINKING, "no thinking", "no thinking"),
    (THINKING, "", ""),
    (FENCES, '```json\n{"a": 1}\n```', '{"a": 1}'),
    (FENCES, "\n```\na\n\nb\n```\n", "a\n\nb"),
    (FENCES, "~~~\na\n~~~", "a"),
    (FENCES, "````\n```\na\n```\n````", "```\na\n```"),
    (FENCES, "Here:\n```\na\n```", "Here:\n```\na\n```"),
    (FENCES, "```\na\n```\nand\n```\nb\n```", "```\na\n```\nand\n```\nb\n```"),
    (FENCES, "```json\n{", "```json\n{"),
    (FENCES, "plain", "plain"),
    ({"strip": ["thinking", "fences"]}, "<think>x</think>\n```\na\n```", "a"),
    ({"regex": r"ANSWER:\s*(\w+)"}, "Well. ANSWER: B. Sure.", "B"),
    ({"regex": r"\d+"}, "in 1999 and 2000", "1999"),
    ({"regex": r"(a)|(b)"}, "b", "b"),
    ({"regex": r"(?i)(?P<answer>yes|no)"}, "NO", "NO"),
    ({"json_path": "a.b[1]"}, '{"a": {"b": [1, "x"]}}', "x"),
    ({"json_path": "$.a"}, '{"a": {"b": [1, 2.5, null]}}', '{"b":[1,2.5,null]}'),
    ({"json_path": "$"}, '{ "a": 1 }', '{"a":1}'),
    ({"json_path": "['a.b']"}, '{"a.b": "é"}', "é"),
    ({"json_path": "[-1]"}, "[1, true]", "true"),
    ({"json_path": "a", "strip": ["fences"]}, '```json\n{"a": "x"}\n```', "x"),
    ({"regex": r"\{.*\}", "json_path": "a"}, 'It is {"a": "x"}!', "x"),
    ({"function": "os.path:basename"}, "a/b.txt", "b.txt"),
    ({"regex": r"\S+\.txt", "function": "os.path:basename"}, "see a/b.txt", "b.txt"),
    ({"strip": None, "regex": "b"}, "abc", "b"),
    ({"strip": ["whitespace"]}, "\n a b \n", "a b"),
    ({"strip": ["whitespace"]}, " ", ""),
    ([{"json_path": "a"}, {"regex": r"\d+"}], '{"a": "in 1999"}', "1999"),
    ({"strip": ["thinking"], "allow_empty": True}, "<think>never closed", ""),
    ({"regex": "a(.*)", "allow_empty": True}, "a", ""),
    ({"json_path": "a", "allow_empty": True}, '{"a": ""}', ""),
]


@pytest.mark.parametrize(("transform", "text", "result"), ROWS)
def test_an_answer_is_cleaned(transform, text, result):
    assert apply_transform(text, transform) == result
    assert apply_transform(text, freeze(transform)) == result


NOTHING = "nothing is left of it. To score an empty text, add `allow_empty: true` to the transform"

# (transform, text, problem)
FAILURES = [
    (THINKING, "<think>never closed", NOTHING),
    (FENCES, "```\n```", NOTHING),
    ({"regex": "a( *)"}, "a ", NOTHING),
    ({"json_path": "a"}, '{"a": ""}', NOTHING),
    ({"regex": r"ANSWER: (\w+)"}, "I do not know", r"'transform.regex' does not match it: ANSWER: (\w+)"),
    ({"regex": "a|(b)"}, "a", "'transform.regex' matches it, but none of its groups does: a|(b)"),
    ({"regex": "a"}, "", "'transform.regex' does not match it: a"),
    ({"json_path": "a"}, '{"a": null}', "'transform.json_path' leads to null in it: a"),
    ({"json_path": "b.c"}, '{"a": 1}', "'transform.json_path' leads to nothing in it: b.c"),
    ({"json_path": "[3]"}, "[1]", "'transform.json_path' leads to nothing in it: [3]"),
    ({"json_path": "a"}, "no JSON", "it is not valid JSON, which 'transform.json_path' needs: a"),
    ({"json_path": "a"}, "", "it is not valid JSON, which 'transform.json_path' needs: a"),
    ([{"json_path": "a"}, {"regex": "b"}], '{"a": "x"}', "'transform.regex' does not match it: b"),
]


@pytest.mark.parametrize(("transform", "text", "problem"), FAILURES)
def test_a_transform_that_yields_nothing_is_an_error(transform, text, problem):
    for each in (transform, freeze(transform)):
        with pytest.raises(TransformFailure) as raised:
            apply_transform(text, each)
        assert str(raised.value) == f"Cannot transform the answer: {problem}"


@pytest.mark.parametrize("transform", [{"regex": "x"}, {"json_path": "a"}, {"json_path": "b"}])
def test_an_empty_text_is_allowed_and_a_failure_is_not(transform):
    with pytest.raises(TransformFailure):
        apply_transform('{"b": null}', {**transform, "allow_empty": True})


MALFORMED = [
    ({"strip": ["html"]}, "Field 'transform.strip[0]' has an unknown value 'html'"),
    ({"strip": "thinking"}, "Field 'transform.strip' must be an array, got string"),
    ({"regx": "a"}, "Unknown field 'transform.regx'. Did you mean 'regex'?"),
    ({"regex": "("}, "'transform.regex' is not a valid regular expression: missing )"),
    ({"regex": 5}, "Field 'transform.regex' must be a string, got integer"),
    ({"json_path": "a..b"}, "'transform.json_path': 'a..b' is not a valid path"),
    ({"json_path": "a[*]"}, "'transform.json_path': 'a[*]' is not a valid path"),
    ({"json_path": ""}, "'transform.json_path': '' is not a valid path"),
    ([{"regex": "x"}, {"regex": "("}], "'transform.regex' is not a valid regular expression: missing )"),
    ("regex", "'transform' must be an object with strip, regex, json_path or function"),
]


@pytest.mark.parametrize(("transform", "message"), MALFORMED)
def test_a_malformed_transform_is_a_sentence(transform, message):
    with pytest.raises(ValueError) as raised:
        apply_transform("x", transform)
    assert message in str(raised.value)
    assert str(raised.value) == f"Cannot transform the answer: {problems_of(transform)[0]}"


def problems_of(transform):
    problems = Problems()
    check_transform(transform, (), problems)
    return [problem.message for problem in problems.errors]


def test_a_valid_transform_has_no_problems():
    assert problems_of({"strip": ["fences"], "regex": "a", "json_path": "a", "function": "a.py:f"}) == []
    assert problems_of(None) == []


def test_settings_of_a_target_are_applied_too():
    assert apply_transform("<think>x</think>a1", Transform(strip=("thinking",), regex=r"\d")) == "1"


FUNCTIONS = """
def upper(text): return text.upper()
def fails(text): raise KeyError(text)
def number(text): return 5
"""


def test_a_function_in_a_file_is_called_with_the_text(tmp_path):
    (tmp_path / "clean.py").write_text(FUNCTIONS)

    def find_file(value):
        return str(tmp_path / value)

    def cleaned(name):
        return apply_transform("a", {"function": f"clean.py:{name}"}, find_file)

    assert cleaned("upper") == "A"
    with pytest.raises(ValueError, match=r"clean.py:fails failed: KeyError: 'a' \(clean.py, line 3\)"):
        cleaned("fails")
    with pytest.raises(ValueError, match=r"clean.py:number must return a string, got int"):
        cleaned("number")
    with pytest.raises(ValueError, match=r"clean.py has no 'uper'. Did you mean 'upper'\?"):
        cleaned("uper")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["<think>" * 50_000, "</think>" * 50_000, "```\n" * 50_000, "`" * 100_000])
def test_hostile_answers_take_no_time(text):
    # Each is quadratic or worse for patterns that look ahead; the test would not end.
    assert len(apply_transform(text, {"strip": ["thinking", "fences"], "allow_empty": True})) <= len(text)
