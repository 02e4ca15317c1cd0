"""Write cases as the lines of `cases.jsonl`."""

from __future__ import annotations

from agentv.datasets.case.prompts import resolved_data
from agentv.engine.run_plan import Fingerprints, evaluators_of, named_evaluators
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.model.case import EvalCase, text_case_json
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import to_json


class CaseLines:
    """Encodes cases with their evaluators: those of the command, if `given`, else their own."""

    def __init__(self, given: tuple[EvaluatorSpec, ...] | None) -> None:
        self._given = given
        self._files = EvaluatorFiles(own=given is not None)
        self._last: tuple[object, str, bytes] = (None, "", b"")

    def line(self, case: EvalCase, fingerprints: Fingerprints) -> bytes:
        """Return the line of a case with its newline."""
        written = text_case_json(case, fingerprints)
        if written is None:
            data = resolved_data(case)
            del data["evaluators"]
            data["dataset_path"] = case.path
            if case.line:
                data["line"] = case.line
            data["input_fingerprint"], data["fingerprint"] = fingerprints
            written = to_json(data)
        return b"%b,%b\n" % (written[:-1], self._evaluators_json(case))

    def _evaluators_json(self, case: EvalCase) -> bytes:
        """Return the evaluator part of a case line; computed once for consecutive cases that share evaluators."""
        given, files = self._given, self._files
        known, folder, made = self._last
        if known is case.evaluators and folder == case.place.origin.base_dir and not case.turns:
            return made
        specs = case.evaluators if given is None else given
        fingerprints, named_files = files.each_with_files(case, named_evaluators(case, given))
        data = {
            "evaluators": [spec.to_data() for spec in specs],
            "evaluators_fingerprint": files.fingerprint(case, evaluators_of(case, given)),
            "evaluator_fingerprints": fingerprints,
            **({"evaluator_files": named_files} if named_files else {}),
        }
        made = to_json(data)[1:]
        if not case.turns:
            self._last = (case.evaluators, case.place.origin.base_dir, made)
        return made
