"""Command lines of AgentV (TypeScript) and promptfoo: translated, or refused with what to use instead."""

import pytest

from agentv.errors import UsageError
from agentv.extensions.interop.agentv_commands import (
    COMMANDS,
    PROMPTFOO_COMMANDS,
    PROMPTFOO_SUCCESSORS,
    SUCCESSORS,
    translate,
)


@pytest.mark.parametrize(
    ("command", "theirs", "ours"),
    [
        ("eval", "run a.yaml", "a.yaml"),
        ("eval", "--test-id x --test-id y* a.yaml", "--filter x,y* a.yaml"),
        ("eval", "a.yaml --test-id=x -o out", "--filter x --out out a.yaml"),
        ("eval", "a.yaml --grader-target j --no-cache", "--judge j a.yaml"),
        ("eval", "a.yaml --agent-timeout 5 --workers 2", "--timeout 5 a.yaml --workers 2"),
        ("eval", "-- --test-id x", "-- --test-id x"),
        ("eval", "run a.yaml --threshold 0.8", "a.yaml --min-score 0.8"),
        ("eval", "a.yaml --threshold=0.8 -o out", "--out out a.yaml --min-score=0.8"),
        ("eval", "a.yaml --threshold 0.8", "a.yaml --threshold 0.8"),
        ("eval", "a.yaml --unknown", "a.yaml --unknown"),
        ("convert", "a.jsonl --out b.yaml", "a.jsonl b.yaml"),
        ("init", "--path shop", "shop"),
        ("view", "--port 1", "--port 1"),
        ("eval", "-c a.yaml --no-cache -j 2 --repeat=3", "a.yaml --workers 2 --trials 3"),
        ("eval", "-c a.yaml -w --no-table --threshold 0.8", "a.yaml --watch --threshold 0.8"),
        ("view", "-p 1 -n", "--port 1 --no-open"),
        ("view", "-y", ""),
    ],
)
def test_options_are_translated(command, theirs, ours):
    assert translate(command, theirs.split()) == ours.split()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (command, name)
        for table in (SUCCESSORS, PROMPTFOO_SUCCESSORS)
        for command, rows in table.items()
        for row in rows
        for name in row.split()
    ],
)
def test_what_has_no_equivalent_is_refused_with_a_hint(command, name):
    with pytest.raises(UsageError) as error:
        translate(command, [name, "value"])
    assert name in str(error.value) and error.value.hint


@pytest.mark.parametrize("arguments", [["-c", "a.yaml", "b.yaml"], ["--config", "a.yaml", "-c", "b.yaml"]])
def test_several_configurations_of_promptfoo_are_not_run_as_one(arguments):
    with pytest.raises(UsageError, match="promptfoo merges the files of -c"):
        translate("eval", arguments)


@pytest.mark.parametrize("arguments", [["a.yaml", "--test-id"], ["--test-id=", "a.yaml"]])
def test_an_option_without_its_value_is_an_error(arguments):
    with pytest.raises(UsageError, match="Option --test-id needs a value"):
        translate("eval", arguments)


@pytest.mark.parametrize("name", [name for names in (*COMMANDS, *PROMPTFOO_COMMANDS) for name in names.split()])
def test_a_command_of_another_tool_names_its_successor(command, name):
    outcome = command(name, "--json")
    instead = outcome.stderr.partition(f"No such command '{name}'. ")[2]
    is_sentence = instead[:1].isupper() and not instead.startswith("Use instead")
    assert outcome.code == 2 and (is_sentence or instead.startswith(("Use instead: agentv ", "Use instead: pip ")))


def test_a_command_line_of_agentv_runs_as_it_is(folder, command):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "yes"}]})
    case = {"criteria": "x", "input": "y", "assertions": [{"type": "contains", "value": "yes"}]}
    folder.write("d.yaml", {"tests": [{"id": name, **case} for name in ("a", "b", "c")]})
    outcome = command("eval", "run", "d.yaml", "--test-id", "a", "--test-id", "c", "-o", "out", "--no-cache")
    assert outcome.code == 0 and "Passed 100 % of the 2 cases" in outcome.stdout
    assert "Read as: agentv eval --filter a,c --out out d.yaml" in outcome.stderr


def test_a_folder_with_the_name_run_is_evaluated(folder, command):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "yes"}]})
    folder.write("run/d.yaml", {"evaluator": "is_json", "evalcases": [{"id": "a", "criteria": "x", "input": "y"}]})
    assert "of the 1 case" in command("eval", "run").stdout


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("results", "export", "run"), "agentv report RUN results.csv"),
        (("results", "--help"), "agentv report RUN, agentv runs or agentv view"),
        (("inspect", "score", "run"), "agentv rescore RUN --evaluator"),
        (("import", "claude", "--session-id", "x"), "agentv eval --transcript ~/.claude/projects"),
        (("import", "huggingface"), "hf download NAME"),
        (("runs", "rerun", "x"), "agentv eval with the same files"),
        (("transpile", "suite.yaml"), "agentv convert FILE evals.json --to agent-skills"),
    ],
)
def test_a_subcommand_names_its_own_successor(command, arguments, instead):
    outcome = command(*arguments)
    assert outcome.code == 2 and f"Use instead: {instead}" in outcome.stderr


def test_only_commands_of_agentv_have_a_successor(command):
    assert "Use instead" not in command("claude").stderr


NAMES = ("default", "gpt")
FOUR = {
    ".agentv/targets.yaml": {"targets": [{"name": name, "provider": "mock", "response": "42"} for name in NAMES]},
    ".agentv/config.yaml": {"$schema": "agentv-config-v2"},
    "evals/math.yaml": {
        "description": "Sums",
        "execution": {"target": "default"},
        "tests": [
            {"id": f"sum-{n}", "input": "15 + 27?", "assertions": [{"type": "contains", "value": "42"}]} for n in (1, 2)
        ],
    },
}
FIVE = {
    ".agentv/config.yaml": {
        "providers": [{"id": "mock", "label": name, "config": {"response": "42"}} for name in NAMES],
        "defaults": {"provider": "default"},
    },
    "evals/math.yaml": {
        "name": "sums",
        "prompts": ["{{ sum }}?"],
        "providers": ["default"],
        "tests": [{"id": f"sum-{n}", "vars": {"sum": "15 + 27"}} for n in (1, 2)],
        "assert": [{"type": "contains", "value": "42"}],
    },
}


@pytest.mark.parametrize("project", [FOUR, FIVE], ids=["4.x", "5.x"])
@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        ("validate evals/math.yaml", "2 readable cases"),
        ("eval evals/math.yaml", "of the 2 cases"),
        ("eval --target gpt evals/math.yaml", "of the 2 cases"),
        ("eval --test-id sum-1 evals/math.yaml", "of the 1 case"),
        ("eval evals/math.yaml --output ./my-results --experiment with_skills --workers 4 --threshold 0.8", "2 cases"),
    ],
)
def test_documented_command_lines_run_in_a_project_of_agentv(folder, command, project, arguments, cases):
    for name, content in project.items():
        folder.write(name, content)
    outcome = command(*arguments.split())
    assert outcome.code == 0 and cases in outcome.stdout + outcome.stderr, outcome.stderr
