"""The registry tables: every row has a class, every alias has a row."""

import msgspec
import pytest

from agentv.evaluators.base import RESERVED, Evaluator
from agentv.registry import EVALUATORS, TARGETS
from agentv.targets.target import Target

ROWS = [(EVALUATORS, name, Evaluator) for name in EVALUATORS.names()] + [
    (TARGETS, name, Target) for name in TARGETS.names()
]
ALIASES = [(EVALUATORS, alias) for alias in EVALUATORS.aliases()] + [(TARGETS, alias) for alias in TARGETS.aliases()]


@pytest.mark.parametrize(("registry", "name", "base"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_row_has_a_documented_class(registry, name, base):
    kind = registry.find(name)
    assert issubclass(kind, base)
    assert kind.__doc__
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize(("registry", "name", "base"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_aliases_name_fields_and_no_field_is_unsupported(registry, name, base):
    kind = registry.find(name)
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert set(kind.aliases.values()) <= fields
    assert not fields & set(kind.aliases)
    if base is Evaluator:
        assert not (fields | set(kind.aliases)) & set(RESERVED)


@pytest.mark.parametrize(("registry", "alias"), ALIASES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_alias_has_a_row(registry, alias):
    assert registry.canonical(alias) in registry.names()


@pytest.mark.parametrize(
    ("registry", "written", "kind"),
    [
        (EVALUATORS, "llm_judge", "llm_judge"),
        (EVALUATORS, "llm-judge", "llm_judge"),
        (EVALUATORS, "code-grader", "code_judge"),
        (EVALUATORS, "llm-rubric", "rubric"),
        (EVALUATORS, "contains-any", "contains_any"),
        (EVALUATORS, "icontains-any", "icontains_any"),
        (EVALUATORS, "is-json", "is_json"),
        (EVALUATORS, "starts-with", "starts_with"),
        (EVALUATORS, "token-usage", "token_usage"),
        (EVALUATORS, "tool-trajectory", "tool_trajectory"),
        (EVALUATORS, "similar", "similarity"),
        (EVALUATORS, "context-recall", "context_recall"),
        (EVALUATORS, "context-faithfulness", "faithfulness"),
        (EVALUATORS, "model-graded-factuality", "factuality"),
        (EVALUATORS, "checks.py:Polite", "checks.py:Polite"),
        (TARGETS, "claude_code", "claude-code"),
        (TARGETS, "copilot", "copilot-cli"),
        (TARGETS, "google", "gemini"),
        (TARGETS, "azure_openai", "azure"),
    ],
)
def test_other_spellings_mean_the_same_kind(registry, written, kind):
    assert registry.canonical(written) == kind


@pytest.mark.parametrize("registry", [EVALUATORS, TARGETS])
def test_an_unknown_kind_is_not_found(registry):
    assert registry.canonical("nothing_like_it") is None
    with pytest.raises(KeyError):
        registry.find("nothing_like_it")


@pytest.mark.parametrize(
    ("registry", "written", "suggestion"),
    [
        (EVALUATORS, "llm_jugde", "Did you mean 'llm_judge'?"),
        (EVALUATORS, "contain", "Did you mean 'contains'?"),
        (TARGETS, "antropic", "Did you mean 'anthropic'?"),
    ],
)
def test_a_mistyped_kind_gets_a_suggestion(registry, written, suggestion):
    assert registry.suggestion(written) == suggestion


@pytest.mark.parametrize("registry", [EVALUATORS, TARGETS])
def test_an_unknown_kind_gets_the_list_of_kinds(registry):
    assert registry.suggestion("xyzzy").endswith(", ".join(registry.names()))


@pytest.mark.parametrize("type_", EVALUATORS.elsewhere)
def test_a_type_of_another_tool_gets_its_replacement(type_):
    assert EVALUATORS.canonical(type_) is None
    for written in (type_, type_.replace("-", "_")):
        suggestion = EVALUATORS.suggestion(written)
        assert any(f"`{name}" in suggestion for name in (*EVALUATORS.names(), "agentv compare"))
