"""Providers of promptfoo that are JavaScript or TypeScript files."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")

CONFIG = """
prompts: ["Say {{word}}"]
providers: [{id: "file://shop.FORM", label: shop, config: {mark: "!"}}]
tests:
  - {vars: {word: hello}, assert: [{type: equals, value: "From file://shop.FORM: Say hello!"}]}
  - {vars: {word: fail}, assert: [{type: contains, value: x}]}
  - {vars: {word: data}, assert: [{type: javascript, value: "output.rows.length === 2"}]}
"""
METHOD = """
  constructor(options) { this.options = options; this.calls = 0; }
  id() { return "shop"; }
  async callApi(prompt, context) {
    this.calls += 1;
    if (context.vars.word === "fail") return { error: "no stock" };
    if (context.vars.word === "data") return { output: { rows: [1, 2] } };
    const tokenUsage = { prompt: 3, completion: 2, total: 5 };
    return { output: `From ${this.options.id}: ${prompt}${this.options.config.mark}`, tokenUsage, cost: 0.25 };
  }
"""
FORMS = {
    "mjs": f"export default class Shop {{{METHOD}}}",
    "cjs": f"module.exports = class Shop {{{METHOD}}};",
    "js": f"class Shop {{{METHOD}}}\nmodule.exports = Shop;",
}


def run(command, folder, config):
    path = folder.write("promptfooconfig.yaml", config)
    command("eval", path, "--out", "run", "--workers", "1")
    lines = Path("run/results.jsonl").read_text("utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda record: record["eval_id"])


@pytest.mark.parametrize("form", FORMS)
def test_a_class_answers_with_text_data_or_an_error(command, folder, monkeypatch, form):
    monkeypatch.chdir(folder.path)
    folder.write(f"shop.{form}", FORMS[form])
    records = run(command, folder, CONFIG.replace("FORM", form))
    assert [record["status"] for record in records].count("ok") == 2
    assert sum(record["score"] or 0 for record in records) == 2
    (failed,) = (record for record in records if record["status"] == "error")
    assert "no stock" in failed["error"]["message"]
    (paid,) = (record for record in records if record.get("execution_metrics", {}).get("cost_usd"))
    assert paid["execution_metrics"]["token_usage"] == {"input": 3, "output": 2}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("module.exports = { answer: 1 };", "its default export is not a class"),
        ("module.exports = class {};", "its class has no method callApi"),
        ("module.exports = class { callApi() { throw new TypeError('boom'); } };", "TypeError: boom"),
        ("module.exports = class { async callApi() {} };", "it returned undefined"),
        ("module.exports = class { async callApi() { process.exit(3); } };", "Its process ended without a result"),
    ],
)
def test_a_provider_that_fails_is_an_error_with_its_reason(command, folder, monkeypatch, code, message):
    monkeypatch.chdir(folder.path)
    folder.write("shop.cjs", code)
    records = run(command, folder, CONFIG.replace("FORM", "cjs"))
    assert all(record["status"] == "error" and message in record["error"]["message"] for record in records)


def test_calls_are_answered_at_the_same_time(command, folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(
        "meet.cjs",
        "const waiting = [];\nmodule.exports = class { callApi() { return new Promise((answer) => {"
        "waiting.push(answer); if (waiting.length === 2) waiting.forEach((one) => one({ output: 'met' })); }); } };",
    )
    path = folder.write(
        "promptfooconfig.yaml",
        "prompts: ['{{n}}']\nproviders: [file://meet.cjs]\n"
        "tests: [{vars: {n: 1}, assert: [{type: equals, value: met}]}, {vars: {n: 2}}]\n",
    )
    assert command("eval", path, "--workers", "2", "--timeout", "30").code == 0


def test_typescript_needs_a_program_that_runs_it(command, folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    programs = folder.path / "programs"
    programs.mkdir()
    (programs / "node").write_text("#!/bin/sh\necho v20.1.0\n")
    (programs / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    folder.write("shop.ts", "export default class {}")
    path = folder.write("promptfooconfig.yaml", CONFIG.replace("FORM", "ts"))
    ended = command("eval", path)
    assert ended.code == 2 and "Node.js 22.6" in ended.stderr and "v20.1.0" in ended.stderr


def test_a_provider_of_a_stranger_needs_trust(command, folder, monkeypatch):
    (folder.path / "mine" / ".agentv").mkdir(parents=True)
    folder.write("theirs/shop.cjs", FORMS["cjs"])
    path = str(folder.path / folder.write("theirs/promptfooconfig.yaml", CONFIG.replace("FORM", "cjs")))
    monkeypatch.chdir(folder.path / "mine")
    ended = command("eval", path)
    assert ended.code == 2 and "is not trusted" in ended.stderr and "shop.cjs" in ended.stderr


def test_a_configuration_without_prompts_sends_the_variable_prompt(command, folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    tests = "tests: [{vars: {name: Ada, prompt: 'Hi {{name}}'}, assert: [{type: equals, value: Hi Ada}]}]\n"
    path = folder.write("promptfooconfig.yaml", f"providers: [echo]\n{tests}")
    assert command("eval", path).code == 0


IDS = {
    "{{ env.MODEL }}": "a",
    "{{ env.MODEL or 'echo' }}": "a",
    "{{ env.UNSET | default('echo') }}": "echo",
    "{{ env['MODEL'] }}": "a",
}


@pytest.mark.parametrize(("id", "name"), IDS.items())
def test_the_id_of_a_provider_may_come_from_the_environment(command, folder, monkeypatch, id, name):
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("MODEL", "exec:echo a")
    path = folder.write("promptfooconfig.yaml", f'prompts: [x]\nproviders: [{{id: "{id}", label: n}}]\n')
    command("eval", path, "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    assert record["candidate_answer"].split()[0] == ("x" if name == "echo" else "a")


EMBEDDER = """
module.exports = class Vectors {
  constructor(options) { this.options = options; }
  id() { return "vectors"; }
  async callEmbeddingApi(text) {
    return text === "fail" ? { error: "no vector" } : { embedding: [text.length, this.options.config.other] };
  }
};
"""


def test_texts_are_compared_with_the_embeddings_of_a_class(command, folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write("vectors.cjs", EMBEDDER)
    grader = {"id": "file://vectors.cjs", "config": {"other": 4}}
    check = {"type": "similar", "value": "abc", "threshold": 0.5}
    tests = [{"vars": {"x": word}, "options": {"provider": grader}, "assert": [check]} for word in ("abcd", "fail")]
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}
    passed, failed = sorted(run(command, folder, json.dumps(data)), key=lambda record: record["status"], reverse=True)
    assert passed["score"] == pytest.approx((3 * 4 + 4 * 4) / (5 * 32**0.5))
    assert "no vector" in failed["error"]["message"]


def test_the_label_of_a_class_with_embeddings_is_a_grader(folder):
    folder.write("vectors.cjs", EMBEDDER)
    check = {"type": "similar", "value": "abc", "provider": "lengths"}
    providers = ["echo", {"id": "file://vectors.cjs", "label": "lengths"}]
    data = {"prompts": ["x"], "providers": providers, "tests": [{"assert": [check]}]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert case.evaluators[0].target == "lengths"
