"""`agentv bisect` on real repositories: what it finds, what it leaves alone, and how it continues."""

import signal

import pytest
from agent_history import TARGET, History

from waiting import HANGS, wait_until

pytestmark = pytest.mark.ci


@pytest.fixture
def history(tmp_path, program):
    return History(tmp_path, program)


def names(result):
    return {step["commit"]["subject"]: step["outcome"] for step in result["steps"]}


def test_the_commit_that_broke_the_agent_is_found_and_the_checkout_is_left_alone(history):
    good = history.commit(1, "First")
    history.commit(1, "Loosen the check", **{"checks.py": "strict = False"})
    history.write("evals/d.yaml", {"evaluators": [{"type": "contains", "value": "never"}], "evalcases": []})
    history.commit_files("Break the dataset")
    history.dataset(12)
    history.commit(1, "Repair the dataset")
    planted = history.commit(0, "Shorten the prompt")
    history.write("agent.py", "this is not Python")
    history.commit_files("Break the agent")
    history.commit(0, "Last")
    history.write("notes.txt", "not committed")
    before = history.git("status", "--porcelain"), history.git("rev-parse", "HEAD")

    code, result, messages = history.bisect(good, "HEAD", "--", "evals")

    assert (code, result["outcome"], result["commit"]["sha"]) == (0, "found", planted)
    assert (result["commit"]["subject"], result["commit"]["author"]) == ("Shorten the prompt", "Ann <ann@example.com>")
    assert (result["change"]["before"], result["change"]["after"]) == (1, 0)
    assert result["answers"] == len(history.calls)
    assert "Break the dataset" not in names(result) or names(result)["Break the dataset"] == "good"
    assert "Step 1 of about 3: " in messages
    assert (history.git("status", "--porcelain"), history.git("rev-parse", "HEAD")) == before
    assert history.git("worktree", "list").count("\n") == 0


def test_commits_that_cannot_be_evaluated_are_skipped_and_listed(history):
    good = history.commit(1, "First")
    history.write("agent.py", "this is not Python")
    broken = history.commit_files("Break the agent")
    bad = history.commit(0, "Repair the agent")

    code, result, messages = history.bisect(good, bad, "--", "evals/d.yaml")

    assert (code, result["outcome"]) == (5, "undecided")
    assert [each["sha"] for each in result["suspects"]] == [broken, bad]
    assert "skipped: " in messages
    assert "agent.py" in messages


def test_a_commit_to_compare_with_must_work(history):
    history.write("agent.py", "def answer(prompt):\n    raise ValueError('no key')\n")
    good, bad = history.commit_files("First"), history.commit(1, "Second")
    code, _, messages = history.bisect(good, bad, "--", "evals")
    assert code == 2
    assert "'First' cannot be evaluated\n  every answer errored, the first: ValueError: no key" in messages


def test_commits_that_do_not_differ_end_the_search_at_once(history):
    good, bad = history.commit(1, "First"), history.commit(1, "Second")
    code, result, _ = history.bisect(good, bad, "--", "evals", "--trials", "1")
    assert (code, result["outcome"], result["steps"]) == (5, "no_difference", [])
    assert result["change"]["difference"] == 0


def test_a_finished_search_is_replaced_and_its_answers_are_used_again(history):
    good, bad = history.commit(1, "First"), history.commit(1, "Second")
    history.bisect(good, bad, "--", "evals", "--trials", "1")
    assert len(history.calls) == 24
    code, result, _ = history.bisect(good, bad, "--", "evals", "--trials", "2")
    assert (code, result["outcome"], result["trials"]) == (5, "no_difference", 2)
    assert (len(history.calls), len(set(history.calls))) == (48, 48)


def test_an_improvement_is_found_too_and_an_evaluator_that_changed_is_no_distraction(history):
    good = history.commit(0, "First")
    history.dataset(12, evaluators=[{"type": "contains", "value": "no"}])
    history.commit_files("Turn the evaluator around")
    history.dataset(12)
    history.commit(0, "Turn it back")
    planted = history.commit(1, "Fix the agent")
    code, result, messages = history.bisect(good, planted, "--", "evals")
    assert (code, result["commit"]["sha"], result["change"]["difference"]) == (0, planted, 1)
    assert "as good" in messages


def test_judges_come_from_the_working_tree_unless_own_datasets_is_set(history):
    judge = 'def judge(prompt):\n    return \'{{"score": {score}, "reasoning": "x"}}\'\n'
    targets = [TARGET, {"name": "judge", "provider": "python", "function": "judge.py:judge"}]
    history.write("targets.yaml", {"targets": targets})
    history.dataset(12, evaluators=[{"type": "llm_judge"}])
    good = history.commit(1, "First", **{"judge.py": judge.format(score=1)})
    bad = history.commit(1, "Replace the judge", **{"judge.py": judge.format(score=0)})
    code, result, _ = history.bisect(good, bad, "--", "evals", "--trials", "1")
    assert (code, result["outcome"]) == (5, "no_difference")
    code, result, _ = history.bisect(good, bad, "--own-datasets", "--", "evals", "--trials", "1")
    assert (code, result["commit"]["sha"]) == (0, bad)


def test_answers_of_a_model_are_asked_for_once_while_the_request_is_the_same(history, agentv_server):
    server = agentv_server(answers=lambda request: "yes" if "Say yes" in str(request) else "no")
    target = {
        "name": "default",
        "provider": "openai",
        "base_url": server.url,
        "model": "m",
        "api_key": "${{ MODEL_KEY }}",
    }
    history.write(".env", "MODEL_KEY=only-in-the-working-tree\n")
    history.write(".gitignore", ".env\n.agentv\n")
    commits = []
    for number in range(6):
        prompt = "Say yes" if number < 3 else "Be brief"
        history.write("targets.yaml", {"targets": [{**target, "system_prompt": prompt}]})
        commits.append(history.commit(1, f"Commit {number}"))
    code, result, _ = history.bisect(commits[0], commits[-1], "--", "evals")
    assert (code, result["commit"]["sha"]) == (0, commits[3])
    assert (len(server.requests), result["cached"]) == (24, result["answers"] - 24)


def test_the_first_parents_are_searched_unless_merged_branches_are_wanted(history):
    good = history.commit(1, "First")
    history.git("checkout", "-q", "-b", "branch")
    inside = history.commit(0, "Break it on a branch")
    history.git("checkout", "-q", "main")
    history.commit_files("Elsewhere", **{"notes.txt": "x"})
    history.git("merge", "-q", "--no-ff", "-m", "Merge the branch", "branch")
    merge = history.git("rev-parse", "HEAD")
    _, result, _ = history.bisect(good, "HEAD", "--", "evals")
    assert (result["commit"]["sha"], result["commit"]["is_merge"]) == (merge, True)
    _, result, _ = history.bisect(good, "HEAD", "--into-merges", "--", "evals")
    assert result["commit"]["sha"] == inside


WAITING = """\
import os, time


def answer(prompt):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"waiting {prompt}\\n")
    if os.environ.get("WAIT"):
        time.sleep(600)
    return "no"
"""


def test_an_interrupted_search_removes_its_worktrees_and_continues_where_it_stopped(history):
    good = history.commit(1, "First")
    history.write("agent.py", WAITING)
    waiting = history.commit_files("Wait")
    bad = history.commit(0, "Last")
    with history.spawn(good, bad, "--", "evals", "--workers", "1", WAIT="1") as process:
        wait_until(lambda: any(call.startswith("waiting") for call in history.calls))
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert history.git("worktree", "list").count("\n") == 0
    before = len(history.calls)

    code, _, messages = history.bisect("HEAD~1", bad, "--", "evals")
    assert (code, "Another search is in progress" in messages) == (2, True)
    code, result, messages = history.bisect("--resume")
    assert (code, result["commit"]["sha"]) == (0, waiting)
    assert "Continuing after 0 steps" in messages
    assert len(history.calls) - before <= 12


def test_a_search_does_not_continue_with_a_dataset_that_changed(history):
    good, bad = history.commit(1, "First"), history.commit(0, "Second")
    with history.spawn(good, bad, "--", "evals", "--setup", HANGS) as process:
        wait_until(lambda: (history.path / ".agentv/bisect/worktrees").exists())
        process.terminate()
        process.communicate()
    assert process.returncode == 130
    history.dataset(13)
    code, _, messages = history.bisect(good, bad, "--", "evals", "--setup", HANGS)
    assert (code, "datasets, evaluators or judges have changed" in messages) == (2, True)
    code, result, _ = history.bisect(good, bad, "--reset", "--", "evals")
    assert (code, result["commit"]["sha"]) == (0, bad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["HEAD", "HEAD~1", "--", "evals"], "comes before GOOD"),
        (["HEAD", "HEAD", "--", "evals"], "are the same commit"),
        (["nowhere", "HEAD", "--", "evals"], "No such commit: nowhere"),
        (["HEAD~1", "HEAD"], "Name two commits and the datasets"),
        (["--resume"], "No search is in progress"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(history, command, monkeypatch, arguments, message):
    history.commit(1, "First")
    history.commit(0, "Second")
    monkeypatch.chdir(history.path)
    done = command("bisect", *arguments)
    assert (done.code, message in done.stderr) == (2, True)


PROMPTED = """\
import os, random


def answer(prompt, trial):
    instructions = open("prompt.txt").read()
    passes = 0.9 if "step by step" in instructions else 0.7
    draw = random.Random(f"{os.environ['NOISE']}/{instructions}/{prompt}/{trial}").random()
    return "yes" if draw < passes else "no"
"""


def code_history(history, planted):
    return [history.commit(0.85 if number < planted else 0.6, f"Commit {number}") for number in range(30)]


def prompt_history(history, planted):
    history.write("agent.py", PROMPTED)
    texts = ("Think step by step.", "Think.")
    return [
        history.commit_files(f"Commit {number}", **{"prompt.txt": f"{texts[number >= planted]} Version {number}."})
        for number in range(30)
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history_of", [code_history, prompt_history])
def test_a_noisy_drop_in_30_commits_is_found_with_fewer_calls_than_full_evaluations(tmp_path, program, history_of):
    """A drop from 0.85 to 0.6, or from 0.9 to 0.7, is found in at least 90 % of 20 searches, with 300 cases."""
    found, answers, full = 0, 0, 0
    for seed in range(20):
        history = History(tmp_path / str(seed), program, cases=300)
        planted = 1 + (seed * 7) % 29
        commits = history_of(history, planted)
        _, result, _ = history.bisect(commits[0], commits[-1], "--", "evals", NOISE=str(seed))
        found += bool(result["commit"]) and result["commit"]["sha"] == commits[planted]
        answers, full = answers + result["answers"], full + result["commits"] * 300
        print(seed, result["outcome"], result["answers"], result["commits"] * 300)
    assert found >= 18
    assert answers < 0.75 * full
