"""A grader whose reply is in the prompt: `REPLY<[[...]]>` is JSON, and any other prompt with "good" passes."""

import json


def call_api(prompt, options, context):
    if "REPLY<" in prompt:
        return {"output": prompt.split("REPLY<")[1].split(">")[0].replace("[[", "{").replace("]]", "}")}
    if "EXACT<" in prompt:
        expected, _, rest = prompt.split("EXACT<")[1].partition(">")
        return {"output": json.dumps({"pass": expected == rest, "score": 0.5, "reason": rest})}
    is_good = "good" in prompt
    return {"output": json.dumps({"pass": is_good, "score": 0.75 if is_good else 0.25, "reason": "it has good"})}
