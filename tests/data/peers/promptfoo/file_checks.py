def get_assert(output, context):
    return {"pass": False, "score": 0.9, "reason": "no"}


def other(output, context):
    return len(output) >= context["config"]["least"]
