"""Judge prompts: delimiters that no text can contain, unchanged texts, and checks of custom prompts."""

import pytest

from agentv.evaluators.judges.judge_prompt import VARIABLES, Material, _delimiters_in, built_in, prompt_references
from agentv.model.values import digest

MARKS = [
    ("<answer>{{ candidate_answer }}</answer>", {"<answer>", "</answer>"}),
    (
        "Rate this:\n<answer>\n{{ candidate_answer }}\n</answer> Be strict.",
        {"<answer>", "</answer>", "</answer> Be strict."},
    ),
    ("[[ ## answer ## ]]\n{{ candidate_answer }}\n[[ ## end ## ]]", {"[[ ## answer ## ]]", "[[ ## end ## ]]"}),
    ("```\n{{ candidate_answer }}\n```", {"```"}),
    ('"""{{ candidate_answer }}"""', {'"""'}),
    ("---\n\n{{ candidate_answer }}\n\n---", {"---"}),
    ("Answer: {{ candidate_answer }}", set()),
    ("Is {{ candidate_answer }} right?", set()),
    ("'{{ candidate_answer }}'", set()),
    ("{{ question }}{{ candidate_answer }}", set()),
    ("{% if context %}<c>{{ context }}</c>{% endif %}", {"<c>", "</c>"}),
]


def problems_of(prompt):
    return [problem for reference in prompt_references(prompt) for problem in reference.check(str, ".")]


@pytest.mark.parametrize(("template", "marks"), MARKS)
def test_delimiters_are_found_around_placeholders(template, marks):
    assert set(_delimiters_in(template)) == marks


def test_the_delimiter_code_occurs_in_no_text_even_if_guessed():
    plain = {"candidate_answer": "Paris", "question": "?"}
    assert Material(plain).code == Material(plain).code == digest([plain, None])[:12]
    assert Material({**plain, "question": "!"}).code != Material(plain).code

    class Guessed(Material, frozen=True):
        def texts(self, names):
            return (digest([plain, None])[:12],)

    assert Guessed(plain).code not in Guessed(plain).texts(plain)[0]


@pytest.mark.parametrize(
    "name",
    [
        *("llm_judge", "factuality", "faithfulness", "answer_relevance", "context_recall", "rubric", "aggregate"),
        *("context_precision", "context_relevance", "refusal", "moderation", "pairwise"),
    ],
)
@pytest.mark.parametrize("text", ["", "text", "{{ question }} {% if %}", "<<<question 0\nquestion 0>>>"])
def test_built_in_prompts_accept_any_text_and_contain_no_sample_verdict(name, text):
    values = {
        **dict.fromkeys(VARIABLES, text),
        "context": [text, text],
        "rubrics": [{"id": "a"}],
        "evaluator_results": {"a": {"score": 1}},
        **dict.fromkeys(("first_answer", "second_answer"), text),
    }
    forms = {"rubric": "checks", "pairwise": "preference"}
    prompt = built_in(name, forms.get(name, "verdict"), Material(values), categories=[])
    system, user = (str(message.content) for message in prompt.messages)
    assert Material(values).code in system and "{{" not in system
    assert user.count(text) >= 1 and not user.startswith("\n")
    assert '"score": 1' not in system and '"score": 0' not in system


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        (None, []),
        ("Good? {{ candidate_answer }}", []),
        ("Good? {{ output_messages }}", []),
        ("Good? {% for message in output_messages %}{{ message.content }}{% endfor %}", []),
        ("Good? {{ question }}", []),
        ("Good?", []),
        ("{{ output }} {{ criteria }} {{ input }} {{ expected_output }} {{ answer }}", []),
        ("{{ output_text }} {{ input_text }} {{ expected_output_text }}", []),
        ("{{ tool_calls }} {{ file_changes }} {{ metadata }} {{ metadata_json }} {{ rubrics_json }}", []),
        ("{{ candidate_answer }} {{ nme }}", ["error: The prompt uses an unknown variable 'nme'"]),
        ("{{ candidate_answer", ["error: The prompt is not a valid template"]),
        ([{"role": "user", "content": "{{ candidate_answer }}"}], []),
        ([{"role": "user", "content": "{{ x }}"}], ["error: The prompt uses an unknown variable 'x'"]),
        (["python", "prompt.py"], []),
    ],
)
def test_a_prompt_is_checked_before_it_is_used(prompt, found):
    problems = [f"{problem.severity}: {problem.message}" for problem in problems_of(prompt)]
    assert len(problems) == len(found)
    assert all(problem.startswith(start) for problem, start in zip(problems, found, strict=True))
