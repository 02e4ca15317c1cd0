"""Similarity by embeddings: the targets that return them, their calls, and their errors."""

import pytest

from agentv_testing import FaultyServer

MEANING = {
    "name": "meaning",
    "type": "similarity",
    "method": "embedding",
    "target": "vectors",
    "value": "the blue house",
}
VECTORS = """
def vectors(texts):
    return [[text.count(letter) for letter in "abcdefghij"] for text in texts]

def few(texts):
    return [[1.0]]

def words(texts):
    return "no vectors"

def broken(texts):
    raise ValueError("out of vectors")
"""


def run(project, vectors, *options, **entry):
    project.targets({"name": "default", "provider": "mock"}, {"name": "vectors", **vectors})
    project.dataset("a blue house", "nothing of this", evaluators=[MEANING | entry])
    return project.eval("--target", "default", "--quiet", "--out", "out", *options)


def python(function):
    return {"provider": "python", "function": f"vectors.py:{function}"}


@pytest.fixture
def project(project):
    project.write("vectors.py", VECTORS)
    return project


def openai(server):
    return {"provider": "openai", "model": "small", "base_url": server.url, "api_key": "k"}


def scores(project, out):
    return {id: record["score"] for id, record in project.by_id(out).items()}


def test_a_model_api_makes_embeddings(project):
    with FaultyServer() as server:
        assert run(project, openai(server)).code == 0
        (first, *_) = server.requests
    assert first.path == "/v1/embeddings"
    assert first.body == {"model": "small", "input": ["a blue house", "the blue house"], "encoding_format": "float"}
    records = project.by_id()
    assert records["c0"]["score"] == pytest.approx(2 / 3)
    assert records["c1"]["score"] == 0
    (found,) = records["c0"]["evaluator_results"]
    assert found["reasoning"] == "similarity 0.667 by embedding to 'the blue house'"
    assert found["token_usage"] == {"input": 6, "output": 0}


@pytest.mark.parametrize(
    ("version", "path"),
    [("v1", "/openai/v1/embeddings"), ("2024-10-21", "/openai/deployments/small/embeddings?api-version=2024-10-21")],
)
def test_azure_makes_embeddings_under_its_own_addresses(project, version, path):
    with FaultyServer() as server:
        settings = {
            "provider": "azure",
            "endpoint": server.origin,
            "model": "small",
            "api_key": "k",
            "version": version,
        }
        assert run(project, settings).code == 0
        assert {f"{request.path}?{request.query}".rstrip("?") for request in server.requests} == {path}
    assert project.by_id()["c0"]["score"] == pytest.approx(2 / 3)


def test_embeddings_are_retried_and_cached(project):
    with FaultyServer(faults=["503"]) as server:
        settings = openai(server) | {"retry_initial_delay_ms": 0}
        assert run(project, settings, "--cache").code == 0
        count = server.counts.requests
        assert count == 3
        assert run(project, settings, "--cache", "--out", "again").code == 0
        assert server.counts.requests == count
    assert scores(project, "out") == scores(project, "again")


def test_embeddings_are_recorded_and_replayed(project):
    with FaultyServer() as server:
        assert run(project, openai(server), "--record", "calls.jsonl").code == 0
    assert project.eval("--target", "default", "--quiet", "--replay", "calls.jsonl", "--out", "again").code == 0
    assert scores(project, "out") == scores(project, "again")


def test_an_embedding_score_is_valid_while_its_target_is_unchanged(project):
    with FaultyServer() as server:
        assert run(project, openai(server)).code == 0
        (found,) = project.by_id()["c0"]["evaluator_results"]
        (call,) = found["evaluator_provider_request"]["calls"]
        assert (call["target"], call["embeddings"], call["reply"]) == ("vectors", 2, "2 vectors")
        assert [entry["name"] for entry in project.manifest()["judges"]] == ["vectors"]
        count = server.counts.requests
        for command in (("rescore", "out"), ("eval", "d.yaml", "--target", "default", "--changed-since", "out")):
            assert project.command(*command, "--quiet", "--out", f"same-{command[0]}").code == 0
            assert server.counts.requests == count
        project.targets(
            {"name": "default", "provider": "mock"}, {"name": "vectors", **openai(server), "model": "large"}
        )
        for command in (("rescore", "out"), ("eval", "d.yaml", "--target", "default", "--changed-since", "out")):
            assert project.command(*command, "--quiet", "--out", f"other-{command[0]}").code == 0
            assert [each.body["model"] for each in list(server.requests)[-2:]] == ["large", "large"]


def test_a_judge_of_the_command_does_not_affect_embeddings(project):
    with FaultyServer() as server:
        assert run(project, openai(server)).code == 0
        count = server.counts.requests
        assert project.command("rescore", "out", "--judge", "default", "--quiet", "--out", "second").code == 0
        assert server.counts.requests == count


def test_a_function_makes_embeddings(project):
    assert run(project, python("vectors")).code == 0
    assert 0 < project.by_id()["c1"]["score"] < project.by_id()["c0"]["score"] <= 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("few", "Expected 2 embeddings from the target, got 1"),
        ("words", "did not return embeddings"),
        ("broken", "out of vectors"),
    ],
)
@pytest.mark.parametrize("entry", [{}, {"negate": True}, {"required": True}])
def test_invalid_embeddings_are_an_error_not_a_score(project, function, message, entry):
    assert run(project, python(function) | {"max_retries": 0}, **entry).code == 3
    for record in project.records():
        assert (record["status"], record["score"], record["error"]["class"]) == ("error", None, "evaluator")
        assert message in record["error"]["message"]


REFUSED = [
    ({"provider": "mock"}, {}, "Target 'vectors': provider 'mock' does not support embeddings"),
    ({"provider": "mock"}, {"target": None}, "Evaluator 'meaning' needs one target that returns embeddings"),
    ({"provider": "mock"}, {"target": ["vectors", "default"]}, "needs one target that returns embeddings"),
    ({"provider": "mock"}, {"target": "vector"}, "Unknown target 'vector'"),
    ({"provider": "sentence-transformers", "model": "m"}, {}, "needs a package that is not installed"),
]


@pytest.mark.parametrize(("vectors", "entry", "message"), REFUSED)
def test_embedding_targets_are_checked_before_any_call(project, vectors, entry, message, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    ended = run(project, vectors, **entry)
    assert ended.code == 2
    assert message in ended.stderr
    assert not (project.path / "out").exists()


@pytest.mark.parametrize(("negate", "score"), [(False, 0), (True, None)])
def test_an_empty_answer_has_similarity_zero_and_no_opposite(project, negate, score):
    project.targets({"name": "default", "provider": "mock", "response": ""}, {"name": "vectors", **python("broken")})
    project.dataset("x", evaluators=[{**MEANING, "negate": negate}])
    project.eval("--target", "default", "--quiet", "--out", "out", "--no-gate")
    assert project.records()[0]["score"] == score
