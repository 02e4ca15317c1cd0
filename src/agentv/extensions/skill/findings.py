"""The findings of an ablation: for each target, its arms case by case, how often the skill was loaded, and triggers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from agentv.comparison.comparison import Comparison, FailOn, worst_exit_code
from agentv.comparison.comparison_json import comparison_data
from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.part_comparison import adjusted_p_values
from agentv.comparison.run_comparison import CompareOptions, compare_joined
from agentv.comparison.scores import RunScores
from agentv.errors import EXIT_OK, EXIT_UNDECIDED
from agentv.evaluators.checks.tool_trajectory import loads_skill
from agentv.extensions.skill.arms import WITH, WITHOUT, Arm
from agentv.runs.store import RunStore
from agentv.stats.distributions import Interval
from agentv.stats.intervals import wilson
from agentv.stats.paired_comparison import Paired


class Share(msgspec.Struct, frozen=True):
    """A count of a total of answers, with Wilson's interval over their cases: trials of a case are not independent."""

    count: int
    total: int
    cases: int

    @property
    def value(self) -> float | None:
        """The fraction; None without a total."""
        return self.count / self.total if self.total else None

    @property
    def ci95(self) -> Interval | None:
        """The interval of the fraction."""
        return None if self.value is None else wilson(self.value, self.cases)

    def to_data(self) -> dict[str, Any]:
        """Return the fraction as JSON."""
        return {**msgspec.to_builtins(self), "value": self.value, "ci95": self.ci95}


_NO_ANSWERS = Share(0, 0, 0)
Loads = dict[tuple[str, str], Share]
"""The answers to each case that loaded the skill, by dataset and id."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How often the skill was loaded, and the differences by it, which have no verdict.

    The agent chooses when to load the skill, so the comparison of answers that loaded it with others is not randomised.
    `loaded` and `not_loaded` compare the cases whose answers all loaded the skill, or none of them. The answers to
    `mixed` cases differ, and those cases are in neither.
    """

    answers: Share
    mixed: int = 0
    loaded: Paired | None = None
    not_loaded: Paired | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the split as JSON."""
        return {
            "answers": self.answers.to_data(),
            "when_loaded": _data(self.loaded),
            "when_not_loaded": _data(self.not_loaded),
            "mixed_cases": self.mixed,
            "randomised": False,
        }


def _data(paired: Paired | None) -> dict[str, Any] | None:
    return None if paired is None else {"n": paired.n, "mean_delta": paired.mean_delta, "ci95": paired.ci95}


def split_by_reach(joined: JoinedCases, loads: Loads) -> Reach | None:
    """Return the split of a comparison without and with the skill; None if no answer has a case of both arms."""
    shares = [loads.get(_case_of(joined, row), _NO_ANSWERS) for row in range(len(joined.index))]
    if not sum(share.total for share in shares):
        return None
    total = Share(sum(share.count for share in shares), sum(share.total for share in shares), len(shares))
    rows = {
        "loaded": [row for row, share in enumerate(shares) if share.total and share.count == share.total],
        "not_loaded": [row for row, share in enumerate(shares) if share.total and not share.count],
    }
    parts = {name: joined.columns.rows(np.asarray(own)).compare(0, test=False) for name, own in rows.items() if own}
    mixed = len(shares) - sum(map(len, rows.values()))
    return Reach(answers=total, mixed=mixed, **parts)


def _case_of(joined: JoinedCases, row: int) -> tuple[str, str]:
    side = joined.sides[1]
    dataset, id, *_ = side.run.cases.key(int(side.first[int(joined.index[row][1])]))
    return dataset or "", id or ""


Gate = Literal["regression", "worse", "any-loss", "no-help", "never"]


class Triggers(msgspec.Struct, frozen=True, kw_only=True):
    """How often an agent loaded the skill in the answers to a trigger set. Errors are not counted as either."""

    wanted: int = 0
    unwanted: int = 0
    loaded_wanted: int = 0
    loaded_unwanted: int = 0
    errors: int = 0
    wanted_cases: int = 0
    loaded_cases: int = 0

    @property
    def precision(self) -> Share:
        """Of the answers that loaded the skill, those that should."""
        return Share(self.loaded_wanted, self.loaded_wanted + self.loaded_unwanted, self.loaded_cases)

    @property
    def recall(self) -> Share:
        """Of the answers that should load the skill, those that did."""
        return Share(self.loaded_wanted, self.wanted, self.wanted_cases)

    def to_data(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {**msgspec.to_builtins(self), "precision": self.precision.to_data(), "recall": self.recall.to_data()}


class TargetFindings(msgspec.Struct, frozen=True, kw_only=True):
    """One target. `baselines` compares the arm `with` with each other arm, by label; `loads` are answers by arm.

    `reach` splits the comparison with the arm `without`. `reuse` are its answers that another run made.
    """

    target: str
    arms: tuple[Arm, ...]
    baselines: dict[str, Comparison] = {}
    loads: dict[str, Share] = {}
    triggers: dict[str, Triggers] = {}
    reach: Reach | None = None
    reuse: Share | None = None

    @property
    def contaminated(self) -> int:
        """The number of answers without the skill that loaded it nevertheless."""
        share = self.loads.get(WITHOUT)
        return share.count if share is not None else 0

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
        return worst_exit_code(codes)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All findings. `subject` names what was measured: "the skill 'x'"."""

    subject: str
    targets: tuple[TargetFindings, ...]
    folders: dict[str, str]
    versions: dict[str, str] = {}
    trials: int | None = None

    def exit_code(self, gate: Gate) -> int:
        """Return 1 if a target fails the gate, else 5 if one cannot tell, else 0."""
        return worst_exit_code(finding.exit_code(gate) for finding in self.targets)


def find(arms: Iterable[Arm], runs: Mapping[str, Path], skill: str | None, changes: int) -> tuple[TargetFindings, ...]:
    """Return the findings for each target. `runs` are the folders of the runs `evals` and `triggers`, if they exist."""
    by_target: dict[str, list[Arm]] = {}
    for arm in arms:
        by_target.setdefault(arm.base, []).append(arm)
    answers = _answers(runs["evals"], skill) if "evals" in runs else {}
    triggers = _triggers(runs["triggers"]) if "triggers" in runs else {}
    return _adjusted(
        TargetFindings(
            target=target,
            arms=tuple(own),
            loads={arm.label: answers[arm.name].total for arm in own if skill is not None and arm.name in answers},
            triggers={arm.label: triggers[arm.name] for arm in own if arm.name in triggers},
            **_compared(own, runs["evals"], changes, answers, skill) if "evals" in runs else {},
        )
        for target, own in by_target.items()
    )


def _adjusted(targets: Iterable[TargetFindings]) -> tuple[TargetFindings, ...]:
    """Adjust the p-values of each baseline for the number of targets (Holm), and say so in a note."""
    findings = list(targets)
    for label in {label: None for each in findings for label in each.baselines}:
        family = {place: each.baselines[label] for place, each in enumerate(findings) if label in each.baselines}
        paired = {place: comparison.paired for place, comparison in family.items() if comparison.paired is not None}
        if len(paired) < 2:
            continue
        for (place, before), p_value in zip(paired.items(), adjusted_p_values(paired.values()), strict=True):
            note = f"p is adjusted for {len(paired)} targets (Holm)"
            comparison = msgspec.structs.replace(
                family[place], paired=before._replace(p_value=p_value), notes=(*family[place].notes, note)
            )
            baselines = {**findings[place].baselines, label: comparison}
            findings[place] = msgspec.structs.replace(findings[place], baselines=baselines)
    return tuple(findings)


class _ArmAnswers(msgspec.Struct):
    """The answers of one arm: how many of each case loaded the skill, and how many another run made."""

    loads: Loads = {}
    reused: int = 0

    @property
    def total(self) -> Share:
        shares = self.loads.values()
        return Share(sum(share.count for share in shares), sum(share.total for share in shares), len(shares))


def _compared(
    arms: list[Arm], run: Path, changes: int, answers: Mapping[str, _ArmAnswers], skill: str | None
) -> dict[str, Any]:
    """Return what compares the arms of a target: `baselines`, `reach` and `reuse`."""
    own = next(arm for arm in arms if arm.label == WITH)
    fields: dict[str, Any] = {"baselines": {}}
    for arm in arms:
        if arm is own:
            continue
        joined = JoinedCases(*(RunScores(run, side.name, side.name) for side in (arm, own)))
        fields["baselines"][arm.label] = compare_joined(joined, CompareOptions(changes=changes))
        if arm.label == WITHOUT and arm.name in answers:
            before = answers[arm.name]
            fields["reuse"] = msgspec.structs.replace(before.total, count=before.reused)
            if skill is not None and own.name in answers:
                fields["reach"] = split_by_reach(joined, answers[own.name].loads)
    return fields


def _answers(run: Path, skill: str | None) -> dict[str, _ArmAnswers]:
    """Count the answers of each arm that loaded the skill, by case."""
    arms: dict[str, _ArmAnswers] = {}
    for record in RunStore.open(run).records():
        if record.status != "error":
            arm = arms.setdefault(record.target, _ArmAnswers())
            case = record.dataset or "", record.eval_id
            before = arm.loads.get(case, _NO_ANSWERS)
            calls = (call for message in record.output_messages for call in message.get("tool_calls") or ())
            loaded = skill is not None and any(
                loads_skill(str(call.get("tool")), call.get("input"), call.get("output"), skill) for call in calls
            )
            arm.loads[case] = Share(before.count + loaded, before.total + 1, 1)
            arm.reused += record.carried_from is not None
    return arms


def _triggers(run: Path) -> dict[str, Triggers]:
    """Count how often each arm loaded the skill when it should, and when it should not."""
    counts_by_target: dict[str, dict[str, int]] = {}
    cases: dict[tuple[str, str], set[tuple[str | None, str]]] = {}
    for record in RunStore.open(run).records():
        counts = counts_by_target.setdefault(record.target, dict.fromkeys(Triggers.__struct_fields__, 0))
        details = [entry.details for entry in record.evaluator_results if entry.type == "skill_trigger"]
        outcomes = [entry for entry in details if isinstance(entry, dict) and "loaded" in entry]
        if not outcomes:
            counts["errors"] += 1
        for entry in outcomes:
            kind = "wanted" if entry["should_trigger"] else "unwanted"
            counts[kind] += 1
            counts[f"loaded_{kind}"] += bool(entry["loaded"])
            for name, counted in (("wanted_cases", entry["should_trigger"]), ("loaded_cases", entry["loaded"])):
                own = cases.setdefault((record.target, name), set())
                own |= {(record.dataset, record.eval_id)} if counted else set()
                counts[name] = len(own)
    return {target: Triggers(**counts) for target, counts in counts_by_target.items()}


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
                "target": finding.target,
                "arms": {arm.label: arm.name for arm in finding.arms},
                "exit_code": finding.exit_code(gate),
                "contaminated": finding.contaminated,
                "loaded": {label: share.to_data() for label, share in finding.loads.items()},
                "reach": finding.reach and finding.reach.to_data(),
                "reused": finding.reuse and finding.reuse.to_data(),
                "triggers": {label: counts.to_data() for label, counts in finding.triggers.items()},
                "against": {
                    label: {**comparison_data(comparison, finding.exit_code(gate)), "answer": comparison.answer}
                    for label, comparison in finding.baselines.items()
                },
            }
            for finding in findings.targets
        ],
    }
