"""Templates of users: they cannot end the process, fill the memory or run for long."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.evaluators.judges import judge_prompt
from agentv.support import templates
from agentv.support.processes import forked_call
from agentv.support.templates import TemplateProblem, names_in, render

DOUBLED = "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"
HOSTILE = {
    "doubling in a loop": DOUBLED,
    "doubling without a loop": "{% set a = 'xx' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "replacing by itself": "{% set a = x|replace('v', x) %}" * 1 + "{% set a = a|replace('v', a) %}" * 8 + "{{ a }}",
    "a wide indent": "{{ 'a\nb'|indent(2000000000) }}",
    "a wide number": "{{ '%0999999999d'|format(1) }}",
    "a wide JSON indent": "{{ range(100000)|list|tojson(indent=1000000000) }}",
    "a repeated text": "{{ 'x' * 2000000000 }}",
    "many batches": "{{ [1]|slice(1000000000, 0)|list|length }}",
    "nested loops": "{% for i in range(900) %}{% for j in range(900) %}" + "y" * 9000 + "{% endfor %}{% endfor %}",
    "a loop over values": "{% for i in many %}" + "y" * 9000 + "{% endfor %}",
    "many copies of a value": "{{ long }}" * 1000,
    "many negations": "{{ " + "not " * 30_000 + "true }}",
    "many signs": "{{ " + "-" * 60_000 + "1 }}",
    "a long sum": "{{ " + "1+" * 60_000 + "1 }}",
    "many attributes": "{{ x" + ".a" * 200_000 + " }}",
    "many branches": "{% if 0 %}" + "{% elif 0 %}" * 50_000 + "{% endif %}",
    "nested lists": "{{ " + "[" * 20_000 + "]" * 20_000 + " }}",
}
VALUES = {"x": "v" * 99, "many": ["a"] * 20_000, "long": "z" * 1_000_000}


@pytest.fixture
def tight(monkeypatch):
    monkeypatch.setattr(forked_call, "MAX_EXTRA_BYTES", 64 * 2**20)
    monkeypatch.setattr(forked_call, "MAX_SECONDS", 2)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_an_error(tight, name):
    with pytest.raises(TemplateProblem):
        render(HOSTILE[name], VALUES)


@pytest.mark.parametrize("name", ["many negations", "many signs", "many attributes", "many branches"])
def test_the_names_of_a_hostile_template_are_an_error(tight, monkeypatch, name):
    monkeypatch.setattr(forked_call, "MAX_SECONDS", 60)
    with pytest.raises(TemplateProblem, match=r"nested too deeply, or needs more than 64 MiB of memory"):
        names_in(HOSTILE[name])


RENDERED = {
    "{{ a }} {{ b.c }} {{ l[0] }}": "1 x 2",
    "{% for each in l %}{{ loop.index }}:{{ each }} {% endfor %}": "1:2 2:3 ",
    "{% if a == 1 and not none %}yes{% elif b %}no{% else %}-{% endif %}": "yes",
    "{{ l | join(', ') }} {{ b.c | upper }} {{ none | default('-') }}": "2, 3 X ",
    "{% set s = a * 2 ~ 'm' %}{{ s }}": "2m",
    "{% macro twice(v) %}{{ v }}{{ v }}{% endmacro %}{{ twice('é') }}": "éé",
    "{% raw %}{{ a }}{% endraw %} {# note #}{{ (a + 1) * 3 }}": "{{ a }} 6",
    "{{ text }} {{ values }} {{ name }}": "t s n",
    "{{ (text) }} {{ (values) }} {{ (name) }}": "t s n",
    "no tags } {": "no tags } {",
}


@pytest.mark.parametrize("text", RENDERED)
def test_templates_render_the_same_in_both_processes(text, monkeypatch):
    values = {"a": 1, "b": {"c": "x"}, "l": [2, 3], "none": None, "text": "t", "values": "s", "name": "n"}
    assert render(text, values) == RENDERED[text]
    monkeypatch.setattr(templates, "_is_bounded", lambda text, values: False)
    assert render(text, values) == RENDERED[text]


@pytest.mark.parametrize(
    "text", ["{{ missing }}", "{{ (missing) }}", "{{ a.b.c * 2 }}", "{% if %}", "{{ a | nothing }}"]
)
def test_errors_are_the_same_in_both_processes(text, monkeypatch):
    with pytest.raises(TemplateProblem) as here:
        render(text, {"a": 1})
    monkeypatch.setattr(templates, "_is_bounded", lambda text, values: False)
    with pytest.raises(TemplateProblem) as there:
        render(text, {"a": 1})
    assert str(here.value) == str(there.value)


def test_built_in_prompts_are_rendered_without_another_process():
    for path in sorted(Path(judge_prompt.PROMPTS).glob("*.md")):
        assert templates._shape(path.read_text()).is_plain, path.name


pieces = st.sampled_from(
    ["{{", "}}", "{%", "%}", "{#", " x ", "if", "for a in x", "endif", "endfor", "*", "~", '"', "'", "|", "("]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_plain_templates_have_no_operators_that_grow_texts(text):
    if templates._shape(text).is_plain and "{{" in text:
        inside = text.split("{{", 1)[1].split("}}", 1)[0]
        outside_strings = "".join(inside.split('"')[::2])
        assert "*" not in "".join(outside_strings.split("'")[::2])
