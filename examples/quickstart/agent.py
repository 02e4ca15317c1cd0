"""A small agent with two tools: it looks up prices and calculates. It needs no model, no key and no network.

It makes mistakes like real agents: it ignores discounts, and it fails when a tool fails.
"""

import ast
import json
import operator
import re

PRICES = {"apple": 0.5, "pear": 0.75, "melon": 3.0}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def answer(prompt):
    """Answer one prompt; configured in .agentv/targets.yaml. Returns the answer and the tool calls."""
    calls = []

    def use(tool, **arguments):
        output = TOOLS[tool](**arguments)
        calls.append({"tool": tool, "input": arguments, "output": output})
        return output

    text = about_prices(prompt, use) if "cost" in prompt else about_numbers(prompt, use)
    return {"output_messages": [{"role": "assistant", "content": text, "tool_calls": calls}]}


def about_prices(prompt, use):
    basket = re.findall(rf"(\d+|an?) ({'|'.join(PRICES)})s?\b", prompt)
    prices = {item: use("find_price", item=item) for _, item in basket}
    if "JSON" in prompt:
        return json.dumps(prices)
    terms = [f"{count if count.isdigit() else 1} * {prices[item]}" for count, item in basket]
    return f"That is {use('calculate', expression=' + '.join(terms)):.2f} euros."


def about_numbers(prompt, use):
    expression = prompt.removeprefix("What is ").rstrip("?")
    return f"{expression} = {use('calculate', expression=expression):g}"


def find_price(item):
    return PRICES[item]


def calculate(expression):
    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        return node.value

    return value(ast.parse(expression, mode="eval").body)


TOOLS = {"find_price": find_price, "calculate": calculate}
