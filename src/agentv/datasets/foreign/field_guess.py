"""Propose a field map for records: by the names of their fields, and by their values."""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.field_map import CHECKS, LISTS, METADATA, NOT, input_of, tool_calls, value_at
from agentv.datasets.foreign.foreign_format import looks_like_check
from agentv.datasets.foreign.values import is_blank, parsed, text_of, texts_of

UNSURE = 0.5
"""A guess below this confidence is not proposed."""

_SYNONYMS = {
    key: tuple(names.split())
    for key, names in {
        "id": "id qid case_id test_id eval_id example_id question_id task_id message_id sample_id name key uuid",
        "input": (
            "input question query prompt user_input instruction user_message usermessage message text user_prompt "
            "user_query body scenario payload ticket email request problem problem_statement task_description "
            "email_body inputs utterance task input_text sentence article dialogue conversation messages review goal "
            "user q src source_text source_sentence source intent research_problem pergunta pregunta"
        ),
        "expected_output": (
            "expected_output gold_sql expected_sql expect_sql expected reference reference_answer ideal ground_truth "
            "expected_answer gold gold_answer answer answers target output outputs solution label completion "
            "expected_response expected_result reference_output golden_answer correct_answer ground_truth_answer "
            "targets output_text gold_label class sentiment intent summary ideal_answer ideal_response golden_output "
            "reference_response expected_text highlights translation sql assistant response tgt target_text "
            "target_sentence canonical_solution reference_solution reference_code code resposta_esperada "
            "respuesta_esperada"
        ),
        "expected_outcome": (
            "expected_outcome criteria outcome expected_behavior success_criteria rubric check judge_criteria "
            "grading_criteria judge_rubric"
        ),
        "contains_all": (
            "must_contain expected_contains should_contain required_keywords keywords must_include expected_phrases "
            "expected_keywords contains includes must_mention answer_contains output_contains response_contains "
            "expected_substrings required_facts must_include_facts must_include_all must_contain_all contains_all "
            "required_terms required_phrases expect_contains expected_output_contains expected_response_contains expect"
        ),
        "regex": "expect_regex expected_regex expected_pattern answer_regex must_match regex",
        "contains_any": (
            "expect_any_contains expect_any must_include_any must_contain_any must_mention_any expected_any "
            "contains_any"
        ),
        "not_contains_any": (
            "must_not_contain should_not_contain forbidden forbids forbid must_avoid mustavoid excludes "
            "forbidden_phrases not_contains must_not_include must_not_mention must_not_say answer_not_contains "
            "output_not_contains forbidden_facts forbidden_keywords should_not_include expected_not_contains "
            "must_not_contain_any expected_absent forbidden_terms"
        ),
        "tools": (
            "expected_tools expect_tools required_tools tools_include expected_tool expect_tool expected_tool_calls "
            "must_call"
        ),
        "not_tools": "forbidden_tools forbid_tools tools_exclude tools_not_called must_not_call",
        "rubrics": (
            "rubrics expected_facts expected_answer_points expected_points key_facts facts key_points expectations "
            "checklist pass_criteria eval_criteria criteria success_criteria acceptance_criteria rubric "
            "expected_behavior expected_behaviors assertions gold_facts criterios_esperados"
        ),
        "context": "context contexts passages documents retrieved_contexts passage paragraph",
        "tags": "tags tag labels category categories",
    }.items()
}
"""Names of fields by the key that they mean, the likeliest first."""

_WORDS = {
    key: set(words.split())
    for key, words in {
        "input": "input question query prompt instruction message text ticket utterance request",
        "expected_output": "answer expected reference ideal gold truth solution",
    }.items()
}
"""Words in the name of a field, for fields without a name from the list."""

_SCORED = frozenset(
    ("score", "scores", "rating", "grade", "reward", "passed", "is_accepted", "is_correct", "generator")
)
"""Names of fields next to any answer that a model wrote."""

_RECORDED = _SCORED - {"generator"} | {"model", "model_name"}
"""Names of fields next to a response that a model wrote."""

_ANSWERS = frozenset(("answer", "response", "output", "completion", "assistant"))
_RUN = re.compile(r"(?:run|trace)_?id$|.*(?:latency|elapsed|(?:total|prompt|completion|output)_?tokens$|cost_usd$)")
"""Names of answers, and names of fields next to those of a run, which are not what is expected."""

_WEAK = frozenset((
    *("user", "task", "goal", "payload", "request", "source", "src", "conversation", "scenario", "email", "ticket"),
    *("code", "reference_code", "message", "research_problem"),
))  # fmt: skip
"""Names that often have something else: only texts of several words are taken."""

_UNCLEAR = {"scenario": 0.45, "goal": 0.45}
"""Names of an input that may as well describe a case, or what a simulated user wants, and their confidence."""

_CLASS_WORDS = 3
"""Words in the names of intents, on average: longer ones are what a user wants, and so the input."""

_SETUP = frozenset({"setup", "fixture", "fixtures", "state", "config", "environment", "settings", "session", "seed"})
"""Names of objects that are not compared with an answer."""

_EXPECTED = re.compile("expected|answer|reference|ideal|gold|truth|solution|target", re.IGNORECASE)
"""Words in the name of an answer, also without a field that is the input."""

_PARTS = re.compile(r"(?:no_)?tools?|(?:not_)?contains?|must|should|forbidden|m(?:in|ax)_", re.IGNORECASE)
"""How the keys of an object begin that lists checks."""

_CALL = frozenset(("name", "tool", "tool_name", "args", "arguments", "params", "parameters", "tool_input"))
_NO_TOOL = ("none", "null", "n/a", "-", "no_tool")
"""Keys of a tool that is expected, and values instead of its name."""

_PATTERN = re.compile(r"\\[bdsw.+*?$(\[]|\(\?|\.[*+]|\S\|\S")
_ESCAPE = re.compile(r"\\[bdsw](?![a-zA-Z])|\(\?[i:!=]")
"""Parts of a regular expression: one that no text has that an answer contains, and one that hardly any text has."""

_TEXT_ONLY = frozenset({"translation", "summary", "highlights"})
"""Names of an answer that is a text: an object has several."""

_JOINED = (("instruction", "input"), ("subject", "body"), ("title", "body"), ("premise", "hypothesis"))
"""Names of fields that are an input together."""

_PASSAGES = ("context", "passage", "paragraph", "story", "document", "article")
"""Names of a text that a question is about."""

_QUERY = re.compile(r"\s*(?:select|with|insert|update|delete)\b", re.IGNORECASE)
_MOST_WORDS = 3
"""Words in the name of a field that is recognized by one of them."""

_RATED = ("completion", "label")
"""A completion, and whether it is a good one."""

_OPTIONS = frozenset({"choices", "options", "endings", "option_a", "choice_a", "option1", "choice1", "history"})
"""Names of fields with the choices of a question, or with what came before it: without them, it is not the input."""

_NO_ANSWERS = re.compile(
    r"system|tools?|calls?|files?|skills?|sources?|docs?|type|status|not|no|contains?|min|max|count"
    r"|ids?|index|number|date|time|urls?|path|priority|name|author|user|metadata|list|tokens?"
)
"""Words in the names of fields that are expected, but are not an answer."""

CHECK_KEYS = frozenset(("expected_output", "expected_outcome", "rubrics", *CHECKS, *(f"{NOT}{key}" for key in CHECKS)))
"""Keys that decide how an answer is checked."""


class Guess(msgspec.Struct, frozen=True):
    """A proposed mapping of one key, with the reason and a confidence from 0 to 1."""

    key: str
    path: str
    confidence: float
    reason: str


def guess_map(records: Collection[dict[str, Any]]) -> list[Guess]:
    """Propose a mapping from the names and values of some records. A key without a clear field is left out."""
    names = dict.fromkeys(str(name) for record in records for name in record)
    nested = [
        f"{name}.{key}"
        for record in records
        for name, value in record.items()
        if isinstance(value, dict) and name not in _OPTIONS | _SETUP
        for key in value
    ]
    guesses: list[Guess] = []
    used_names = {name for name in names if name.lower() in _ANSWERS and any(map(_RUN.match, map(str.lower, names)))}

    def add(guess: Guess | None) -> None:
        if guess is not None and (guess.key != "expected_output" or not _has_patterns(records, guess.path)):
            guesses.append(guess)
            used_names.add(guess.path.split("[")[0])

    for key, synonyms in _SYNONYMS.items():
        guess = _by_name(key, synonyms, names, records, used_names)
        if guess is None and key not in ("id", "tags", "context"):
            guess = _by_name(key, synonyms, dict.fromkeys(nested), records, used_names)
        add(guess)
    for key in _WORDS:
        keys = CHECK_KEYS if key == "expected_output" else (key,)
        if all(guess.key not in keys for guess in guesses):
            add(_by_word(key, names, records, used_names))
    if not any(guess.key in CHECK_KEYS for guess in guesses):
        is_free = "query" in names and "query" not in used_names
        if is_free and all(_QUERY.match(text_of(row.get("query"))) for row in records):
            add(Guess("expected_output", "query", 0.7, "the name 'query', and its values are queries"))
        # A label is the answer of a classifier, unless something else is checked.
        guesses = [
            Guess("expected_output", guess.path, 0.6, f"the name '{guess.path}', and no other answer")
            if guess.key == "tags" and guess.path.lower() == "labels"
            else guess
            for guess in guesses
        ]
    parts = tuple(guess.path for guess in guesses if "." in guess.path)  # an object of checks is not an answer
    guesses = [guess for guess in guesses if not any(path.startswith(f"{guess.path}.") for path in parts)]
    guesses = _with_joined(guesses, names, records, used_names)
    filled = {name for record in records for name, value in record.items() if not is_blank(value)}
    if not _OPTIONS.isdisjoint(re.sub(r"^(?:chat|conversation)_", "", str(name).lower()) for name in filled):
        guesses = [guess for guess in guesses if guess.key != "input"]
    if all(guess.key != "input" for guess in guesses):
        guesses = [guess for guess in guesses if guess.key != "expected_output" or _EXPECTED.search(guess.path)]
    guesses = [_without_case(guess, records) if "contains" in guess.key else guess for guess in guesses]
    if guesses and any(name not in used_names for name in names):
        guesses.append(Guess(f"{METADATA}*", "*", 1.0, "all other fields"))
    return guesses


def _without_case(guess: Guess, records: Collection[dict[str, Any]]) -> Guess:
    """Return a guess for texts of an answer: if all are in lower case, the comparison ignores it."""
    if not "".join(text_of(value_at(record, guess.path)) for record in records).islower():
        return guess
    key, reason = guess.key.replace("contains", "icontains"), f"{guess.reason}, whose texts are in lower case"
    return msgspec.structs.replace(guess, key=key, reason=reason)


def _with_joined(
    guesses: list[Guess], names: Iterable[str], records: Collection[dict[str, Any]], used_names: set[str]
) -> list[Guess]:
    """Return the guesses with an input of several fields: an instruction, or the passage that a question is about."""
    paths = {guess.key: guess.path for guess in guesses}
    plain = {name.lower(): name for name in names}
    head, dot, own = paths.get("input", "").rpartition(".")
    objects = [value for record in records if isinstance(value := value_at(record, head), dict)] if dot else []
    siblings = {str(name).lower(): f"{head}.{name}" for value in objects for name in value} if dot else plain
    pairs = [pair for pair in _JOINED if own.lower() in pair or not own]
    pair = next((pair for pair in pairs if {*pair} <= siblings.keys()), None)
    fields = [siblings[name] for name in pair] if pair else []
    passage = next((plain[name] for name in _PASSAGES if name in plain), None)
    if not fields and passage is not None and "input" in paths and paths["input"] != passage:
        fields = [passage, paths["input"]] if _is_about(records, passage, paths.get("expected_output")) else []
    if not fields:
        return guesses
    used_names.update(fields)
    joined = Guess("input", "+".join(fields), 0.9, f"the fields {' and '.join(map(repr, fields))}, joined")
    others = [guess for guess in guesses if guess.path not in fields and guess.key != "input"]
    place = next((number for number, guess in enumerate(guesses) if guess.key == "input"), 0)
    return [*others[:place], joined, *others[place:]]


def _is_about(records: Collection[dict[str, Any]], passage: str, answer: str | None) -> bool:
    """Whether a question needs a text: it is one passage, and has the answers, or they are yes or no."""
    answered = 0
    for record in records:
        text, expected = record.get(passage), value_at(record, answer) if answer else None
        words = text_of(expected).strip().lower()
        if not isinstance(text, str) or not isinstance(parsed(text), str):
            return False
        if words and words not in text.lower() and words not in ("true", "false", "yes", "no"):
            return False
        answered += bool(words)  # some questions have no answer in the text
    return answered > 0


def map_text(guesses: Iterable[Guess]) -> str:
    """Return the guesses as the value of `--map`."""
    return ",".join(f"{guess.key}={guess.path}" for guess in guesses)


def missing_keys(guesses: Collection[Guess], unchecked: Collection[str] = ()) -> list[str]:
    """Return the keys for which no field was recognized: the input, and the answer that is expected.

    If other fields look like checks, those of what an answer must not have are not enough.
    """
    checks = [guess for guess in guesses if guess.key in CHECK_KEYS and not (unchecked and guess.key.startswith(NOT))]
    is_known = any(guess.key == "input" and guess.confidence >= UNSURE for guess in guesses)
    missing = [] if is_known else ["input"]
    return missing if checks else [*missing, "expected_output"]


def unchecked_names(guesses: Collection[Guess], records: Collection[dict[str, Any]]) -> list[str]:
    """Return the fields that look like a check, and have no part in the map."""
    used = {re.split(r"[.\[]", path)[0] for guess in guesses for path in guess.path.split("+")}
    paths = {guess.path for guess in guesses}
    names = dict.fromkeys(str(name) for record in records for name, value in record.items() if not is_blank(value))
    fields = [name for name in names if name not in used]
    for head in used - paths:  # the other parts of an object
        values = [value for record in records if isinstance(value := record.get(head), dict)]
        parts = dict.fromkeys(f"{head}.{key}" for value in values for key in value if not is_blank(value[key]))
        fields += [part for part in parts if not any(re.match(rf"{re.escape(part)}\b", path) for path in paths)]
    return [name for name in fields if any(map(looks_like_check, name.split(".")))]


def _by_word(key: str, names: Iterable[str], records: Collection[dict[str, Any]], used_names: set[str]) -> Guess | None:
    """Propose the only free field with a word of a key in its name."""
    words = {name: set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())) for name in names}
    if sum("expected" in own for own in words.values()) > 1:
        words = {name: own - {"expected"} for name, own in words.items()}  # parts of what is expected
    words = {name: own for name, own in words.items() if not any(map(_NO_ANSWERS.fullmatch, own))}
    matches = [name for name, own in words.items() if name not in used_names and own & _WORDS[key]]
    if len(matches) != 1 or len(words[name := matches[0]]) > _MOST_WORDS:
        return None
    values = [value for record in records if not is_blank(value := record.get(name))]
    is_answer = key == "input" or not any(isinstance(parsed(value), list | dict) for value in values)
    is_suitable = values and is_answer and _suits(key, values)
    return Guess(key, name, 0.6, f"a word in the name '{name}'") if is_suitable else None


def _by_name(
    key: str, synonyms: tuple[str, ...], names: Iterable[str], records: Collection[dict[str, Any]], used_names: set[str]
) -> Guess | None:
    free = [name for name in names if name not in used_names]
    lower_names = {str(name).lower() for record in records for name in (*record, *free)}
    own_names = {name: name.rpartition(".")[2].strip() for name in reversed(free)}
    plain = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own).lower(): name for name, own in own_names.items()}
    plain |= {re.sub(r"[\s-]+", "_", own).lower(): name for name, own in own_names.items()}
    for position, synonym in enumerate(synonyms):
        if synonym not in plain:
            continue
        name = plain[synonym]
        values = [value for record in records if not is_blank(value := value_at(record, name))]
        is_recorded = synonym in ("output", "completion") and not _SCORED.isdisjoint(lower_names)
        is_recorded |= synonym == "response" and not _RECORDED.isdisjoint(lower_names)
        is_recorded |= synonym in _RATED and {*_RATED} <= plain.keys()
        if not values or is_recorded or not _suits(key, values):
            continue
        if synonym in _WEAK and 2 * sum(" " in text_of(value).strip() for value in values) < len(values):
            continue
        words = sum(len(text_of(value).split()) for value in values) if synonym == "intent" else 0
        if words and ("." in name or (key == "input") == (words <= _CLASS_WORDS * len(values))):
            continue
        is_part = "." in name and len(values) < len(records)
        if key == "expected_output" and (is_part or any(_lists_checks(value, name == key) for value in values)):
            continue
        if synonym in ("expect", "assertions") and not all(map(_is_text_list, map(parsed, values))):
            continue
        if synonym in _TEXT_ONLY and not all(isinstance(value, str) for value in values):
            continue
        # The parts of an answer in SQuAD, TriviaQA and veRL.
        for part, kind in (("text", list), ("value", str), ("target", str)) if key == "expected_output" else ():
            if all(isinstance(value_at(value, part), kind) for value in map(parsed, values)):
                name, values = f"{name}.{part}", [value_at(record, f"{name}.{part}") for record in records]
        is_list = key == "expected_output" and all(isinstance(parsed(value), list) for value in values)
        confidence = (0.98 if position == 0 else 0.9 if position < 15 else 0.7) * len(values) / len(records)
        confidence = _UNCLEAR.get(synonym, confidence) if key in ("id", "input") else max(confidence, 0.5)
        return Guess(key, f"{name}[0]" if is_list else name, round(confidence, 2), f"the name '{name}'")
    return None


def _lists_checks(value: Any, has_our_name: bool) -> bool:
    """Whether a value is an object of checks, such as a tool, or of objects with another name than ours."""
    if not isinstance(value, dict):
        return False
    is_nested = not has_our_name and all(isinstance(item, dict) for item in value.values())
    return is_nested or any(_PARTS.match(str(name)) for name in value)


def _has_patterns(records: Collection[dict[str, Any]], path: str) -> bool:
    """Whether most values of a field are regular expressions."""
    return 2 * sum(bool(_ESCAPE.search(text_of(value_at(record, path)))) for record in records) > len(records)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_calls(value: Any, *, allows_arguments: bool) -> bool:
    """Whether a value has names of tools, or objects that have only a name and arguments."""
    if not isinstance(value, list | str):
        return False
    with suppress(ValueError):
        calls = tool_calls(value)
        is_whole = all(item.keys() <= _CALL for item in value if isinstance(item, dict))
        is_plain = allows_arguments or not any(call["input"] for call in calls)
        is_named = not any(" " in call["tool"] or call["tool"].lower() in _NO_TOOL for call in calls)
        return is_whole and is_plain and is_named
    return False


def _suits(key: str, values: list[Any]) -> bool:
    """Whether the values can be those of a key: ids are unique, tags short, and an outcome is a sentence."""
    texts = [text_of(value) for value in values]
    if key == "id":
        return len(set(texts)) == len(texts) and max(map(len, texts)) <= 200
    if key.endswith("tools"):
        return all(_are_calls(parsed(value), allows_arguments=key == "tools") for value in values)
    if key in LISTS and any(isinstance(parsed(value), dict) for value in values):
        return False
    items = [item for value in values if isinstance(value, list) for item in value] if "contains" in key else []
    if any(isinstance(item, dict) or _PATTERN.search("\0".join(texts_of(item))) for item in items):
        return False
    if key == "regex":
        with suppress(re.error):
            return all(isinstance(value, str) and bool(re.compile(value)) for value in values)
        return False
    if key == "input":
        with suppress(ValueError):
            are_lists = any(_is_text_list(value) and len(value) > 1 for value in values)
            return not are_lists and all(isinstance(input_of(value), str | list) for value in values)
        return False  # objects, or a list of them that are not messages
    if key == "expected_outcome":  # a sentence; one word is the name of a check or of a class
        return any(" " in text for text in texts) and not any(isinstance(parsed(value), list) for value in values)
    return key != "tags" or max(map(len, texts)) <= 100
