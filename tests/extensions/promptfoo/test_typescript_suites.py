"""Suites of AgentV (TypeScript) that are TypeScript files, run under trust."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")

REGISTER = 'import { register } from "node:module";\nregister("./loader.js", import.meta.url);'
LOADER = """
export async function load(url, context, next) {
  if (!url.endsWith("ts")) return next(url, context);
  return { format: "module", shortCircuit: true, source: await readFile(new URL(url), "utf8") };
}
"""
"""Loads TypeScript without types, like the package tsx, which the tests do not need."""

TARGETS = {"targets": [{"name": name, "provider": "mock", "response": "Oslo"} for name in ("default", "mini")]}
CHECK = "[{ type: 'contains', value: 'Oslo', minScore: 1, required: true }]"
TEST = f"{{ id: 'one', input: 'Capital?', expectedOutput: 'Oslo', assertions: {CHECK} }}"
LOWERED = """
const suite = { tests: [{ id: 'not-this' }] };
const lower = () => ({ providers: ['mini'], prompts: ['{{ input }}'], tests: [
  { id: 'one', vars: { input: 'x' }, assert: [{ type: 'contains', value: 'Oslo' }] }] });
export default Object.defineProperty(suite, Symbol.for('@agentv/sdk/to-eval-yaml-object'), { value: lower });
"""


@pytest.fixture
def project(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("PATH", str(Path(shutil.which("node")).parent) + ":/usr/bin:/bin")
    folder.write(".agentv/targets.yaml", TARGETS)
    folder.write("node_modules/tsx/package.json", {"name": "tsx", "type": "module", "exports": "./index.js"})
    folder.write(
        "node_modules/tsx/index.js",
        'import { register } from "node:module";\nregister("./loader.js", import.meta.url);',
    )
    folder.write("node_modules/tsx/loader.js", 'import { readFile } from "node:fs/promises";' + LOADER)
    return folder


@pytest.mark.parametrize(
    ("name", "code", "target"),
    [
        ("a.eval.ts", f"export default {{ experiment: {{ targets: ['mini'] }}, tests: [{TEST}] }};", "mini"),
        ("a.eval.ts", f"export const evalConfig = {{ tests: [{TEST}] }};", "default"),
        ("a.eval.mts", LOWERED, "mini"),
        (
            "a.eval.ts",
            f"export default {{ target: {{ name: 'own', provider: 'mock', response: 'Oslo' }}, tests: [{TEST}] }};",
            "own",
        ),
    ],
)
def test_the_exported_suite_is_run(project, command, name, code, target):
    project.write(f"evals/{name}", code)
    ended = command("eval", "evals", "--out", "out", "--min-score", "1")
    (line,) = Path("out/results.jsonl").read_text("utf-8").splitlines()
    record = json.loads(line)
    assert (ended.code, record["eval_id"], record["target"]) == (0, "one", target), ended.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("export default { task: async () => 'x', tests: [] };", "'task' of 'a.eval.ts' is a function"),
        ("export default { tests: [{ assert: [() => 1] }] };", "'tests[0].assert[0]' of 'a.eval.ts' is a function"),
        ("export default { specFile: './b.yaml' };", "Pass that file: ./b.yaml"),
        ("export default { cases: [] };", "must export a suite with `tests`"),
        ("throw new TypeError('boom');", "TypeError: boom"),
        ("import '@agentv/sdk'; export default {};", "Install the project's packages: npm install"),
    ],
)
def test_what_is_not_a_suite_is_an_error_with_its_reason(project, command, code, message):
    project.write("a.eval.ts", code)
    ended = command("eval", "a.eval.ts")
    assert ended.code == 2 and message in ended.stderr


def test_checking_calls_no_suite_and_names_what_a_run_would_call(project, command):
    project.write("a.eval.ts", "import { writeFileSync } from 'fs'; writeFileSync('called', ''); export default {};")
    ended = command("validate", "a.eval.ts")
    assert ended.code == 0 and "the tests that 'a.eval.ts' exports" in ended.stdout and "node " in ended.stderr
    assert not Path("called").exists()


def test_a_suite_of_a_stranger_needs_trust(folder, command, monkeypatch):
    folder.write("theirs/a.eval.ts", LOWERED)
    path = str(folder.path / "theirs/a.eval.ts")
    (folder.path / "mine/.agentv").mkdir(parents=True)
    monkeypatch.chdir(folder.path / "mine")
    ended = command("eval", path)
    assert ended.code == 2 and "is not trusted" in ended.stderr and "a.eval.ts" in ended.stderr
