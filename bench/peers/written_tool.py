"""Convert one dataset for each tool that `agentv convert --to` writes, and record that the tool loads and scores it.

The answer to a case is its text. Each tool compares it as it does by default, without a model.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promptfoo
from peer_tools import DATA, PeerError, npm_package, npm_version, python_with, run_tool, temporary_folder

FILES = {
    "promptfoo": "promptfoo.yaml",
    "inspect": "inspect.jsonl",
    "deepeval": "deepeval.json",
    "agent-skills": "evals.json",
    "openai-evals": "openai-evals.jsonl",
    "adk": "adk.evalset.json",
}
"""The file that is written for each tool, next to the dataset."""

_RECORD = """
import json, sys
from importlib.metadata import version

def record(package, case, evaluator, answer, passed, score, error=None):
    fields = {"version": version(package), "case": case, "evaluator": evaluator, "answer": answer}
    outcome = {"passed": passed, "score": score, **({"error": error} if error else {})}
    print(json.dumps({**fields, **outcome}))
"""
_INSPECT = """
import asyncio
from inspect_ai.dataset import json_dataset
from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.scorer import Target, includes
from inspect_ai.solver import TaskState

for sample in json_dataset(sys.argv[1]):
    answer = sample.input if isinstance(sample.input, str) else sample.input[-1].text
    output = ModelOutput.from_content("mockllm/model", answer)
    model = ModelName("mockllm/model")
    state = TaskState(model=model, sample_id=sample.id, epoch=1, input=sample.input, messages=[], output=output)
    value = asyncio.run(includes()(state, Target(sample.target))).value
    record("inspect-ai", str(sample.id), "includes", answer, value == "C", float(value == "C"))
"""
_DEEPEVAL = """
from deepeval.dataset import EvaluationDataset
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

dataset = EvaluationDataset()
dataset.add_goldens_from_json_file(sys.argv[1])
for golden in dataset.goldens:
    fields = ("deepeval", golden.name, "ExactMatch", golden.input)
    case = LLMTestCase(input="x", actual_output=golden.input, expected_output=golden.expected_output)
    metric = ExactMatchMetric()
    try:
        metric.measure(case, False)
    except Exception as error:
        record(*fields, None, None, type(error).__name__)
    else:
        record(*fields, bool(metric.is_successful()), float(metric.score))
"""
_OPENAI = """
import os
os.environ.setdefault("OPENAI_API_KEY", "none")
from evals.data import get_jsonl
from evals.elsuite.basic.match import Match
from evals.record import DummyRecorder
from evals.base import RunSpec
import random

class Copy:
    def __init__(self, prompt): self.prompt = prompt
    def get_completions(self): return [self.prompt[-1]["content"]]

match = Match(completion_fns=[lambda prompt, **_: Copy(prompt)], samples_jsonl=sys.argv[1], eval_registry_path=None)
for number, sample in enumerate(get_jsonl(sys.argv[1])):
    answer = sample["input"][-1]["content"]
    fields = ("evals", sample["metadata"]["agentv"]["id"], "Match", answer)
    spec = RunSpec(completion_fns=["x"], eval_name="x.y.z", base_eval="x", split="y", run_config={}, created_by="")
    recorder = DummyRecorder(spec, log=False)
    with recorder.as_default_recorder(str(number)):
        try:
            match.eval_sample(sample, random.Random(0))
        except AssertionError as error:
            record(*fields, None, None, str(error))
        else:
            passed = bool(recorder.get_events("match")[-1].data["correct"])
            record(*fields, passed, float(passed))
"""
_ADK = """
from google.adk.evaluation.eval_case import Invocation
from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.evaluator import EvalStatus
from google.adk.evaluation.final_response_match_v1 import RougeEvaluator
from google.adk.evaluation.local_eval_sets_manager import load_eval_set_from_file
from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator

rouge = RougeEvaluator(EvalMetric(metric_name="response_match_score", threshold=0.8))
calls = TrajectoryEvaluator(threshold=1.0)
for case in load_eval_set_from_file(sys.argv[1], "written").eval_cases:
    contents = [turn.user_content for turn in case.conversation]
    actual = [Invocation(user_content=content, final_response=content) for content in contents]
    results = [evaluator.evaluate_invocations(actual, case.conversation) for evaluator in (rouge, calls)]
    passed = all(result.overall_eval_status == EvalStatus.PASSED for result in results)
    record("google-adk", case.eval_id, "default criteria", contents[-1].parts[0].text, passed, results[0].overall_score)
"""
_EVALS_IMPORTS = (
    *("backoff", "blobfile", "dacite", "filelock", "fire", "lz4", "mock", "numpy", "openai", "pydantic", "pyyaml"),
    *("requests", "termcolor", "tiktoken", "tqdm", "zstandard"),
)
_PROGRAMS: dict[str, tuple[str, list[str], list[str]]] = {
    "inspect": (_INSPECT, ["inspect-ai"], []),
    "deepeval": (_DEEPEVAL, ["deepeval"], []),
    "adk": (_ADK, ["google-adk", "rouge-score"], []),
    "openai-evals": (
        _OPENAI,
        [*_EVALS_IMPORTS],
        ["evals"],
    ),
}
"""For each tool, a program that records, the packages it needs, and those installed without their dependencies."""


def convert(folder: Path) -> None:
    """Write the dataset in a folder for each tool."""
    for tool, name in FILES.items():
        command = [sys.executable, "-m", "agentv", "convert", "cases.yaml", name, "--to", tool, "--force", "--quiet"]
        run_tool(command, folder)


def records() -> Iterator[dict[str, Any]]:
    """Write the files for all tools, and yield what each tool makes of its file."""
    source = DATA / "written"
    convert(source)
    folder = temporary_folder("written")
    shutil.copytree(source, folder, dirs_exist_ok=True)
    yield from _promptfoo(folder)
    yield from _skills(folder)
    for tool, (program, packages, alone) in _PROGRAMS.items():
        python = python_with(packages, f"PEERS_PYTHON_{tool.partition('-')[0].upper()}", alone)
        env = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_DISABLE_DOTENV": "1"}
        ended = run_tool([python, "-c", _RECORD + program, FILES[tool]], folder, env)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"version"')]
        yield from ({"tool": tool, "file": FILES[tool], **line} for line in lines)


def _promptfoo(folder: Path) -> Iterator[dict[str, Any]]:
    package = npm_package("promptfoo", "PROMPTFOO_PACKAGE", promptfoo.VERSION)
    for result in promptfoo.results_of(package, folder, FILES["promptfoo"]):
        fields = {"tool": "promptfoo", "version": npm_version(package), "file": FILES["promptfoo"]}
        case = {"case": result["testCase"]["description"], "evaluator": "test", "answer": result["prompt"]["raw"]}
        yield {**fields, **case, "passed": bool(result["success"]), "score": result["score"]}


def _skills(folder: Path) -> Iterator[dict[str, Any]]:
    """Check the evals of a skill with a linter of such files. It scores nothing, so that no verdict is recorded."""
    python = python_with(["skillsaw"], "PEERS_PYTHON_SKILLS")
    skill = folder / "skill"
    (skill / "evals").mkdir(parents=True)
    shutil.copy(folder / FILES["agent-skills"], skill / "evals" / "evals.json")
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: Names cities\n---\n\nName cities.\n", "utf-8")
    version = run_tool([python, "-c", "from importlib.metadata import version; print(version('skillsaw'))"], skill)
    ended = run_tool([python, "-m", "skillsaw", "lint", str(skill)], skill, codes=(0, 1))
    problems = [line for line in ended.stdout.splitlines() if "ERROR" in line]
    if problems:
        raise PeerError("\n".join(problems))
    for case in json.loads((skill / "evals" / "evals.json").read_text("utf-8"))["evals"]:
        fields = {"tool": "agent-skills", "version": version.stdout.strip(), "file": FILES["agent-skills"]}
        yield {**fields, "case": str(case["id"]), "evaluator": "skillsaw", "answer": case["prompt"], "passed": None}
