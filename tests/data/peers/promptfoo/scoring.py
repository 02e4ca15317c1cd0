def get_assert(named_scores, context):
    return {"pass": False, "score": 0.2, "reason": "never"}


def func(named_scores, context):
    return {"pass": named_scores.get("a", 0) > 0.5, "score": len(context["componentResults"]) / 10, "reason": "a"}


def incomplete(named_scores, context):
    return {"pass": True}
