"""Labels on the served page: what the server accepts and writes, and labelling by keyboard in Chromium."""

import json
import re

import pytest

from agentv.extensions.judge.label_file import LabelFile, read_labels
from agentv.extensions.judge.labels import AnswerKey, Label, answer_hash, draw_order

LETTERS = "abcdefgh"
JSON = {"Content_Type": "application/json"}


def key_of(letter):
    return AnswerKey("letters", letter, answer_hash(letter.upper()))


def drawn_order(letters=LETTERS):
    """The cases in the order in which `agentv judge label` shows them."""
    return sorted(letters, key=lambda letter: draw_order(key_of(letter), 0))


def labelled(path="labels.jsonl"):
    return [(line.eval_id, line.label, line.drawn) for line in read_labels(path)]


class Labels:
    """The labels of the only run of a server."""

    def __init__(self, view):
        self.view = view.login()
        [self.run] = view.run_ids()
        self.rows = {row["id"]: place for place, row in enumerate(view.rows(self.run)[0])}

    def get(self, path=""):
        return self.view.get(f"/api/labels/{self.run}{path}")

    def send(self, body, run=None):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        path = f"/api/labels/{self.run if run is None else run}"
        return self.view.request(path, "POST", body=text, Origin=self.view.origin, **JSON)

    def post(self, id, label=None, **further):
        answer = self.send({"row": self.rows[id], "id": id, "label": label, **further})
        assert answer.status == 200, answer.text
        return answer.json

    def id_of(self, row):
        return next(id for id, place in self.rows.items() if place == row)


@pytest.fixture
def labels(evaluated, server):
    """A page with labels of ann, for a run with eight answers, of which the judge passes one."""
    evaluated(LETTERS)
    with server("run", "--label", "labels.jsonl", "--labeller", "ann") as view:
        yield Labels(view)


def test_labels_follow_the_order_of_judge_label_and_are_read_by_calibrate(labels, command):
    seen = []
    while (row := labels.get()["next"]) is not None:
        seen.append(labels.id_of(row))
        labels.post(seen[-1], "pass" if len(seen) % 2 else "fail", comment="<b>" * (len(seen) == 1))
    assert seen == drawn_order()
    assert [drawn for _, _, drawn in labelled()] == ["random"] * 8
    [first, *_] = read_labels("labels.jsonl")
    assert (first.labeller, first.comment) == ("ann", "<b>")
    found = json.loads(command("judge", "calibrate", "run", "--labels", "labels.jsonl", "--json").stdout)
    assert (found["labelled"], found["unmatched"], found["chosen"]) == (8, 0, 0)


def test_progress_notes_scores_skips_and_undo_are_counted(labels):
    assert labels.get() == {
        "labeller": "ann", "file": "labels.jsonl", "answers": 8, "labelled": 0, "skipped": 0,
        "next": labels.rows[drawn_order()[0]], "entries": [], "unanswered": [],
    }  # fmt: skip
    labels.post("a", score=0.85)
    labels.post("b", score=0.79, comment="nearly")
    labels.post("c", "skip")
    labels.post("d", comment="a note")
    labels.post("e", "pass")
    labels.post("e")
    found = labels.get()
    assert (found["labelled"], found["skipped"]) == (2, 1)
    entries = {labels.id_of(entry["rows"][0]): entry for entry in found["entries"]}
    shown = {id: (entry["label"], entry["score"], entry["comment"]) for id, entry in entries.items()}
    assert shown == {
        "a": ("pass", 0.85, ""),
        "b": ("fail", 0.79, "nearly"),
        "c": ("skip", None, ""),
        "d": (None, None, "a note"),
    }


def test_an_answer_that_is_picked_joins_the_sample_in_its_turn(labels):
    first, second, third, *_, last = drawn_order()
    labels.post(second, "fail")
    labels.post(last, "fail")
    assert labelled() == [(second, "fail", "chosen"), (last, "fail", "chosen")]
    assert labels.id_of(labels.post(first, "pass")["next"]) == third
    labels.post(third, "pass")
    assert labelled()[2:] == [(first, "pass", "random"), (second, "fail", "random"), (third, "pass", "random")]
    labels.post(first, "fail")
    assert labelled()[-1] == (first, "fail", "random")
    for id in drawn_order()[3:-1]:
        labels.post(id, "pass")
    assert labelled()[-2:] == [(last, "fail", "random"), (drawn_order()[-2], "pass", "random")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"id": "a"}, "missing required field `row`"),
        ({"row": 99, "id": "a", "label": "pass"}, "The run has no row 99"),
        ({"row": -1, "id": "a", "label": "pass"}, "Expected `int` >= 0"),
        ({"row": 0, "id": "nope", "label": "pass"}, "not nope"),
        ({"row": 0, "id": "a", "label": "good"}, "Invalid enum value 'good'"),
        ({"row": 0, "id": "a", "score": 1.5}, "Expected `float` <= 1.0"),
        ({"row": 0, "id": "a", "score": "1"}, "Expected `float | null`"),
        ({"row": 0, "id": "a", "comment": "x" * 10_001}, "length <= 10000"),
        ({"row": 0, "id": "a", "label": "pass", "labeller": "bob"}, "unknown field `labeller`"),
        (b"[]", "Expected `object`"),
        (b"\xff", ""),
        (b'{"row": 0, "id": "a", "score": NaN}', ""),
        (b"[" * 100_000, ""),
    ],
)
def test_invalid_labels_are_refused_and_nothing_is_written(shared_labels, body, message):
    answer = shared_labels.send(body)
    error = answer.json["error"]
    assert answer.status == 400 or answer.headers["Content-Type"] == "application/problem+json"
    assert message in error["message"] + error["detail"]
    assert not shared_labels.path.exists()


def test_a_label_and_a_score_contradict_each_other(shared_labels):
    first = next(iter(shared_labels.rows))
    answer = shared_labels.send({"row": shared_labels.rows[first], "id": first, "label": "pass", "score": 0.1})
    assert answer.status == 400 and "not both" in answer.text


def test_only_runs_of_the_list_can_be_labelled(shared_labels):
    refused = shared_labels.send({"row": 0, "id": "a", "label": "pass"}, run="..%2Frun")
    assert refused.json["error"]["message"] == "This run is not in the list"


@pytest.fixture(scope="module")
def shared_labels(program, tmp_path_factory):
    """A page with labels that no test writes."""
    from view_process import started

    folder = tmp_path_factory.mktemp("project")
    rows = [{"test_id": letter, "score": 1.0, "candidate_answer": letter} for letter in "ab"]
    rows.append({"test_id": "broken", "error": "no connection"})
    (folder / "eval_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with started(program, "eval_1.jsonl", "--label", "labels.jsonl", cwd=folder) as view:
        found = Labels(view)
        found.path = folder / "labels.jsonl"
        yield found


def test_labels_are_neither_shown_nor_written_without_a_file(evaluated, server):
    evaluated("ab")
    with server("run") as view:
        labels = Labels(view)
        for answer in (labels.send({"row": 0, "id": "a", "label": "pass"}), view.request(f"/api/labels/{labels.run}")):
            assert answer.status == 403 and "Start agentv view with --label FILE" in answer.text


def test_a_result_without_an_answer_cannot_be_labelled(shared_labels):
    row = shared_labels.rows["broken"]
    answer = shared_labels.send({"row": row, "id": "broken", "label": "pass"})
    assert "has no answer to label" in answer.json["error"]["message"]
    assert (shared_labels.get()["unanswered"], shared_labels.get()["answers"]) == ([row], 2)


def test_the_file_of_something_else_is_refused_at_the_start(evaluated, folder, command):
    evaluated("ab")
    folder.write("notes.json", '{"theme": "dark"}')
    ended = command("view", "run", "--label", "notes.json", "--no-open")
    assert ended.code == 2 and "notes.json, line 1 is not a valid label" in ended.stderr
    assert (folder.path / "notes.json").read_text() == '{"theme": "dark"}'


def test_the_agreement_of_two_labellers_and_with_the_judge_equals_a_hand_count(labels):
    """Ann passes a to f. Bob passes a, b, c and g, fails d, e and f, and skips h. The judge passes only a."""
    for letter in LETTERS:
        labels.post(letter, "pass" if letter <= "f" else "fail")
    bob = dict.fromkeys("abcg", "pass") | dict.fromkeys("def", "fail") | {"h": "skip"}
    lines = [Label(timestamp="t", **key_of(id)._asdict(), label=value, labeller="bob") for id, value in bob.items()]
    LabelFile("labels.jsonl").add(*lines)
    found = labels.get("/agreement")
    [pair] = found["pairs"]
    assert (pair["labellers"], pair["n"], pair["agreed"], pair["confusion"]) == (["ann", "bob"], 7, 3, [[3, 3], [1, 0]])
    assert pair["kappa"]["value"] == pytest.approx((3 / 7 - 27 / 49) / (1 - 27 / 49))
    judge = found["judge"]
    assert (judge["n"], judge["agreed"], judge["confusion"]) == (8, 3, [[1, 5], [0, 2]])
    # By chance, both pass 6/8 · 1/8 and both fail 2/8 · 7/8 of the answers: 20 of 64.
    assert judge["kappa"]["value"] == pytest.approx((3 / 8 - 20 / 64) / (1 - 20 / 64))
    [others] = [entry["others"] for entry in labels.get()["entries"] if entry["rows"] == [labels.rows["g"]]]
    assert others == [{"labeller": "bob", "label": "pass", "score": None, "comment": ""}]


def test_a_score_passes_by_the_limits_of_its_case(folder, server):
    import agentv

    checks = {"evaluators": [{"type": "contains", "value": "A"}], "execution": {"verdicts": {"pass": 0.5}}}
    folder.write("d.yaml", {**checks, "evalcases": [{"id": "a", "input": "a", "expected_outcome": "Says A"}]})
    agentv.evaluate("d.yaml", str.upper, out="run")
    with server("run", "--label", "labels.jsonl") as view:
        labels = Labels(view)
        assert [labels.post("a", score=score)["label"] for score in (0.5, 0.49)] == ["pass", "fail"]


HOSTILE = '</script><img src=x onerror="window.pwned = 1"> \x1b[31mred'


def test_answers_are_labelled_by_keyboard_only(evaluated, served, command):
    """Three labels, a score, a comment and an undo, without the mouse. The verdict is hidden until then."""
    first, second, third, fourth, *_ = drawn_order()
    evaluated(LETTERS)
    with served("run", "--label", "labels.jsonl", "--labeller", "ann") as page:
        panel, title = page.get_by_role("region", name="Label"), page.locator("#detail-title")
        row = page.get_by_role("row").filter(has=page.get_by_text(first, exact=True))
        page.keyboard.press("n")
        title.get_by_text(first, exact=True).wait_for()
        assert "hidden until the answer is labelled" in page.locator(".detail .body").inner_text()
        assert "Evaluators" not in page.locator(".detail .body").inner_text()
        assert not row.locator(".verdict .badge").is_visible()
        assert page.locator(".sidebar").text_content().startswith("Figures are hidden until all answers are labelled.")
        assert page.locator(".tally, .sidebar .card, .histogram:not([hidden]), .failures").count() == 0
        page.keyboard.press("p")
        title.get_by_text(second, exact=True).wait_for()
        assert row.locator(".verdict .badge").is_visible()
        assert row.locator(".label").inner_text() == "pass"
        page.keyboard.press("c")
        page.keyboard.type(HOSTILE.replace("\x1b", ""))
        page.keyboard.press("Enter")
        panel.get_by_text("1 of 8 labelled by ann").wait_for()
        page.keyboard.press("f")
        title.get_by_text(third, exact=True).wait_for()
        page.keyboard.press("s")
        page.keyboard.type("0.9")
        page.keyboard.press("Enter")
        title.get_by_text(fourth, exact=True).wait_for()
        assert panel.get_by_text("3 of 8 labelled by ann").is_visible()
        page.keyboard.press("p")
        panel.get_by_text("4 of 8").wait_for()
        page.keyboard.press("u")
        title.get_by_text(fourth, exact=True).wait_for()
        panel.get_by_text("3 of 8").wait_for()
        assert page.evaluate("window.pwned") is None
    found = {line.eval_id: line for line in read_labels("labels.jsonl")}
    assert [found[id].label for id in (first, second, third, fourth)] == ["pass", "fail", "pass", None]
    assert (found[second].comment, found[third].score) == (HOSTILE.replace("\x1b", ""), 0.9)
    calibrated = json.loads(command("judge", "calibrate", "run", "--labels", "labels.jsonl", "--json").stdout)
    assert (calibrated["labelled"], calibrated["labellers"]) == (3, {"ann": 3})


def test_the_page_shows_agreement_and_filters_by_label(evaluated, served):
    """Ann and Bob agree on 3 of 7 answers. Ann passes b to f, which the judge fails."""
    evaluated(LETTERS)
    given = {
        "ann": dict.fromkeys("abcdef", "pass") | dict.fromkeys("gh", "fail"),
        "bob": dict.fromkeys("abcg", "pass") | dict.fromkeys("def", "fail"),
    }
    lines = [
        Label(timestamp="t", **key_of(id)._asdict(), label=value, labeller=name, comment=HOSTILE)
        for name, values in given.items()
        for id, value in values.items()
    ]
    LabelFile("labels.jsonl").add(*lines)
    with served("run", "--label", "labels.jsonl", "--labeller", "ann") as page:
        page.get_by_role("button", name="All labelled").wait_for()
        assert page.locator(".counts").inner_text().split("\n") == ["1 passed", "7 failed"]
        page.locator("[popovertarget=filter-label]").click()
        assert page.locator("#filter-label li").all_inner_texts() == ["labelled\n8", "disagrees with the judge\n5"]
        page.get_by_role("checkbox", name="disagrees with the judge").check()
        page.get_by_text("5 of 8 results").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        panel = page.get_by_role("region", name="Label")
        panel.get_by_text("bob: ", exact=False).wait_for()
        assert "<img src=x" in panel.inner_text() and "\\x1b[31m" in panel.inner_text()
        panel.get_by_text("Agreement").click()
        panel.get_by_role(
            "row", name="ann and bob 3 of 7 (42.9 %) \N{MINUS SIGN}0.273, too few for an interval"
        ).wait_for()
        panel.get_by_role("row", name="ann and the judge 3 of 8 (37.5 %)").wait_for()
        page.keyboard.press("u")
        panel.get_by_text("7 of 8 labelled by ann").wait_for()
        assert page.evaluate("window.pwned") is None
    assert LabelFile("labels.jsonl").labels.counts("ann").total() == 7


def test_labels_of_other_programs_appear_and_keep_what_is_being_typed(evaluated, served):
    first, second, *_ = drawn_order("abc")
    evaluated("abc")

    def add(id, **values):
        LabelFile("labels.jsonl").add(Label(timestamp="t", **key_of(id)._asdict(), **values))

    with served("run", "--label", "labels.jsonl", "--labeller", "ann") as page:
        panel, title = page.get_by_role("region", name="Label"), page.locator("#detail-title")
        page.keyboard.press("n")
        title.get_by_text(first, exact=True).wait_for()
        panel.get_by_text("Agreement").click()
        panel.get_by_role("row", name="ann and the judge no answer has both").wait_for()
        comment, score = panel.get_by_role("textbox", name="Comment"), panel.get_by_role("textbox", name="Score")
        comment.fill("half a sen")
        score.fill("0.")
        panel.get_by_role("button", name="Pass").focus()
        add(first, label="fail", labeller="ann", comment="of the terminal")
        panel.get_by_text("1 of 3 labelled by ann").wait_for()
        panel.get_by_role("row", name=re.compile("ann and the judge [01] of 1")).wait_for()
        assert (comment.input_value(), score.input_value()) == ("half a sen", "0.")
        page.keyboard.press("n")
        title.get_by_text(second, exact=True).wait_for()
        add(second, label="pass", labeller="ann", comment="of the terminal")
        panel.get_by_text("2 of 3 labelled by ann").wait_for()
        assert comment.input_value() == "of the terminal"
        with open("labels.jsonl", "a") as file:
            file.write("not a label\n")
        panel.get_by_text("The labels cannot be read: labels.jsonl, line").wait_for()


def test_a_comparison_hides_verdicts_until_both_answers_are_labelled(evaluated, served):
    """The second run fails a, which the first one passes."""
    evaluated("ab", out="first")
    import agentv

    agentv.evaluate("evals/letters.yaml", str.lower, out="second")
    hidden = ".verdict, .compare-figures, .badge, .evaluator, .outcome-word, .groups, select[aria-label=Order]:visible"
    with served("first", "second", "--label", "labels.jsonl", fragment="#view=compare") as page:
        rows, panel = page.locator(".window .pair-row"), page.locator(".case-panel")
        page.get_by_text("Verdicts are hidden until all answers of the runs are labelled.").wait_for()
        rows.nth(1).wait_for()
        assert [row.split("\n") for row in rows.all_inner_texts()] == [[id, "letters", "hidden"] for id in "ab"]
        rows.first.click()
        panel.get_by_text("The verdicts are hidden until the answers are labelled.").wait_for()
        assert page.locator(hidden).count() == 0 and "1.000" not in page.inner_text("body")
        for text in ("a", "A"):
            key = AnswerKey("letters", "a", answer_hash(text))
            LabelFile("labels.jsonl").add(Label(timestamp="t", **key._asdict(), label="pass"))
        panel.locator(".badge.fail").wait_for()
        page.get_by_label("Show verdicts before labelling").check()
        page.locator(".compare-figures").wait_for(state="attached")
        page.get_by_label("Show verdicts before labelling").uncheck()
        page.locator(".compare-figures").wait_for(state="detached")
        panel.locator(".badge").nth(1).wait_for()  # the panel is drawn after the list
        assert panel.locator(".badge").count() == 2
