"""A program as a provider: it prints its arguments, colours, or JSON."""

import json
import sys

*words, prompt, options, context = sys.argv[1:]
answers = {
    "words": json.dumps(words),
    "options": options,
    "variables": json.loads(context)["vars"]["hint"],
    "colours": "\x1b[31mred\x1b[0m  ",
    "answer object": json.dumps({"text": "hidden", "refund": 1}),
    "messages": json.dumps({"output_messages": [{"role": "assistant", "content": "hidden"}]}),
}
print(answers[prompt])
