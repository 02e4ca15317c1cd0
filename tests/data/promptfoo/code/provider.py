def call_api(prompt, options, context):
    return {"output": f"{prompt} {context['vars']['text']}", "tokenUsage": {"total": 3, "prompt": 1, "completion": 2}}
