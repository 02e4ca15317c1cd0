"""`agentv skill`: the same cases with and without a skill, and with an earlier version of it."""

import json

import pytest
from skill_project import HELPFUL, USELESS, agent, evals


def measure(command, *options, code=0):
    ended = command("skill", "skills/greet", "--json", "--quiet", "--out", "out", *options)
    assert ended.code == code, ended.stderr
    return json.loads(ended.stdout)


def test_a_skill_that_changes_the_answers_helps(project, command):
    [found] = measure(command)["targets"]
    against = found["against"]["without"]
    assert (against["answer"], against["summary"]["mean_delta"], against["summary"]["n"]) == ("better", 1.0, 6)
    assert (found["loaded"]["with"]["count"], found["loaded"]["without"]["count"]) == (6, 0)
    assert against["cost_usd"]["n"] == 6


def test_a_skill_that_does_nothing_does_not_help(project, command):
    project.skill(USELESS)
    [found] = measure(command)["targets"]
    assert found["against"]["without"]["answer"] == "cannot tell"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (HELPFUL, {"no-help": 0, "regression": 0, "any-loss": 0}),
        (USELESS, {"no-help": 5, "regression": 0, "worse": 0}),
        (HELPFUL.replace("Ahoy!", "No."), {"no-help": 1, "regression": 1, "worse": 1, "any-loss": 1, "never": 0}),
    ],
)
def test_gates_have_the_exit_codes_of_compare(project, command, text, codes):
    project.skill(text)
    if "No." in text:
        project.evals(evals(assertions=[{"type": "contains", "value": "do not know"}]))
    for gate, code in codes.items():  # complete runs are not repeated
        assert measure(command, "--resume", "--fail-on", gate, code=code)["exit_code"] == code


def test_the_report_is_one_page_in_every_format(project, command):
    project.triggers(("greet Ann", True), ("Make a list", False))
    ended = command("skill", "skills/greet", "--out", "out", "--html", "r.html", "--md", "r.md")
    assert ended.code == 0, ended.stderr
    texts = (ended.stdout, (project.path / "r.html").read_text(), (project.path / "r.md").read_text())
    for text in texts:
        assert "claude with the skill" in text
        assert "is better by 1.000" in text
        assert "6 of 6" in text
    assert ended.stdout.startswith("Helps: claude with the skill 'greet' is better by 1.000 (95 % ")


def test_trigger_sets_give_precision_and_recall(project, command):
    project.triggers(("greet Ann", True), ("Say hello to Bo", True), ("greet no one", False), ("Sum it", False))
    [found] = measure(command)["targets"]
    counts = found["triggers"]["with"]
    assert (counts["precision"]["count"], counts["precision"]["total"]) == (1, 2)
    assert (counts["recall"]["value"], counts["wanted"], counts["unwanted"]) == (0.5, 2, 2)
    assert list(found["triggers"]) == ["with"]


def test_trigger_sets_work_without_evals(project, command):
    (project.path / "skills/greet/evals/evals.json").unlink()
    project.triggers(("greet Ann", True))
    [found] = measure(command)["targets"]
    assert (found["against"], found["triggers"]["with"]["recall"]["value"]) == ({}, 1.0)


def test_the_previous_version_is_the_newest_in_git_that_differs(project, command):
    project.skill(USELESS)
    project.commit("one")
    project.skill(HELPFUL)
    project.commit("two")
    project.evals(evals(7))
    project.commit("more evals")
    found = measure(command, "--previous")
    against = found["targets"][0]["against"]
    assert {label: each["answer"] for label, each in against.items()} == {"without": "better", "previous": "better"}
    assert len(found["versions"]["previous"]) == 40


def test_a_version_without_a_difference_is_refused(project, command):
    project.commit("one")
    ended = command("skill", "skills/greet", "--previous")
    assert ended.code == 2
    assert "There is no earlier version to compare with" in ended.stderr
    assert not (project.path / ".agentv/results").exists() or not list((project.path / ".agentv/results").iterdir())


def test_several_agents_are_measured_and_named_ones_only(project, command):
    project.folder.write(
        "targets.yaml", {"targets": [agent(), agent("second"), {"name": "model", "provider": "mock", "response": "x"}]}
    )
    project.evals(evals(3))
    assert [each["target"] for each in measure(command)["targets"]] == ["claude", "second"]
    ended = command("skill", "skills/greet", "--target", "model")
    assert (ended.code, "Target 'model' is not a coding agent" in ended.stderr) == (2, True)


def test_the_evals_are_never_in_the_agents_sight(project, command):
    measure(command)
    copied = sorted(path.name for path in (project.path / "out/versions/with/greet").rglob("*"))
    assert copied == ["SKILL.md"]


@pytest.mark.parametrize("place", ["home/.claude/skills/greet", "work/.claude/skills/other", ".claude/skills/greet"])
def test_an_agent_that_would_see_the_skill_anyway_is_refused(project, command, place):
    project.folder.write(f"{place}/SKILL.md", HELPFUL)
    settings = {"home_template": "home"} if place.startswith("home") else {"cwd": "work"}
    (project.path / "work").mkdir(exist_ok=True)
    project.folder.write("targets.yaml", {"targets": [agent(**settings)]})
    ended = command("skill", "skills/greet")
    assert ended.code == 2
    assert "Target 'claude' cannot be measured without the skill 'greet'" in ended.stderr


def test_the_users_home_is_checked_and_the_skill_goes_to_the_workspace(project, command, monkeypatch):
    monkeypatch.setenv("HOME", str(project.path / "me"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (project.path / "me").mkdir()
    project.folder.write("targets.yaml", {"targets": [agent(user_settings=True)]})
    [found] = measure(command)["targets"]
    assert found["against"]["without"]["answer"] == "better"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project.path / "moved"))
    for place in ("moved/skills/greet", "me/.claude/skills/greet"):
        project.folder.write(f"{place}/SKILL.md", HELPFUL)
        ended = command("skill", "skills/greet")
        assert ended.code == 2
        assert f"{place} is a skill of the same name" in ended.stderr
        (project.path / place / "SKILL.md").unlink()


def test_a_skill_in_the_template_of_a_case_is_an_error_of_the_arm_without(project, command):
    project.folder.write("template/.claude/skills/greet/SKILL.md", HELPFUL)
    case = {"id": "a", "expected_outcome": "x", "input": "greet", "workspace": {"template": "template"}}
    checks = [{"type": "contains", "value": "Ahoy"}]
    (project.path / "skills/greet/evals/evals.json").unlink()
    project.folder.write("skills/greet/evals/own.yaml", {"evaluators": checks, "evalcases": [case]})
    project.commit("all")
    ended = command("skill", "skills/greet", "--out", "out")
    assert ended.code == 3
    assert "The agent would see the skill 'greet'" in ended.stderr


def test_a_stopped_run_is_resumed_and_a_changed_skill_refused(project, command):
    ended = command("skill", "skills/greet", "--out", "out", "--budget-usd", "0.03", "--workers", "1")
    assert ended.code == 4, ended.stderr
    assert "agentv skill skills/greet --resume --out out" in ended.stderr
    project.skill(USELESS)
    ended = command("skill", "skills/greet", "--resume", "--out", "out")
    assert (ended.code, "the skill 'greet' has changed" in ended.stderr) == (2, True)
    project.skill(HELPFUL)
    [found] = measure(command, "--resume", "--budget-usd", "5")["targets"]
    assert found["against"]["without"]["summary"]["n"] == 6
    assert len((project.path / "out/evals/results.jsonl").read_text().splitlines()) == 12


def test_a_dry_run_calls_nothing_and_leaves_nothing(project, command):
    project.triggers(("greet Ann", True))
    ended = command("skill", "skills/greet", "--dry-run")
    assert ended.code == 0, ended.stderr
    assert "claude-with: 6 jobs (claude-code)" in ended.stdout
    assert "claude-without: 6 jobs (claude-code)" in ended.stdout
    assert ended.stdout.count("Nothing was called.") == 2
    assert not (project.path / ".agentv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no SKILL.md in nowhere"),
        (["skills"], "Skills in it: empty, greet"),
        (["skills/greet", "skills"], "Name the folder of one skill"),
        (["skills/empty"], "The skill 'empty' has no evals"),
        (["skills/greet", "--target", "other"], "Unknown target 'other'"),
    ],
)
def test_mistakes_are_explained(project, command, arguments, message):
    project.folder.write("skills/empty/SKILL.md", "Nothing")
    ended = command("skill", *arguments)
    assert ended.code == 2
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"skill_name": "cut",\n "evals": [',
            "Invalid JSON in skills/cut/evals/evals.json\n  Expecting value: line 2",
        ),
        ("", "Invalid JSON in skills/cut/evals/evals.json\n  The file is empty"),
        ('{"skill_name": "cut", "evals": []}', "skills/cut/evals/evals.json contains no evals"),
    ],
)
def test_a_file_of_evals_that_cannot_be_read_is_named(project, command, text, message):
    project.folder.write("skills/cut/SKILL.md", "Nothing")
    project.folder.write("skills/cut/evals/evals.json", text)
    ended = command("skill", "skills/cut")
    assert ended.code == 2 and message in ended.stderr


def test_a_link_out_of_the_project_is_not_copied(project, command, tmp_path_factory):
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_text("k")
    (project.path / "skills/greet/key").symlink_to(secret)
    project.commit("all")
    ended = command("skill", "skills/greet")
    assert (ended.code, "is a link out of the project" in ended.stderr) == (2, True)


def test_an_answer_without_the_skill_that_read_it_leaves_no_verdict(project, command):
    # The agent finds the skill in the project, as `find / -name SKILL.md` would.
    project.folder.write("targets.yaml", {"targets": [agent(env={"FINDS": str(project.path)})]})
    report = measure(command, code=5)
    assert report["targets"][0]["contaminated"] == 6
    ended = command("skill", "skills/greet", "--out", "out", "--resume")
    assert ended.stdout.startswith("Can't tell: 6 of 6 answers of claude without it loaded it nevertheless.")


def test_an_agent_that_is_not_installed_is_named_before_anything_runs(project, command):
    project.folder.write("targets.yaml", {"targets": [agent(), agent("other", executable="./nothing")]})
    ended = command("skill", "skills/greet")
    assert ended.code == 2
    assert "Target 'other' cannot be called" in ended.stderr
    assert not (project.path / ".agentv").exists()


def test_the_effect_is_split_by_whether_the_agent_reached_for_the_skill(project, command):
    others = [{**case, "id": f"other-{case['id']}", "prompt": f"Welcome {case['id']}"} for case in evals(3)]
    project.evals([*evals(), *others])
    [found] = measure(command)["targets"]
    reach = found["reach"]
    assert (reach["answers"]["count"], reach["answers"]["total"], reach["answers"]["cases"]) == (6, 9, 9)
    assert reach["answers"]["ci95"] == pytest.approx((0.354, 0.879), abs=0.001)
    assert (reach["when_loaded"]["n"], reach["when_loaded"]["mean_delta"]) == (6, 1.0)
    assert (reach["when_not_loaded"]["n"], reach["when_not_loaded"]["mean_delta"]) == (3, 0.0)
    assert (reach["mixed_cases"], reach["randomised"]) == (0, False)
    text = command("skill", "skills/greet", "--resume", "--quiet", "--out", "out").stdout
    assert "Reached for: claude loaded it in 6 of 9 answers (66.7 %, 95 % interval 35 to 88 %, 9 cases)." in text
    assert "When reached for: +1.000 (95 % " in text and "otherwise 0.000 (95 % " in text
    assert "claude chose when to load it: this is not a randomised comparison." in text


def test_a_skill_that_is_never_loaded_has_no_difference_when_it_is(project, command):
    project.evals(evals(prompt="Welcome"))
    [found] = measure(command)["targets"]
    assert (found["reach"]["answers"]["count"], found["reach"]["when_loaded"]) == (0, None)


def test_trials_of_a_case_count_as_one_case_in_the_interval(project, command):
    project.triggers(("greet Ann", True), ("Say hello to Bo", True), ("greet no one", False))
    [found] = measure(command, "--trials", "3")["targets"]
    for answers in (found["reach"]["answers"], found["loaded"]["with"]):
        assert (answers["count"], answers["total"], answers["cases"]) == (18, 18, 6)
        assert answers["ci95"][0] == pytest.approx(0.610, abs=0.001)
    triggers = found["triggers"]["with"]
    shares = {name: [triggers[name][key] for key in ("count", "total", "cases")] for name in ("precision", "recall")}
    assert shares == {"precision": [3, 6, 2], "recall": [3, 6, 2]}
    assert triggers["recall"]["ci95"][0] == pytest.approx(0.095, abs=0.001)


def test_the_answers_without_a_skill_are_reused_after_it_changed(project, command):
    measure(command)
    project.skill(HELPFUL.replace("Say ahoy.", "Say ahoy, always."))
    found = json.loads(
        command("skill", "skills/greet", "--json", "--quiet", "--out", "two", "--baseline", "out").stdout
    )
    assert (
        found["targets"][0]["reused"]["count"] == 6 and found["targets"][0]["against"]["without"]["answer"] == "better"
    )
    lines = (project.path / "two/evals/results.jsonl").read_text().splitlines()
    carried = {record["target"] for line in lines if (record := json.loads(line)).get("carried_from")}
    assert carried == {"claude-without"}
    text = command("skill", "skills/greet", "--resume", "--quiet", "--out", "two").stdout
    assert "6 of 6 answers of claude without it are those of an earlier run" in text


def test_a_baseline_that_is_not_a_folder_of_skill_is_refused(project, command):
    ended = command("skill", "skills/greet", "--baseline", "skills")
    assert ended.code == 2 and "is not the folder of an earlier `agentv skill`" in ended.stderr
