"""Collect datasets as tests of pytest, and record the outcomes of tests as a run."""

ROWS = {
    "agentv.services": {
        "pytest-datasets": "agentv.extensions.pytest.eval_items:DatasetCollector",
        "pytest-runs": "agentv.extensions.pytest.recorded_tests:RunRecorder",
    },
}
