"""The structure of the code: layers, sizes, import cost and public names."""

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agentv
from agentv import registry

SOURCE = Path(agentv.__file__).parent
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))

BASE = ("errors", "version", "model", "support", "registry", "settings", "trust", "sandbox")
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
    "report": {"runs", "stats", "comparison", "calibration"},
    "view": {"runs", "stats", "comparison", "calibration", "engine", "report"},
    "engine": {"datasets", "targets", "evaluators", "executors", "runs", "sessions", "stats"},
    "calibration": {"runs", "stats", "engine"},
    "pytest_plugin": {"datasets", "engine", "runs", "report", "api"},
    "api": {"datasets", "engine", "evaluators", "runs", "targets", "comparison", "report"},
    "cli": {
        "datasets",
        "schemas",
        "engine",
        "report",
        "view",
        "runs",
        "targets",
        "executors",
        "comparison",
        "calibration",
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
LONGEST_FUNCTION = 60
MOST_MODULES = 15


def layer_of(module: Path) -> str:
    return layer_named(module.with_suffix("").parts)


def layer_named(parts: tuple[str, ...]) -> str:
    return "/".join(parts[:2]) if parts[0] == "extensions" else parts[0]


def imported_layers(tree: ast.Module) -> set[str]:
    """Return the layers that a module imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(tree):
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
        tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
        graph.setdefault(layer, set()).update(imported_layers(tree) - {layer})
    TopologicalSorter(graph).prepare()


SILENT = {
    "cli",
    "report",
    "view",
    "engine",
    "trust",
    "runs",
    "datasets",
    "targets",
    "calibration",
    "pytest_plugin",
}
PRINTERS = {"cli/output.py", "extensions/bisect/batch.py"}
"""The second prints to the process that started it."""

PRINTS = {"print", "click.echo", "click.secho", "click.style", "sys.stdout.write", "sys.stderr.write"}


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_is_described_short_in_its_layer_and_silent(module):
    """Data is printed only by `cli/output.py`, which escapes control characters."""
    text = (SOURCE / module).read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    assert docstring and len(docstring.splitlines()[0]) <= 120, "no docstring, or a long first line"
    assert text.count("\n") <= LONGEST_MODULE
    assert imported_layers(tree) - allowed_layers(layer_of(module)) == set(), "the layer may not import these"
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, f"{node.name} is too long"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called.add(ast.unparse(node.func))
    if layer_of(module) in SILENT | EXTENSIONS and str(module) not in PRINTERS:
        assert called & PRINTS == set(), "use echo, message, warn or Styled of agentv.cli.output"


def test_folders_have_few_modules():
    modules = Counter(module.parent for module in MODULES if module.name != "__init__.py")
    assert {str(folder): count for folder, count in modules.items() if count > MOST_MODULES} == {}


PAGE = SOURCE / "report/page"
SCRIPTS = sorted(path.relative_to(PAGE) for path in PAGE.rglob("*.js"))


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_scripts_of_the_page_are_short_described_and_escape_all_data(script):
    text = (PAGE / script).read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_MODULE
    assert text.startswith("// ")
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


def test_a_style_sheet_of_the_page_styles_only_its_own_view():
    """The sheets apply to one document. Only `page.css` has styles that several views share."""
    leads: dict[str, set[str]] = {}
    for sheet in PAGE.rglob("*.css"):
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
