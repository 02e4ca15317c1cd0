"""Files in answers, which `preprocessors` turn into text for a judge."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest

from agentv.evaluators.judges.answer_files import Preprocessor, with_file_texts
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.message import FilePart, ImagePart, Message, TextPart
from agentv.model.response import answer

UPPER = "import json, pathlib, sys; file = json.load(sys.stdin); print(pathlib.Path(file['path']).read_text().upper())"
SHOW = "import sys; print(sys.stdin.read())"


def python(type_, code, **settings):
    return Preprocessor(type=type_, command=[sys.executable, "-c", code], **settings)


def text_for_the_judge(scoring, folder, part, *preprocessors, answer="Done."):
    messages = (Message("assistant", (TextPart("Done."), part)),)
    judgement = scoring.judgement(answer, messages=messages, workdir=str(folder))
    return asyncio.run(with_file_texts(preprocessors, judgement)).candidate_answer


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "report.csv").write_bytes(b"a,b\r\n1,2")
    (folder / "report.bin").write_bytes(b"\xff\0")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


@pytest.mark.parametrize(
    ("part", "preprocessor", "expected"),
    [
        (FilePart("report.csv"), python("csv", UPPER), "A,B"),
        (FilePart("report.csv"), python(".CSV", UPPER), "A,B"),
        (FilePart("report.csv"), python("text/csv", UPPER), "A,B"),
        (FilePart("report.csv", media_type="application/x-own"), python("application/x-own", UPPER), "A,B"),
        (FilePart("report.csv", media_type="application/x-own"), python("csv", UPPER), "A,B"),
        (FilePart("report.csv"), python("pdf", UPPER), "a,b\n1,2"),
    ],
)
def test_a_preprocessor_is_chosen_by_media_type_or_extension(scoring, folder, part, preprocessor, expected):
    text = text_for_the_judge(scoring, folder, part, preprocessor)
    assert text.startswith(f"Done.\n[[ file: report.csv ]]\n{expected}")


def test_a_program_receives_the_path_and_the_media_type(scoring, folder):
    text = text_for_the_judge(scoring, folder, FilePart("report.csv", media_type="x/y"), python("x/y", SHOW))
    received = json.loads(text.splitlines()[-1])
    assert received == {
        "path": str((folder / "report.csv").resolve()),
        "original_path": "report.csv",
        "media_type": "x/y",
    }


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        ("report.csv", "import sys; sys.exit('broken')", "broken"),
        ("report.csv", "print()", "The preprocessor for 'csv' printed no text"),
        ("report.bin", UPPER, "'report.bin' is not text. Add a preprocessor for 'application/octet-stream'"),
        ("missing.csv", UPPER, "'missing.csv' was not found"),
        ("../secret.txt", UPPER, "outside the dataset's folder and was not read"),
        ("/etc/passwd", UPPER, "outside the dataset's folder and was not read"),
        ("link.txt", UPPER, "outside the dataset's folder and was not read"),
        ("https://example.com/a.csv", UPPER, "is not a local file"),
    ],
)
def test_a_file_that_cannot_be_converted_is_an_error(scoring, folder, file, code, message):
    with pytest.raises(EvaluatorFailure, match=message.replace("(", ".")):
        text_for_the_judge(scoring, folder, FilePart(file), python("csv", code))


def test_preprocessors_and_a_transform_are_refused_together(scoring, folder):
    with pytest.raises(EvaluatorFailure, match="cannot be combined with 'transform'"):
        text_for_the_judge(scoring, folder, FilePart("report.csv"), python("csv", UPPER), answer="done")


def test_without_preprocessors_no_file_is_read(scoring, folder):
    assert text_for_the_judge(scoring, folder, FilePart("../secret.txt")) == "Done."


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("report.csv", "a,b\n1,2"),
        ("report.bin", "(not shown: The answer's file 'report.bin' is not text."),
        ("../secret.txt", "(not shown: The answer's file '../secret.txt' is outside the workspace and was not read)"),
        ("missing.csv", "(not shown: The answer's file 'missing.csv' was not found"),
    ],
)
def test_without_preprocessors_text_files_of_the_workspace_are_read(scoring, folder, file, text):
    judgement = scoring.judgement("", messages=(Message("assistant", (FilePart(file),)),), workdir=str(folder.parent))
    judgement.request.job_workspace = SimpleNamespace(path=str(folder))
    shown = asyncio.run(with_file_texts((), judgement)).candidate_answer
    assert shown.startswith(f"[[ file: {file} ]]\n{text}")


PNG = "data:image/png;base64,dGVzdA=="


def test_a_judge_sees_the_images_of_an_answer_that_have_an_address(scoring):
    prompts = []

    async def ask(judge, messages, overrides):
        prompts.append(messages)
        return answer('{"score": 1}')

    shown = (ImagePart(PNG), ImagePart("https://x.test/a.png"))
    messages = (
        Message("user", (ImagePart("https://x.test/own.png"),)),
        Message("assistant", (TextPart("See:"), *shown, ImagePart("local.png"), FilePart("b.csv"))),
    )
    judgement = scoring.judgement("See:", messages=messages, ask=ask, judges=("judge",))
    assert scoring.run(scoring.evaluator("llm_judge"), judgement).score == 1
    assert prompts[0][-1] == Message("user", shown)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([{"type": " ", "command": ["cat"]}], "'preprocessors[0].type' is blank"),
        ([{"type": "csv", "command": []}], "'preprocessors[0].command' must name a program"),
        (
            [{"type": "csv", "command": "cat"}, {"type": "text/csv", "command": "cat"}],
            "'preprocessors[1].type' repeats the type 'text/csv'",
        ),
    ],
)
def test_invalid_preprocessors_are_reported(scoring, entries, problem):
    preprocessors = [Preprocessor(**entry) for entry in entries]
    evaluator = scoring.evaluator("llm_judge")
    assert type(evaluator)(preprocessors=preprocessors).complaints() == [problem]
