def get_assert(output, context):
    return {"pass": context["vars"]["text"] in output, "score": 0.5, "reason": "found"}


def longer(output, context):
    return len(output) > context["config"]["least"]
