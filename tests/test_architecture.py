"""The structure of the code: layers, sizes, import cost and public names."""

import ast
import gc
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import agentv
from agentv import registry

SOURCE = Path(agentv.__file__).parent
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))

BASE = ("lazy_regex", "errors", "version", "model", "support", "registry", "settings", "trust", "sandbox")
"""The base layers in order: each may import those before it, and every other layer may import all of them."""

MAY_IMPORT = {
    "sessions": set(),
    "datasets": {"sessions"},
    "targets": {"runs", "sessions"},
    "evaluators": set(),
    "schemas": {"datasets", "targets", "evaluators"},
    "executors": set(),
    "stats": set(),
    "runs": {"stats"},
    "comparison": {"runs", "stats"},
    "report": {"runs", "stats", "comparison"},
    "engine": {"datasets", "targets", "evaluators", "executors", "runs", "sessions", "stats"},
    "pytest_plugin": {"api"},
    "api": {"datasets", "engine", "evaluators", "runs", "targets", "comparison", "report"},
    "cli": {
        "datasets",
        "schemas",
        "engine",
        "report",
        "runs",
        "targets",
        "executors",
        "comparison",
        "stats",
        "sessions",
    },
    "__init__": {"datasets", "runs", "api"},
    "__main__": {"cli"},
}
EXTENSIONS = {f"extensions/{name}" for name in registry.EXTENSIONS}
MAY_IMPORT |= dict.fromkeys(EXTENSIONS, MAY_IMPORT.keys() - {"__init__", "__main__"})
"""An extension may import the kernel, and no other extension. Nothing imports an extension."""

LONGEST_MODULE = 400
"""Lines, but for the documentation of fields."""

LONGEST_FUNCTION = 60
MOST_MODULES = 15


def layer_of(module: Path) -> str:
    return layer_named(module.with_suffix("").parts)


def layer_named(parts: tuple[str, ...]) -> str:
    return "/".join(parts[:2]) if parts[0] == "extensions" else parts[0]


@pytest.fixture(scope="module", autouse=True)
def without_garbage_collection():
    """Collect no garbage while there are a million nodes: it would take most of the time."""
    gc.disable()
    yield
    nodes_of.cache_clear()
    gc.enable()


@cache
def nodes_of(module: Path) -> list[ast.AST]:
    """Return the nodes of a module's syntax tree, the tree itself first."""
    return list(ast.walk(ast.parse((SOURCE / module).read_text(encoding="utf-8"))))


def imported_layers(module: Path) -> set[str]:
    """Return the layers that a module imports, at the top or inside functions."""
    found = set()
    for node in nodes_of(module):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {layer_named(tuple(name.split(".")[1:])) for name in names if name.startswith("agentv.")}
    return found


def allowed_layers(layer: str) -> set[str]:
    if layer in BASE:
        return set(BASE[: BASE.index(layer) + 1])
    return {*BASE, layer, *MAY_IMPORT.get(layer, ())}


def test_packages_do_not_import_each_other_in_a_cycle():
    """Imports inside functions and for type checkers count too."""
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        layer = layer_of(module)
        graph.setdefault(layer, set()).update(imported_layers(module) - {layer})
    TopologicalSorter(graph).prepare()


SILENT = {
    "cli",
    "report",
    "engine",
    "trust",
    "runs",
    "datasets",
    "targets",
    "pytest_plugin",
}
PRINTERS = {"cli/output.py", "extensions/bisect/batch.py"}
"""The second prints to the process that started it."""

PRINTS = {"print", "click.echo", "click.secho", "click.style", "sys.stdout.write", "sys.stderr.write"}


def problems_of(module: Path) -> list[str]:
    """Return the rules that a module breaks. Only `cli/output.py` prints data: it escapes control characters."""
    tree, *nodes = nodes_of(module)
    assert isinstance(tree, ast.Module)
    docstring = ast.get_docstring(tree)
    problems = [] if docstring and len(docstring.splitlines()[0]) <= 120 else ["no docstring, or a long first line"]
    if (SOURCE / module).read_bytes().count(b"\n") - field_documentation(nodes) > LONGEST_MODULE:
        problems.append(f"more than {LONGEST_MODULE} lines")
    if layers := imported_layers(module) - allowed_layers(layer_of(module)):
        problems.append(f"imports {sorted(layers)}, which its layer may not import")
    called = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.end_lineno - node.lineno >= LONGEST_FUNCTION:
                problems.append(f"{node.name} is too long")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called.add(name_of(node.func))
    if layer_of(module) in SILENT | EXTENSIONS and str(module) not in PRINTERS and called & PRINTS:
        problems.append(f"calls {sorted(called & PRINTS)}: use echo, message, warn or Styled of agentv.cli.output")
    return problems


def name_of(node: ast.expr) -> str:
    """Return the dotted name that an expression ends in."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_a_module_is_described_short_in_its_layer_and_silent():
    assert {str(module): problems for module in MODULES if (problems := problems_of(module))} == {}


def test_folders_have_few_modules():
    modules = Counter(module.parent for module in MODULES if module.name != "__init__.py")
    assert {str(folder): count for folder, count in modules.items() if count > MOST_MODULES} == {}


PAGE = SOURCE / "report/page"
SCRIPTS = sorted(path.relative_to(PAGE) for path in PAGE.rglob("*.js"))


def field_documentation(nodes):
    """Count the lines of docstrings below fields, each with a blank line."""
    pairs = (pair for node in nodes if isinstance(node, ast.ClassDef) for pair in pairwise(node.body))
    return sum(
        text.end_lineno - text.lineno + 2
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    )


def test_scripts_of_the_page_are_short_described_and_escape_all_data():
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    texts = {str(script): (PAGE / script).read_text(encoding="utf-8") for script in SCRIPTS}
    assert {script for script, text in texts.items() if text.count("\n") > LONGEST_MODULE} == set()
    assert {script for script, text in texts.items() if not text.startswith("// ")} == set()
    assert {script: calls for script, text in texts.items() if (calls := re.findall(unsafe, text))} == {}


def test_a_style_sheet_of_the_page_styles_only_its_own_view():
    """The sheets apply to one document (`markdown.css` to another one). Only `page.css` has styles of several views."""
    leads: dict[str, set[str]] = {}
    for sheet in set(PAGE.rglob("*.css")) - {PAGE / "markdown.css"}:
        for selectors in re.findall(r"([^{}]+)\{", sheet.read_text(encoding="utf-8")):
            for selector in () if "@" in selectors else re.split(r",(?![^(]*\))", selectors):
                leads.setdefault(re.split(r"[ >+~]", selector.strip())[0], set()).add(sheet.name)
    assert {lead: sheets for lead, sheets in leads.items() if len(sheets) > 1} == {}


def imported_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_agentv_imports_nothing_else():
    assert {name.split(".")[0] for name in imported_by("import agentv")} <= {"agentv", "__future__", "typing"} | {
        name.split(".")[0] for name in imported_by("import typing")
    }


def test_help_imports_no_heavy_packages():
    loaded = imported_by("import agentv.cli; agentv.cli.cli.main(['--help'], standalone_mode=False)")
    assert not loaded & {"msgspec", "yaml", "rich", "minijinja", "asyncio", "json", "difflib", "dataclasses"}


def test_a_run_does_not_import_numpy():
    assert not imported_by("import agentv.cli.commands.eval, agentv.engine.run, agentv.report.terminal") & {
        "numpy",
        "scipy",
    }


def test_public_names_are_what_the_package_exports():
    assert sorted(agentv.__all__) == dir(agentv)
    for name in agentv.__all__:
        assert getattr(agentv, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'load_case'"):
        _ = agentv.load_case


def test_type_checkers_see_the_exported_names():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    checked = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentv.")
        for alias in node.names
    }
    assert checked == set(agentv.__all__)
