def prompt(context):
    return "python: " + context["vars"]["word"] + " {{tone}}"


class Prompts:
    @staticmethod
    async def chat(context):
        return [{"role": "user", "content": f"{context['provider']['id']} {context['vars']['word']}"}]


def get_var(name, prompt, variables):
    return {"output": f" {name} of {variables['tone']} "}


def generate_tests(config=None):
    words = (config or {}).get("words", ["first", "second"])
    return [
        {"description": f"generated {word}", "vars": {"word": word, "tone": "calm"}, "assert": [check]}
        for word in words
        for check in ({"type": "contains", "value": "first"},)
    ]


def get_transform(output, context):
    return {"text": output, "tone": context["vars"]["tone"]}
