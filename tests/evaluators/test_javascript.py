"""The `javascript` evaluator: inline code in QuickJS, and files with Node.js."""

import asyncio
import shutil

import pytest

from agentv.evaluators.code.judge_host import JudgeHost
from agentv.model.case import CaseDetails
from agentv.model.environment import Environment
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.values import freeze

VARS = CaseDetails(variables=freeze({"name": "Ada", "limit": 3}))


@pytest.fixture(scope="module")
def processes():
    """The judging processes of one run, and the event loop they belong to."""
    with asyncio.Runner() as runner:

        async def opened():
            return JudgeHost(Environment())

        host = runner.run(opened())
        yield runner, host
        runner.run(host.aclose())


@pytest.fixture
def score(scoring, processes):
    runner, host = processes

    def scored(settings, answer="", **more):
        evaluator = scoring.evaluator("javascript", **settings)
        return runner.run(evaluator.evaluate(scoring.judgement(answer, host=host, **more)))

    return scored


@pytest.fixture
def failure(score):
    def failed(*arguments, **more):
        with pytest.raises(EvaluatorFailure) as raised:
            score(*arguments, **more)
        return str(raised.value)

    return failed


@pytest.mark.parametrize(
    ("code", "expected", "verdict"),
    [
        ("output === 'Hello Ada'", 1, "pass"),
        ("output.includes(context.vars.name);", 1, "pass"),
        ("output.length < 3", 0, "fail"),
        ("const words = output.split(' '); words.length === 2 && words[0] !== 'a;b'", 1, "pass"),
        ("return output.startsWith('Hello')", 1, "pass"),
        ("if (output) { return 0.25 } return 1", 0.25, "pass"),
        ("const found = output.match(/Ada/);\nreturn found !== null;\n", 1, "pass"),
        ("0.4", 0.4, "pass"),
        ("0", 0, "fail"),
        ("output.length", 1, "pass"),
        ("-3", 0, "fail"),
        ("({pass: false, score: 0.5, reason: 'half'})", 0.5, "fail"),
        ("({pass: true, score: 7, reason: 'odd'})", 1, "pass"),
        ("Promise.resolve(output).then(text => text.endsWith('Ada'))", 1, "pass"),
        ("await Promise.resolve(true)", 1, "pass"),
        ("console.log(output), process.env.HOME === undefined", 1, "pass"),
        ("context.test.vars.limit === 3 && context.prompt === 'What is asked?'", 1, "pass"),
        ("typeof require === 'undefined' && typeof fetch === 'undefined'", 1, "pass"),
    ],
)
def test_inline_code_returns_a_verdict(score, code, expected, verdict):
    found = score({"code": code}, "Hello Ada", details=VARS)
    assert (found.score, found.verdict) == (expected, verdict)


@pytest.mark.parametrize(("value", "verdict"), [("0.4", "fail"), ("0.5", "pass"), ("12", "pass")])
def test_a_number_passes_at_its_threshold(score, value, verdict):
    assert score({"value": value, "threshold": 0.5}).verdict == verdict


def test_the_answer_is_data_if_the_target_returned_data(score):
    data = {"city": "Paris"}
    found = score({"code": "output.city === 'Paris'"}, '{"city":"Paris"}', candidate_data=freeze(data))
    assert found.score == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("while (true) {}", "took longer than 1 s"),
        ("const a = []; while (true) a.push(new Array(1e5).fill(1))", "needs more than 32 MB of memory"),
        ("'x'.repeat(2 ** 30 - 2).length", "needs more than 32 MB of memory"),
        ("(function f() { return 1 + f() })()", "calls itself too deeply"),
        ("throw new Error('no idea')", "threw Error: no idea"),
        ("throw 'plain'", "threw plain"),
        ("JSON.parse(output).answer", "threw SyntaxError"),
        ("require('fs')", "has no modules, files or network"),
        ("output ===", "is not valid: "),
        ("output.length\n", "42"),
        ("const x = 1;\nx === 1", "got undefined. Code of several lines needs a `return`"),
        ("'yes'", "got str"),
        ("null", "got null"),
        ("0 / 0", "got NaN"),
        ("new Promise(() => {})", "got a promise that is never resolved"),
        ("Promise.reject(new TypeError('later'))", "threw TypeError: later"),
    ],
)
def test_code_without_a_verdict_is_an_error_and_never_a_score(score, failure, code, message):
    settings = {"code": code, "memory_mb": 32, "timeout_seconds": 1 if code == "while (true) {}" else 30}
    if message == "42":  # one line with a line break at its end is an expression
        assert score(settings, "x").score == 1
        return
    assert message in failure(settings, "not JSON")


def test_an_exception_is_a_failed_check_only_if_asked_for(score, failure):
    found = score({"code": "JSON.parse(output)", "on_throw": "fail"}, "not JSON")
    assert found.score == 0 and "threw SyntaxError" in found.misses[0]
    for code in ("undefinedName", "output ===", "(function f() { f() })()"):
        failure({"code": code, "on_throw": "fail"}, "x")


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")

FILES = {
    "default.mjs": "export default (output, context) => ({pass: output === 'a', score: 1, reason: context.config.why})",
    "common.cjs": "console.log('noise'); module.exports = async output => output.length",
    "named.mjs": "export function check(output) { return output === 'b' }",
    "throws.mjs": "export default () => { throw new Error('broken') }",
    "broken.mjs": "export default (",
    "empty.mjs": "export const x = 1",
}


@needs_node
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("default.mjs", (1, "because")),
        ("common.cjs", (1, None)),
        ("named.mjs:check", (0, None)),
        ("file://named.mjs:check", (0, None)),
        ("named.mjs:other", "does not export other"),
        ("throws.mjs", "threw Error: broken"),
        ("broken.mjs", "cannot be loaded"),
        ("empty.mjs", "does not export a default export"),
    ],
)
def test_a_javascript_file_runs_with_node(score, failure, tmp_path, file, expected):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    settings = {"file": file, "config": {"why": "because"}, "timeout_seconds": 30}
    if isinstance(expected, str):
        assert expected in failure(settings, "a", workdir=str(tmp_path))
        return
    found = score(settings, "a", workdir=str(tmp_path))
    assert (found.score, found.reasoning) == expected


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "either 'code' or 'file'"),
        ({"code": "1", "file": "a.js"}, "either 'code' or 'file'"),
        ({"code": " "}, "'code' is blank"),
        ({"value": "file://a.js"}, "Write: file: a.js"),
        ({"file": "a.py"}, "must be a JavaScript file"),
    ],
)
def test_invalid_settings_are_reported(scoring, settings, complaint):
    with pytest.raises(Exception, match="javascript") as raised:
        scoring.evaluator("javascript", **settings)
    assert complaint in raised.value.detail
