"""The findings of an ablation: for each target, its arms case by case, how often the skill was loaded, and triggers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.comparison.comparison import Comparison, FailOn
from agentv.comparison.comparison_json import comparison_data
from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED
from agentv.evaluators.checks.skill_trigger import loads_skill
from agentv.extensions.skill.arms import WITH, Arm
from agentv.model.result import Result
from agentv.runs.store import RunStore
from agentv.stats.distributions import Interval
from agentv.stats.intervals import wilson

Gate = Literal["regression", "worse", "any-loss", "no-help", "never"]


class Share(msgspec.Struct, frozen=True):
    """A count of a total, with Wilson's interval."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The fraction; None without a total."""
        return self.count / self.total if self.total else None

    @property
    def ci95(self) -> Interval | None:
        """The interval of the fraction."""
        return None if self.value is None else wilson(self.value, self.total)

    def to_data(self) -> dict[str, Any]:
        """Return the fraction as JSON."""
        return {"count": self.count, "total": self.total, "value": self.value, "ci95": self.ci95}


class Triggers(msgspec.Struct, frozen=True, kw_only=True):
    """How often an agent loaded the skill in the answers to a trigger set. Errors are not counted as either."""

    wanted: int = 0
    unwanted: int = 0
    loaded_wanted: int = 0
    loaded_unwanted: int = 0
    errors: int = 0

    @property
    def precision(self) -> Share:
        """Of the answers that loaded the skill, those that should."""
        return Share(self.loaded_wanted, self.loaded_wanted + self.loaded_unwanted)

    @property
    def recall(self) -> Share:
        """Of the answers that should load the skill, those that did."""
        return Share(self.loaded_wanted, self.wanted)

    def to_data(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            **msgspec.to_builtins(self),
            "precision": self.precision.to_data(),
            "recall": self.recall.to_data(),
        }


class TargetFindings(msgspec.Struct, frozen=True, kw_only=True):
    """One target. `baselines` compares the arm `with` with each other arm, by label; `loads` are answers by arm."""

    target: str
    arms: tuple[Arm, ...]
    baselines: dict[str, Comparison] = {}
    loads: dict[str, Share] = {}
    triggers: dict[str, Triggers] = {}

    @property
    def contaminated(self) -> int:
        """The number of answers without the skill that loaded it nevertheless."""
        found = self.loads.get("without")
        return found.count if found is not None else 0

    def exit_code(self, gate: Gate) -> int:
        """Return the exit code of a gate: that of `compare` for each baseline."""
        if gate == "never":
            return EXIT_OK
        if self.contaminated:
            return EXIT_UNDECIDED
        codes = []
        for label, comparison in self.baselines.items():
            # An earlier version must not be better; only the arm without is to be beaten.
            on: FailOn = gate if gate != "no-help" else "regression" if label == "previous" else "inconclusive"
            codes.append(comparison.exit_code(on))
        return worst(codes)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All findings. `subject` names what was measured: "the skill 'x'"."""

    subject: str
    targets: tuple[TargetFindings, ...]
    folders: dict[str, str]
    versions: dict[str, str] = {}
    trials: int | None = None

    def exit_code(self, gate: Gate) -> int:
        """Return 1 if a target fails the gate, else 5 if one cannot tell, else 0."""
        return worst(each.exit_code(gate) for each in self.targets)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several: a shown failure before one that cannot tell."""
    found = set(codes)
    return EXIT_FINDINGS if EXIT_FINDINGS in found else EXIT_UNDECIDED if EXIT_UNDECIDED in found else EXIT_OK


def find(arms: Iterable[Arm], runs: Mapping[str, Path], skill: str | None, changes: int) -> tuple[TargetFindings, ...]:
    """Return the findings for each target. `runs` are the folders of the runs `evals` and `triggers`, if they exist."""
    by_target: dict[str, list[Arm]] = {}
    for arm in arms:
        by_target.setdefault(arm.base, []).append(arm)
    loads = _loads(runs["evals"], skill) if skill is not None and "evals" in runs else {}
    triggers = _triggers(runs["triggers"]) if "triggers" in runs else {}
    return tuple(
        TargetFindings(
            target=target,
            arms=tuple(own),
            baselines=dict(_baselines(own, runs["evals"], changes)) if "evals" in runs else {},
            loads={arm.label: loads[arm.name] for arm in own if arm.name in loads},
            triggers={arm.label: triggers[arm.name] for arm in own if arm.name in triggers},
        )
        for target, own in by_target.items()
    )


def _baselines(arms: list[Arm], run: Path, changes: int) -> Iterator[tuple[str, Comparison]]:
    own = next(arm for arm in arms if arm.label == WITH)
    for arm in arms:
        if arm is not own:
            before, after = (RunScores(run, each.name, each.name) for each in (arm, own))
            yield arm.label, compare_runs(before, after, CompareOptions(changes=changes))


def _loads(run: Path, skill: str) -> dict[str, Share]:
    """Count the answers of each arm that loaded the skill."""
    found: dict[str, Share] = {}
    for record in RunStore.open(run).records():
        if record.status != "error":
            before = found.get(record.target, Share(0, 0))
            found[record.target] = Share(before.count + _has_loaded(record, skill), before.total + 1)
    return found


def _has_loaded(record: Result, skill: str) -> bool:
    calls = (call for message in record.output_messages for call in message.get("tool_calls") or ())
    return any(loads_skill(str(call.get("tool")), call.get("input"), call.get("output"), skill) for call in calls)


def _triggers(run: Path) -> dict[str, Triggers]:
    """Count how often each arm loaded the skill when it should, and when it should not."""
    found: dict[str, dict[str, int]] = {}
    for record in RunStore.open(run).records():
        counts = found.setdefault(record.target, dict.fromkeys(Triggers.__struct_fields__, 0))
        details = [each.details for each in record.evaluator_results if each.type == "skill_trigger"]
        known = [each for each in details if isinstance(each, dict) and "loaded" in each]
        if not known:
            counts["errors"] += 1
        for each in known:
            kind = "wanted" if each["should_trigger"] else "unwanted"
            counts[kind] += 1
            counts[f"loaded_{kind}"] += bool(each["loaded"])
    return {target: Triggers(**counts) for target, counts in found.items()}


def findings_data(findings: Findings, gate: Gate, exit_code: int) -> dict[str, Any]:
    """Return the findings as JSON."""
    return {
        "subject": findings.subject,
        "fail_on": gate,
        "exit_code": exit_code,
        "runs": findings.folders,
        "versions": findings.versions,
        "targets": [
            {
                "target": each.target,
                "arms": {arm.label: arm.name for arm in each.arms},
                "exit_code": each.exit_code(gate),
                "contaminated": each.contaminated,
                "loaded": {label: share.to_data() for label, share in each.loads.items()},
                "triggers": {label: counts.to_data() for label, counts in each.triggers.items()},
                "against": {
                    label: {**comparison_data(found, each.exit_code(gate)), "answer": found.answer}
                    for label, found in each.baselines.items()
                },
            }
            for each in findings.targets
        ],
    }
