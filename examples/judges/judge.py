"""A judge without a model: an item is satisfied if one of its words is in the answer. Responds like a model."""

import json
import re

BLOCK = re.compile(r"^<<<(\w+) (\w+)\n(.*?)\n\1 \2>>>$", re.MULTILINE | re.DOTALL)


def judge(messages):
    blocks = {name: text for name, _, text in BLOCK.findall(messages[-1]["content"])}
    words = set(re.findall(r"\w+", blocks["candidate_answer"].lower()))
    if "rubrics" in blocks:
        checks = [check(item, words) for item in json.loads(blocks["rubrics"])]
        return json.dumps({"checks": checks, "overall_reasoning": "Looked for the words of each item."})
    wanted = long_words(blocks["expected_outcome"])
    score = round(len(wanted & words) / len(wanted), 2)
    return f"Let me see. {json.dumps({'reasoning': f'{score:.0%} of the words are there.', 'score': score})}"


def check(item, words):
    found = sorted(long_words(item["expected_outcome"]) & words)
    return {"id": item["id"], "satisfied": bool(found), "reasoning": f"Found {', '.join(found) or 'nothing'}."}


def long_words(text):
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}
