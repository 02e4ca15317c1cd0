"""The text of the project is plain English: expressions that had to be read twice do not come back."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from agentv.support.code_outline import parse_file

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("src", "packages", "docs", "bench", "README.md", "CONTRIBUTING.md", "DECISIONS.md", "CHANGELOG.md")
SUFFIXES = {".py", ".md", ".js", ".css", ".html", ".toml", ".yaml", ".json", ".txt"}

PHRASES = {
    "a negated noun (“is no JSON”)": r"(?<!there )\b(is|are|was|were) (no|none)\b(?! (longer|more|less|better|worse))",
    "speech for data (“what the entry says”)": r"\b(says|said|saying|(is|are|be|been) told)\b",
    "furniture for data (“stands beside”)": r"\b(stands|stood|standing)\b|\bheld against\b",
    "people for functions (“nobody looks”)": r"\b(nobody|whoever|whom|everybody)\b",
    "a count without a number": r"\bso many\b",
    "an old-fashioned adverb": r"\b(besides|anew)\b|\bbehind (the (word|last|first|name|code)|them|that)\b",
    "“goes on” for resumes": r"\bgo(es)? on with\b",
    "a vague word": r"\bthings?\b|\bof then\b|\ba word on\b|\bput yours\b|\bin the place of\b|\bwhat is wrong with\b",
}
"""Expressions to avoid, by habit. CONTRIBUTING has the rules."""

DATA = ("docs/examples/", "docs/reference/evaluators/", "prompts/", "probes_text/", "texts/", "simulated_user.md")
"""Cases, answers and prompts: people speak in them, and stored runs depend on their exact words."""

ALLOWED = {
    "bench/judgements.py": "Says when",
    "bench/report.py": "Says ",
    "bench/startup.py": "Says Paris",
    "src/agentv/engine/job/conversation.py": "Nothing has been said yet: you begin.",
}
"""The one expression in a file that is data."""


@cache
def texts():
    """Return the texts to check, by file."""
    found = {}
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in SUFFIXES and ".egg-info" not in name and not any(part in name for part in DATA):
                text = file.read_text(encoding="utf-8").replace(ALLOWED.get(name, "\0"), "")
                found[name] = re.sub(r"\b(is|are) (not )?None\b", "", text)
    return found


@pytest.mark.parametrize("habit", PHRASES)
def test_text_avoids_the_habit(habit):
    pattern = re.compile(PHRASES[habit], re.IGNORECASE)
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_module_names_are_nouns():
    names = {path.stem for path in (ROOT / "src").rglob("*.py")}
    assert not {name for name in names if re.search(r"(ing|ed)$", name)} - {"ranking"}  # a noun in statistics


PARTICIPLES = frozenset(
    {
        *(
            "found",
            "given",
            "known",
            "wanted",
            "shown",
            "kept",
            "named",
            "each",
            "written",
            "listed",
            "chosen",
            "taken",
        ),
        *(
            "told",
            "asked",
            "said",
            "made",
            "done",
            "seen",
            "left",
            "met",
            "held",
            "meant",
            "sent",
            "got",
            "stored",
            "drawn",
        ),
    }
)
"""Names that tell when a value was made instead of what it is."""


def local_names(function):
    """The parameters of a function and the names that it assigns, without those of functions in it."""
    parameters = function.args
    names = {argument.arg for argument in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)}
    nodes = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes += ast.iter_child_nodes(node)
    return names


def test_local_names_say_what_a_value_is():
    counts = Counter()
    for path in (ROOT / "src/agentv").rglob("*.py"):
        for node in ast.walk(parse_file(str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts.update(name in PARTICIPLES for name in local_names(node))
    assert counts[True] / counts.total() < 0.01, f"{counts[True]} of {counts.total()} local names are participles"
