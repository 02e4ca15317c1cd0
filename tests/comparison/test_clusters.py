"""Clusters of cases: the `cluster` key, dominating clusters, and shared texts without a cluster."""

import numpy as np
import pytest
from compared_runs import record, write_run

from agentv.comparison.run_comparison import compare_runs
from agentv.comparison.scores import RunScores
from agentv.model.case import case_to_data
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.paired_comparison import compare_paired

DOCUMENTS = [f"Document {n}. " + f"Clause {n} says that goods may be returned. " * 12 for n in range(6)]


def rows(**more):
    """Four questions about each of six documents."""
    for number, text in enumerate(DOCUMENTS * 4):
        known = {name: value.format(number % 6) for name, value in more.items()}
        yield {"id": str(number), "expected_outcome": "x", "input": f"{text}\nQuestion {number}?", **known}


def compared(folder, *sides):
    runs = [write_run(folder / name, *side) for name, side in zip("ab", sides, strict=True)]
    return compare_runs(*(RunScores(path, path.name) for path in runs))


def test_the_cluster_of_a_case_wins_over_its_conversation(tmp_path):
    sides = [
        [record(str(n), float(n % 3 > side), cluster=str(n % 6), conversation_id=str(n)) for n in range(24)]
        for side in (0, 1)
    ]
    assert compared(tmp_path, *sides).paired.clusters == 6


@pytest.mark.parametrize(
    ("case", "sidecar", "cluster"),
    [
        ({"cluster": "a"}, {}, "a"),
        ({"cluster": 7}, {}, "7"),
        ({"cluster": "a"}, {"cluster": "b"}, "a"),
        ({}, {"cluster": "b"}, "b"),
        ({"metadata": {"document": "terms.pdf"}}, {"cluster": "{{ metadata.document }}"}, "terms.pdf"),
    ],
)
def test_a_cluster_is_read_from_the_case_or_the_sidecar(folder, case, sidecar, cluster):
    (read,) = folder.rows({"id": "1", "expected_outcome": "x", "input": "q", **case}, sidecar=sidecar)
    assert (read.cluster, case_to_data(read)["cluster"]) == (cluster, cluster)


def test_a_sidecar_cluster_that_names_a_missing_value_is_an_error(folder):
    row = {"id": "1", "expected_outcome": "x", "input": "q"}
    error = folder.row_error(row, sidecar={"cluster": "{{ metadata.document.name }}"})
    assert "The dataset's 'cluster' cannot be rendered" in str(error)


@pytest.mark.parametrize("sizes", [[80] + [1] * 20, [40, 40] + [1] * 20, [64, 32, 16, 8, 4, 2, 1]])
def test_there_is_no_interval_if_one_or_two_clusters_dominate(sizes):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.random.default_rng(0).random((2, len(clusters))).round()
    paired, mean = compare_paired(*scores, clusters), MeanAccumulator()
    for score, cluster in zip(scores[0].tolist(), clusters.tolist(), strict=True):
        mean.add(score, cluster)
    assert (paired.ci95, paired.p_value, paired.answer, mean.ci95) == (None, None, "cannot tell", None)


def test_validate_warns_about_cases_that_share_a_document(folder, command):
    folder.write("d.jsonl", list(rows()))
    assert "24 of 24 cases share long texts" in command("validate", "d.jsonl").stdout
    folder.write("d.jsonl", list(rows(cluster="document {}")))
    assert "share long texts" not in command("validate", "d.jsonl").stdout


def test_instructions_in_every_case_are_not_a_shared_document(folder, command):
    folder.write("d.jsonl", [{**row, "input": DOCUMENTS[0] + row["id"]} for row in rows()])
    assert "share long texts" not in command("validate", "d.jsonl").stdout


def test_eval_and_compare_warn_until_the_documents_are_declared_as_clusters(folder, command):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "x"}]})
    folder.write("d.yaml", {"evaluators": [{"name": "x", "type": "contains", "value": "x"}]})
    for name, more in (("plain", {}), ("declared", {"cluster": "document {}"})):
        folder.write("d.jsonl", list(rows(**more)))
        for run in "ab":
            printed = command("eval", "d.jsonl", "--out", f"{name}-{run}").stderr
            assert ("24 of 24 cases share long texts" in printed) == (name == "plain")
    assert "24 of 24 cases share long texts" in command("compare", "plain-a", "plain-b").stdout
    printed = command("compare", "declared-a", "declared-b").stdout
    assert "share long texts" not in printed and "6 clusters" in printed
