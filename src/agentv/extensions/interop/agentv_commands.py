"""The command lines of AgentV (TypeScript), AgentMark and promptfoo: the same option here, or what to use instead."""

import re
from collections.abc import Iterator, Mapping

from agentv.errors import UsageError

EQUIVALENTS: Mapping[str, Mapping[str, str]] = {
    "eval": {
        "--test-id --eval-id ID": "--filter ID",
        "--output -o DIR": "--out DIR",
        "--provider NAME": "--target NAME",
        "--providers FILE": "--targets FILE",
        "--grader-target --grader-provider NAME": "--judge NAME",
        "--agent-timeout SECONDS": "--timeout SECONDS",
        "--max-concurrency N": "--workers N",
        "--record-replay FILE": "--record FILE",
        "--otel-file FILE": "--otel FILE",
        "--no-cache": "",
        "--no-results-push": "",
    },
    "compare": {"-t X": "--threshold X"},
    "convert": {"--out -o FILE": "FILE"},
    "init": {"--path DIR": "DIR"},
}
"""Options with an equivalent, by command. A word in capitals is the value. An empty text is the default here."""

AGENTMARK: Mapping[str, Mapping[str, str]] = {"eval": {"--baseline-commit COMMIT": "--baseline @COMMIT"}}
"""The same for options of AgentMark."""

PROMPTFOO: Mapping[str, Mapping[str, str]] = {
    "eval": {
        "-c --config FILE": "FILE",
        "-j N": "--workers N",
        "--repeat N": "--trials N",
        "-w": "--watch",
        "--table --no-table --no-progress-bar --no-share --no-write": "",
    },
    "view": {"-p N": "--port N", "-n --no": "--no-open", "-y --yes": ""},
    "init": {"--no-interactive": ""},
}
"""The same for options of promptfoo."""

_OTEL = "Pass the address of a collector, or a file: --otel http://localhost:4318"
_PUSH = "Runs are folders: commit them, or upload them as an artifact of the CI job"
_KEEP = "Set `workspace: {keep: true}` in the case or suite"
_WORKSPACE = "Set `workspace` in the case or suite: `template`, `isolation`, `keep`"
_REMOVED = "AgentV removed it too; pass --out DIR"
_DELAY = "--dry-run calls nothing here. For answers without a model, use a target with `provider: mock`"

SUCCESSORS: Mapping[str, Mapping[str, str]] = {
    "eval": {
        "--rerun-failed": "Pass --only failed --from RUN to repeat failures, or --retry-errors RUN to repeat errors",
        "--cache-path": "The cache is in .agentv/cache; pass --cache",
        "--model": "Set `model` of the judge's target in .agentv/targets.yaml",
        "--output-messages": "Pass --include-trace to store all messages",
        "--keep-workspaces --retain-on-success --retain-on-failure": _KEEP,
        "--workspace-mode --workspace-path --workspace-clean": _WORKSPACE,
        "--otel-backend --export-otel --otel-group-turns": _OTEL,
        "--otel-capture-content": "Set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
        "--results-repo --results-branch --results-remote --results-push --results-require-push": _PUSH,
        "--output-format --artifacts": _REMOVED,
        "--dry-run-delay --dry-run-delay-min --dry-run-delay-max": _DELAY,
        "--record-replay-variant": "A recording here has the whole request of each answer; pass --record FILE",
        "vitest": "Let a `code_judge` run the tests: its exit code decides. For example: [npx, vitest, run, FILE]",
        "assert": "Score stored answers with: agentv rescore RUN --evaluator '{type: code_judge, …}'",
        "aggregate": "Summaries are always up to date here; print one with: agentv report RUN --json",
        "bundle": "Copy the run folder: it has its cases, and can be resumed, rescored and compared from there",
    },
    "compare": {
        "--candidate -c -b": "Name targets of a run as RUN:TARGET: agentv compare RUN:old RUN:new",
        "--targets": "Name targets of a run as RUN:TARGET: agentv compare RUN:old RUN:new",
        "--format -f": "Pass --json or --markdown",
    },
    "validate": {"--max-warnings": "Pass --strict to fail on any warning"},
}
"""Options and subcommands without an equivalent, and what to do instead, by command."""

_TESTS = "; promptfoo counts tests, and here each combination of the lists in its variables is a case"
_IN_FILE = "Write {} into the configuration"
_BY_NAME = "Pass --target NAME with the label or id of a provider; repeat it for several"
_MERGED = "Write one configuration, or pass the files without -c: each is run with its own prompts and providers"
PROMPTFOO_SUCCESSORS: Mapping[str, Mapping[str, str]] = {
    "eval": {
        "-n --filter-first-n": f"Pass --limit N{_TESTS}",
        "--filter-range": f"Pass --rows FIRST-LAST{_TESTS}",
        "--filter-sample --filter-sample-seed": f"Pass --sample N --seed N{_TESTS}",
        "--filter-pattern": "Pass --filter '*refund*': the description of a test is the id of its case",
        "--filter-metadata": "Select cases by id with --filter, or by tag with --tag",
        "--filter-prompts": "Name the prompts in `prompts` of the tests or providers",
        "--filter-providers --filter-targets": _BY_NAME,
        "--filter-failing --filter-failing-only": "Pass --only failed --from RUN",
        "--filter-errors-only": "Pass --retry-errors RUN, or --only errors --from RUN",
        "--grader": "Pass --judge NAME with a target of .agentv/targets.yaml, or set `defaultTest.options.provider`",
        "-p --prompts": _IN_FILE.format("`prompts`"),
        "-r": f"{_BY_NAME}. Add others to `providers` of the configuration",
        "--tests": _IN_FILE.format("`tests: FILE`"),
        "--vars": _IN_FILE.format("`tests: FILE`"),
        "-a --assertions": _IN_FILE.format("`defaultTest.assert`"),
        "--model-outputs": "Use a target of provider `replay`, or `providerOutput` in the tests",
        "--var": _IN_FILE.format("`defaultTest.vars`"),
        "--prompt-prefix --prompt-suffix": _IN_FILE.format("`defaultTest.options.prefix` or `suffix`"),
        "--delay": "Calls are paced by rate limits; pass --workers 1 for one call at a time",
        "--env-file --env-path": "Write the variables into .env in the folder of the configuration or above",
        "-x --extension": "Hooks of promptfoo do not run here",
        "--share": "Write a page that works offline: agentv report RUN report.html",
    },
    "init": {"--example": "Download the example with promptfoo, and run it: agentv eval promptfooconfig.yaml"},
}
"""The same for options of promptfoo."""

COMMANDS: Mapping[str, str] = {
    "dashboard serve studio": "agentv view",
    "results": "agentv report RUN, agentv runs or agentv view",
    "inspect trace": "agentv view, agentv report RUN, or agentv rescore RUN --evaluator … to score again",
    "import": "Datasets of other tools are read as they are; agentv eval --transcript FILE scores recorded sessions",
    "trend": "agentv runs trend",
    "prepare": "agentv eval PATHS --dry-run --dump-prompts DIR",
    "grade pipeline": "agentv eval PATHS with --replay FILE or --transcript FILE, to score answers that exist already",
    "create": "agentv init",
    "doctor": "agentv targets check",
    "transpile": "agentv convert FILE evals.json --to agent-skills",
    "trim": "Not needed: agentv compare reads whole run folders",
    "self": "pip install --upgrade agentv",
    "workspace": "Not needed: workspaces are copies that are removed after the job",
    "skills": "The skill for coding agents is in the folder skills/agentv of the repository",
}
"""Commands of AgentV (TypeScript) that have another name here."""

PROMPTFOO_COMMANDS: Mapping[str, str] = {
    "list": "agentv runs",
    "show": "agentv view RUN",
    "share export": "agentv report RUN report.html writes a page that works offline, and results.csv a table",
    "delete": "agentv runs prune",
    "retry": "agentv eval --retry-errors RUN",
    "cache": "The cache is in .agentv/cache, and is used only with --cache; delete the folder to clear it",
    "redteam": "Generate the tests with promptfoo, and name the file that it writes under `tests`",
    "optimize": "agentv select",
}
"""The same for commands of promptfoo."""

_SESSIONS = "agentv eval --transcript {} scores recorded sessions, agentv generate from-sessions makes cases of them"
SUBCOMMANDS: Mapping[str, Mapping[str, str]] = {
    "results": {
        "summary": "agentv report RUN",
        "compare": "agentv compare RUN RUN",
        "failures": "agentv report RUN --markdown lists them, and agentv eval --only failed --from RUN repeats them",
        "show": "agentv view RUN",
        "export": "agentv report RUN results.csv",
        "report": "agentv report RUN report.html",
        "combine": "agentv runs merge RUN… --out DIR",
        "delete": "agentv runs prune",
        "validate": "agentv runs check RUN",
    },
    "inspect": {
        "list": "agentv runs",
        "show": "agentv view RUN",
        "stats": "agentv report RUN",
        "score": "agentv rescore RUN --evaluator '{type: contains, value: …}'",
    },
    "import": {
        "claude": _SESSIONS.format("~/.claude/projects"),
        "codex": _SESSIONS.format("~/.codex/sessions"),
        "copilot": _SESSIONS.format("~/.copilot/session-state"),
        "huggingface": "hf download NAME --repo-type dataset --local-dir DIR, then agentv cases DIR: the files, also "
        "those of SWE-bench, are read as they are",
        "promptfoo": "agentv eval promptfooconfig.yaml: it is read as it is",
    },
    "runs": {"rerun": "agentv eval with the same files, or with --from RUN --only failed"},
}
"""Subcommands with a successor of their own."""


def successor(command: str, subcommand: str = "") -> str | None:
    """Return what to do instead of a command, or of its subcommand; None if it is unknown."""
    own = SUBCOMMANDS.get(command, {}).get(subcommand)
    commands = {**COMMANDS, **PROMPTFOO_COMMANDS}
    text = own or next((text for names, text in commands.items() if command in names.split()), None)
    return f"Use instead: {text}" if text and text[0].islower() else text


def translate(command: str, arguments: list[str]) -> list[str]:
    """Return the arguments with options of other tools replaced; raise UsageError for those without an equivalent."""
    equivalents = {
        name: (is_valued, here, table is not PROMPTFOO)
        for table in (EQUIVALENTS, AGENTMARK, PROMPTFOO)
        for names, here in table.get(command, {}).items()
        for is_valued in (names.split()[-1].isupper(),)
        for name in names.split()
        if name.startswith("-")
    }
    refused = {
        name: text
        for table in (SUCCESSORS, PROMPTFOO_SUCCESSORS)
        for names, text in table.get(command, {}).items()
        for name in names.split()
    }
    is_run = command == "eval" and arguments[:1] == ["run"]
    if is_run:
        arguments = arguments[1:]
    elif arguments and arguments[0] in refused and not arguments[0].startswith("-"):
        raise UsageError(f"`agentv {command} {arguments[0]}` does not exist", hint=refused[arguments[0]])
    if command == "eval" and _has_several_configurations(arguments):
        raise UsageError("promptfoo merges the files of -c into one configuration", hint=_MERGED)
    translated: list[str] = []
    values: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        name, separator, value = argument.partition("=")
        if name in refused:
            raise UsageError(f"`agentv {command}` has no option {name}", hint=refused[name])
        if name not in equivalents:
            translated.append(argument)
            translated += rest if argument == "--" else ()
            continue
        is_valued, here, is_agentv = equivalents[name]
        if is_valued and not separator:
            value = next(rest, "")
        if is_valued and not value:
            raise UsageError(f"Option {name} needs a value")
        if here:
            mark = "@" if here.endswith(" @COMMIT") else ""
            values.setdefault(here.rpartition(" ")[0] if is_valued else here, []).append(mark + value)
            is_run |= is_agentv
    if command == "eval" and is_run:  # else it may be our own option
        translated = [re.sub("^--threshold(?==|$)", "--min-score", argument) for argument in translated]
    return [*_options(values), *translated] if command != "convert" else [*translated, *_options(values)]


def _has_several_configurations(arguments: list[str]) -> bool:
    places = [at for at, argument in enumerate(arguments) if argument in ("-c", "--config")]
    files = arguments[places[0] + 1 : places[0] + 3] if places else []
    return len(places) > 1 or (len(files) > 1 and not files[1].startswith("-"))


def _options(values: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the options here. Several ids are alternatives, as in AgentV."""
    for option, texts in values.items():
        for text in [",".join(texts)] if option == "--filter" else texts:
            yield from filter(None, (option, text))
