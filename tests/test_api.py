"""`agentv.evaluate`: a run from Python."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from types import MappingProxyType

import pytest

import agentv
from agentv import AgentvError, DatasetWarning, EvalCase, evaluate, evaluate_async
from agentv.model.evaluator import EvaluatorSpec
from waiting import let_others_run, wait_until, wait_until_async

CASES = [
    {"id": "one", "expected_outcome": "Says yes", "input": "yes"},
    {"id": "two", "expected_outcome": "Says yes", "input": "no"},
]
SAYS_YES = [{"type": "contains", "value": "yes"}]


def echo(prompt):
    return prompt


async def echo_async(prompt):
    await let_others_run()
    return prompt


class Agent:
    def __call__(self, messages):
        return messages[-1]["content"]


def scores(run):
    return {result.eval_id: result.score for result in run.results}


@pytest.mark.parametrize("target", [echo, echo_async, Agent(), lambda prompt: prompt, {"provider": "mock"}])
def test_a_target_is_a_function_a_dict_or_a_name(folder, target):
    run = evaluate(CASES, target, SAYS_YES)
    assert scores(run) == {"one": 1.0, "two": 0.0}
    assert run.exit_code == 0
    (summary,) = run.summary.targets.values()
    assert (summary.mean, summary.scored, summary.errors) == (0.5, 2, 0)
    assert (run.path / "results.jsonl").is_file() and run.path.is_relative_to(folder.path.resolve())
    assert run.path.name in repr(run) and "0.500" in repr(run)


def test_a_target_is_named_after_the_function(folder):
    assert {result.target for result in evaluate(CASES, echo, SAYS_YES).results} == {"echo"}
    assert {result.target for result in evaluate(CASES, {"provider": "mock", "name": "m"}, SAYS_YES).results} == {"m"}


def test_a_function_receives_arguments_by_name(folder):
    def answer(case, trial, variables, messages):
        return f"{case.id} {trial} {variables} {len(messages)}"

    run = evaluate([{**CASES[0], "id": "a"}], answer, [], trials=2)
    assert sorted(result.candidate_answer for result in run.results) == ["a 1 {} 1", "a 2 {} 1"]
    assert {result.status for result in run.results} == {"unscored"}


def test_an_exception_of_a_function_is_an_error_of_its_case(folder):
    def answer(prompt):
        if prompt == "no":
            raise KeyError("gone")
        return prompt

    by_id = {result.eval_id: result for result in evaluate(CASES, answer, SAYS_YES).results}
    assert by_id["one"].score == 1.0
    assert (by_id["two"].status, by_id["two"].score, by_id["two"].error.error_class) == ("error", None, "process")
    assert "KeyError" in by_id["two"].error.message


def test_a_dataset_is_a_path_paths_cases_or_dicts(folder):
    folder.write("d.yaml", {"evalcases": CASES})
    folder.write("e.yaml", {"evalcases": [{"id": "three", "expected_outcome": "x", "input": "yes"}]})
    assert scores(evaluate("d.yaml", echo, SAYS_YES)) == {"one": 1.0, "two": 0.0}
    assert scores(evaluate(folder.path / "d.yaml", echo, SAYS_YES)) == {"one": 1.0, "two": 0.0}
    assert len(evaluate(["d.yaml", "e.yaml"], echo, SAYS_YES).results) == 3
    assert scores(evaluate(agentv.load_cases("d.yaml"), echo, SAYS_YES)) == {"one": 1.0, "two": 0.0}
    assert scores(evaluate([EvalCase("c", "x", "yes")], echo, SAYS_YES)) == {"c": 1.0}
    assert scores(evaluate((case for case in CASES), echo, SAYS_YES)) == {"one": 1.0, "two": 0.0}


def test_a_name_selects_a_target_of_the_targets_file(folder):
    folder.write("targets.yaml", {"targets": [{"name": "mine", "provider": "mock", "response": "yes"}]})
    assert scores(evaluate(CASES, "mine", SAYS_YES)) == {"one": 1.0, "two": 1.0}
    assert scores(evaluate(CASES, evaluators=SAYS_YES)) == {"one": 1.0, "two": 1.0}


def test_evaluators_replace_those_of_the_cases(folder):
    cases = [{**CASES[0], "id": "a", "evaluators": [{"type": "equals", "value": "never"}]}]
    assert scores(evaluate(cases, echo)) == {"a": 0.0}
    assert scores(evaluate(cases, echo, SAYS_YES)) == {"a": 1.0}
    assert evaluate(cases, echo, []).results[0].status == "unscored"


def test_options_are_those_of_the_command(folder):
    run = evaluate(CASES, echo, SAYS_YES, trials=3, filter="one", workers=1, threshold=0.9, out="here")
    assert len(run.results) == 3 and run.exit_code == 0
    assert str(run.path) == "here"
    assert evaluate(CASES, echo, SAYS_YES, threshold=0.9, out="there").exit_code == 1
    manifest = json.loads((folder.path / "there" / "run.json").read_bytes())
    assert manifest["options"]["gates"] == {"threshold": 0.9}
    assert evaluate(CASES, echo, SAYS_YES, limit=1, out="first").summary.targets["echo"].cases == 1


def carried(run):
    return sum(each.carried_from is not None for each in run.results)


def test_records_of_an_earlier_run_are_carried_over(folder):
    folder.write("d.yaml", {"evalcases": CASES, "evaluators": SAYS_YES})
    evaluate("d.yaml", echo, out="first", limit=1)
    run = evaluate("d.yaml", echo, out="second", changed_since="first")
    assert carried(run) == 1 and len(run.results) == 2


def test_changed_settings_are_not_carried_over(folder):
    evaluate(CASES, {"provider": "mock", "response": "yes"}, SAYS_YES, out="first")
    same = evaluate(CASES, {"provider": "mock", "response": "yes"}, SAYS_YES, out="same", changed_since="first")
    other = evaluate(CASES, {"provider": "mock", "response": "no"}, SAYS_YES, out="other", changed_since="first")
    assert carried(same) == 2 and carried(other) == 0


def test_a_function_with_a_closure_is_called_again(folder):
    def saying(text):
        return lambda prompt: text

    evaluate(CASES, saying("yes"), SAYS_YES, out="first")
    run = evaluate(CASES, saying("no"), SAYS_YES, out="second", changed_since="first")
    assert carried(run) == 0 and run.summary.targets["<lambda>"].mean == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trails": 3}, "Unknown option 'trails'"),
        ({"trials": 0}, "trials"),
        ({"workers": "many"}, "workers"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"on_error": "ignore"}, "on_error"),
        ({"threshold": 0.8, "gate_on": "mean"}, "Invalid value for option 'gate_on'"),
        ({"threshold": 80}, "'threshold' must be a number from 0 to 1, got '80'; write 0.8 for 80%"),
        ({"filter": 3}, "Invalid value for option 'filter'"),
        ({"out": 5}, "'out' must be a path, got int"),
        ({"max_errors": "some"}, "--max-errors takes a number"),
        ({"filter": "nobody"}, "No case matches"),
        ({"paths": ("x",)}, "Unknown option 'paths'"),
    ],
)
def test_an_invalid_option_is_an_error_before_the_run(folder, options, message):
    with pytest.raises(AgentvError, match=message):
        evaluate(CASES, lambda prompt: pytest.fail("called"), SAYS_YES, **options)
    assert os.listdir(folder.path) == []


def test_a_mistyped_option_gets_a_suggestion(folder):
    with pytest.raises(AgentvError, match="Did you mean 'trials'"):
        evaluate(CASES, echo, SAYS_YES, trails=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], echo), "The list of cases is empty"),
        (([{"id": "a"}], echo), "position 1"),
        (([*CASES, CASES[0]], echo), "Duplicate id 'one'"),
        (("nowhere.yaml", echo), "nowhere.yaml"),
        ((CASES, "nobody"), "targets file"),
        ((CASES, {"provider": "mok"}), "mock"),
        ((CASES, {"provider": "mock", "respones": "x"}), "respon"),
        ((CASES, echo, ["contans"]), "Unknown evaluator type 'contans'\n\n  Hint: Did you mean 'contains'?"),
        ((CASES, echo, ["Is it polite?"]), "For a criterion that a judge checks"),
        ((CASES, echo, [{"type": "is_json", "valu": "x"}]), "valu"),
        ((CASES, lambda first, second: "", SAYS_YES), "first, second"),
        ((CASES, {"provider": "python", "function": "gone.py:answer"}, SAYS_YES), "gone.py"),
    ],
)
def test_mistakes_are_errors_with_hints_and_create_no_run(folder, arguments, message):
    with pytest.raises(AgentvError, match=message):
        evaluate(*arguments)
    assert not list(folder.path.rglob("run.json"))


def test_an_existing_folder_is_refused(folder):
    evaluate(CASES, echo, SAYS_YES, out="out")
    with pytest.raises(AgentvError, match="already exists"):
        evaluate(CASES, echo, SAYS_YES, out="out")


def test_evaluate_works_inside_a_running_event_loop(folder):
    async def main():
        return evaluate(CASES, echo_async, SAYS_YES)

    assert scores(asyncio.run(main())) == {"one": 1.0, "two": 0.0}


def test_evaluate_async_does_not_block_the_event_loop(folder):
    async def main():
        ticks = 0

        async def clock():
            nonlocal ticks
            while True:
                ticks += 1
                await let_others_run()

        async def answer(prompt):
            await wait_until_async(lambda: ticks > 10)
            return prompt

        ticking = asyncio.create_task(clock())
        run = await evaluate_async(CASES, answer, SAYS_YES, workers=1)
        ticking.cancel()
        return run, ticks

    run, ticks = asyncio.run(main())
    assert scores(run) == {"one": 1.0, "two": 0.0}
    assert ticks > 10


def test_several_async_runs_run_concurrently(folder):
    async def main():
        return await asyncio.gather(*(evaluate_async(CASES, echo_async, SAYS_YES, out=f"r{n}") for n in range(4)))

    assert [scores(run) for run in asyncio.run(main())] == [{"one": 1.0, "two": 0.0}] * 4


def test_evaluate_async_raises_the_same_errors(folder):
    with pytest.raises(AgentvError, match="Unknown option"):
        asyncio.run(evaluate_async(CASES, echo, SAYS_YES, trails=1))


def test_a_cancelled_async_run_stops_and_keeps_its_records(folder):
    asked = []

    async def answer(prompt, case):
        asked.append(case.id)
        if case.id != "c0":
            await asyncio.Event().wait()
        return prompt

    async def main():
        cases = [{**CASES[0], "id": f"c{number}"} for number in range(10)]
        running = asyncio.create_task(evaluate_async(cases, answer, SAYS_YES, out="out", workers=1))
        await wait_until_async(lambda: len(asked) >= 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert asked == ["c0", "c1"]
    records = (folder.path / "out" / "results.jsonl").read_bytes().splitlines()
    assert [json.loads(record)["eval_id"] for record in records] == ["c0"]


def test_evaluate_works_in_a_thread(folder):
    found = []
    thread = threading.Thread(target=lambda: found.append(scores(evaluate(CASES, echo, SAYS_YES))))
    thread.start()
    thread.join()
    assert found == [{"one": 1.0, "two": 0.0}]


INTERRUPTED = """
import asyncio, signal, sys
from agentv import evaluate

async def answer(prompt):
    open("started", "w").close()
    await asyncio.Event().wait()

signal.signal(signal.SIGTERM, before := lambda *_: None)

def main():
    try:
        evaluate([{"id": "a", "expected_outcome": "x", "input": "q"}], answer, [], out="out")
    except KeyboardInterrupt as error:
        print("interrupted", error)
    assert signal.getsignal(signal.SIGTERM) is before

async def in_a_loop():
    main()

asyncio.run(in_a_loop()) if sys.argv[1:] == ["loop"] else main()
"""


@pytest.mark.parametrize("where", ["plain", "loop"])
def test_ctrl_c_raises_keyboard_interrupt_and_keeps_records(folder, where):
    folder.write("program.py", INTERRUPTED)
    command = [sys.executable, "program.py", where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until((folder.path / "started").exists, process)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=200)
    assert "interrupted" in out, said
    manifest = json.loads((folder.path / "out" / "run.json").read_bytes())
    assert "finished_at" not in manifest


def test_evaluate_and_compare_are_public():
    assert {"evaluate", "evaluate_async"} <= set(agentv.__all__)


def test_an_evaluator_of_another_kind_is_refused(folder):
    with pytest.raises(AgentvError, match=r"'evaluators\[1\]' must be a string, a dict, a function or a spec, got int"):
        evaluate(CASES, echo, [*SAYS_YES, 5])


@pytest.mark.parametrize("evaluators", ["equals", {"type": "equals"}, 5, EvaluatorSpec(type="equals", name="e")])
def test_evaluators_must_be_a_list(folder, evaluators):
    with pytest.raises(AgentvError, match="'evaluators' must be a list, got ") as error:
        evaluate(CASES, echo, evaluators)
    assert '[{"type": "equals"}]' in str(error.value)


def test_a_string_is_a_type_of_evaluator(folder):
    cases = [{**CASES[0], "expected_output": "yes"}, {**CASES[1], "expected_output": "yes"}]
    run = evaluate(cases, echo, ["equals", SAYS_YES[0], lambda answer: 1.0, "is-json"])
    names = [[(each.type, each.score) for each in result.evaluator_results] for result in run.results]
    assert [name for name, _ in names[0]] == ["equals", "contains", "python", "is_json"]
    assert [score for _, score in names[0]] == [1.0, 1.0, 1.0, 0.0]


def test_records_can_also_be_written_to_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = evaluate(CASES, echo, SAYS_YES, out="records.jsonl")
    assert (tmp_path / "records.jsonl").read_bytes() == (run.path / "results.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([5], "Invalid eval case at position 1 of the list\n  A case must be a dict or an EvalCase, got int"),
        ([CASES[0], "d.yaml"], "position 2 of the list\n  A case must be a dict or an EvalCase, got str"),
        (CASES[0], "must be a list of cases, got a single case"),
        (EvalCase("a", expected_outcome="x", input="y"), "must be a list of cases, got a single case"),
        (5, "must be a path or an iterable of cases, got int"),
    ],
)
def test_an_invalid_dataset_is_refused(folder, given, message):
    with pytest.raises(AgentvError) as refused:
        evaluate(given, echo, SAYS_YES)
    assert message in str(refused.value)


def test_any_mapping_is_a_case(folder):
    assert scores(evaluate([MappingProxyType(CASES[0])], echo, SAYS_YES)) == {"one": 1.0}


def test_a_mistyped_key_of_a_dict_warns_once(folder):
    with pytest.warns(DatasetWarning, match="Unknown field 'metdata'") as warned:
        evaluate([{**case, "metdata": {"a": 1}} for case in CASES], echo, SAYS_YES)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert "metadata" in warned[0].message.hint
