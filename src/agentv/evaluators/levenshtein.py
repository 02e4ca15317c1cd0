"""Edit distance: how many characters of the answer must change."""

from __future__ import annotations

from agentv.evaluators.base import Count, Limit
from agentv.evaluators.reference import AgainstReference, Scalar, reference_text, text_of
from agentv.evaluators.scoring import limited, near, quoted
from agentv.model.judgement import Judgement
from agentv.model.score import Score


class Levenshtein(AgainstReference, frozen=True, kw_only=True, dict=True):
    """One minus the share of characters to change; with `threshold` or `max_distance` (a number of edits), 0 or 1."""

    value: Scalar | None = None
    threshold: Limit | None = None
    max_distance: Count | None = None

    def score(self, judgement: Judgement) -> Score:
        """How little of the longer text must change, or whether that is little enough."""
        from rapidfuzz.distance.Levenshtein import distance  # late: few datasets need it, and it takes 30 ms

        wanted = reference_text(judgement) if self.value is None else text_of(self.value)
        answer = judgement.candidate_answer.strip()
        edits = distance(answer, wanted)
        share = 1.0 - edits / max(len(answer), len(wanted), 1)
        sentence = f"{edits} {'edit' if edits == 1 else 'edits'} away from {quoted(wanted)}, similarity {share:.3g}"
        if self.max_distance is not None:
            return limited(edits <= self.max_distance, f"{sentence}; at most {self.max_distance} edits wanted")
        return near(share, self.threshold, sentence)

    def complaints(self) -> list[str]:
        """A threshold that is meant as a number of edits, or both limits."""
        if self.threshold is not None and self.max_distance is not None:
            return ["Give 'threshold' or 'max_distance', not both"]
        if self.threshold is not None and self.threshold > 1:
            return ["'threshold' is a share from 0 to 1; a number of edits goes into 'max_distance'"]
        return []
