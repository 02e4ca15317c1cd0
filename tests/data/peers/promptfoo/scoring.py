def get_assert(named_scores, context):
    return {"pass": False, "score": 0.2, "reason": "never"}
