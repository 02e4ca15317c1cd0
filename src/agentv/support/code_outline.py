"""Outlines of functions and classes in Python files: signatures and fields, read by parsing and without running them.

An outline takes the place of the object while settings are checked. It has the signature of a function, or the fields
of a class that is derived from one of agentv's. Calling it is an error.
"""

import ast
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.model.diagnostics import did_you_mean

_TYPES: dict[str, Any] = {
    **{"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes, "None": None, "Any": Any, "object": Any},
    **{"list": list, "List": list, "dict": dict, "Dict": dict, "tuple": tuple, "Tuple": tuple, "set": set},
    **{"frozenset": frozenset, "Sequence": list, "Iterable": list, "Mapping": dict},
}
_DYNAMIC = frozenset({"exec", "eval", "globals", "setattr", "vars", "__getattr__", "locals"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class OutlineError(ValueError):
    """A file that is not valid Python, or a name that it does not define."""


class UnknownOutline(ValueError):
    """Only running the file would show what a name is."""


class Module(msgspec.Struct, frozen=True):
    """The functions and classes that a file defines once, its imports and other names.

    If it `is_dynamic`, running it may define further names.
    """

    path: str
    defined: dict[str, _Function | ast.ClassDef]
    imported: dict[str, tuple[str, str]]
    assigned: frozenset[str]
    is_dynamic: bool

    @property
    def names(self) -> set[str]:
        """All names that the file defines."""
        return {*self.defined, *self.imported, *self.assigned}


def outline(path: str, name: str) -> Any:
    """Return the outline of a function, a class or a method in a file. Raises OutlineError or UnknownOutline."""
    module = _checked_module(path)
    first, *rest = name.split(".")
    if (node := module.defined.get(first)) is None:
        _raise_unless_known(module, first)
        raise UnknownOutline(name)
    if isinstance(node, ast.ClassDef) and rest:
        methods = {item.name: item for item in node.body if isinstance(item, _Function)}
        if len(rest) > 1 or rest[0] not in methods:
            raise UnknownOutline(name)
        return _function(methods[rest[0]], is_method=True)
    if rest or node.decorator_list:
        raise UnknownOutline(name)
    return _function(node) if isinstance(node, _Function) else _class(module, node)


def parse_file(path: str) -> ast.Module:
    """Parse a Python file. Raises OSError, SyntaxError or ValueError."""
    source = Path(path).read_bytes()
    try:
        try:
            return ast.parse(source)
        except SystemError:  # Python 3.11: a finalizer parsed something else meanwhile, to format a traceback
            return ast.parse(source)
    except (RecursionError, MemoryError):
        raise ValueError("it is nested too deeply to be parsed") from None


def read_module(path: str) -> Module:
    """Return the definitions in a Python file. Raises OSError, SyntaxError or ValueError."""
    status = os.stat(path)
    return _read(path, status.st_mtime_ns, status.st_size)


def _checked_module(path: str) -> Module:
    try:
        return read_module(path)
    except SyntaxError as error:
        raise OutlineError(f"{os.path.basename(path)} is not valid Python: {error.msg}, line {error.lineno}") from None
    except (OSError, ValueError) as error:
        raise OutlineError(f"Cannot read {path}: {error}") from None


@lru_cache(maxsize=256)
def _read(path: str, modified: int, size: int) -> Module:  # noqa: ARG001  # a changed file is read again
    tree = parse_file(path)
    defined: dict[str, _Function | ast.ClassDef] = {}
    imported: dict[str, tuple[str, str]] = {}
    assigned: set[str] = set()
    for node in _module_level(tree):
        if isinstance(node, _Function | ast.ClassDef):
            if node.name in defined:
                assigned.add(node.name)  # several definitions: which one counts is decided by running it
            defined[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name.partition(".")[0]: (alias.name, "") for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.add(node.id)
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            assigned.add(node.name)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    has_global = any(isinstance(node, ast.Global) for node in ast.walk(tree))
    is_dynamic = has_global or "*" in imported or not _DYNAMIC.isdisjoint(used | defined.keys())
    definitions = {name: node for name, node in defined.items() if name not in assigned}
    return Module(path, definitions, imported, frozenset(assigned), is_dynamic)


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node at module level, including those under `if`, `try` and `with`."""
    stack: list[ast.AST] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef | ast.Lambda):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _raise_unless_known(module: Module, name: str) -> None:
    if name not in module.names and not module.is_dynamic:
        hint = did_you_mean(name, module.names)
        raise OutlineError(f"{os.path.basename(module.path)} has no '{name}'" + (f". {hint}" if hint else ""))


def _function(node: _Function, *, is_method: bool = False) -> Callable[..., Any]:
    def stand_in(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"'{node.name}' is only an outline")

    stand_in.__name__ = node.name
    stand_in.__doc__ = ast.get_docstring(node)
    stand_in.__signature__ = inspect.Signature(list(_parameters(node.args))[is_method:])  # type: ignore[attr-defined]
    return stand_in


def _parameters(arguments: ast.arguments) -> Iterator[inspect.Parameter]:
    kind = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    for place, argument in enumerate(positional):
        how = kind.POSITIONAL_ONLY if place < len(arguments.posonlyargs) else kind.POSITIONAL_OR_KEYWORD
        yield kind(argument.arg, how, default=kind.empty if place < required else None)
    if arguments.vararg is not None:
        yield kind(arguments.vararg.arg, kind.VAR_POSITIONAL)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield kind(argument.arg, kind.KEYWORD_ONLY, default=kind.empty if default is None else None)
    if arguments.kwarg is not None:
        yield kind(arguments.kwarg.arg, kind.VAR_KEYWORD)


def _class(module: Module, node: ast.ClassDef) -> type:
    """Return a class with the fields and methods of a user's class, derived from agentv's own base class."""
    if node.decorator_list or any(item.arg == "rename" for item in node.keywords) or len(node.bases) > 1:
        raise UnknownOutline(node.name)
    base = _base(module, node.bases[0]) if node.bases else object
    methods = {item.name: _function(item) for item in node.body if isinstance(item, _Function)}
    if not issubclass(base, msgspec.Struct):
        return type(node.name, (base,), dict(methods))
    # Properties and other hooks would run: only those that tell what a class can do are kept.
    namespace: dict[str, Any] = {name: item for name, item in methods.items() if name in ("score", "evaluate", "open")}
    fields: list[Any] = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if _head(item.annotation) == "ClassVar":
                namespace[item.target.id] = _value(module, item.value)
            else:
                fields.append(_field(module, item.target.id, item))
    try:
        return msgspec.defstruct(node.name, fields, bases=(base,), namespace=namespace, frozen=True, kw_only=True)
    except (TypeError, ValueError, NameError):
        raise UnknownOutline(node.name) from None


def _base(module: Module, node: ast.expr) -> type:
    """Return the base class: one of agentv's, or the outline of one in the same folder."""
    base = _resolved(module, node)
    if isinstance(base, type):
        return base
    if isinstance(node, ast.Name) and isinstance(inner := module.defined.get(node.id), ast.ClassDef):
        return _class(module, inner)
    if isinstance(node, ast.Name) and node.id in module.imported:
        place, name = module.imported[node.id]
        path = os.path.join(os.path.dirname(module.path), *place.split(".")) + ".py"
        if place and name and os.path.isfile(path):
            outlined = outline(path, name)
            if isinstance(outlined, type):
                return outlined
    raise UnknownOutline(ast.unparse(node))


def _resolved(module: Module, node: ast.expr | None) -> Any:
    """Return the object of agentv that an expression names; None for anything else. Only agentv is imported."""
    if isinstance(node, ast.Attribute):
        holder = _resolved(module, node.value)
        return None if holder is None else getattr(holder, node.attr, None)
    if not isinstance(node, ast.Name) or node.id not in module.imported:
        return None
    place, name = module.imported[node.id]
    if place.partition(".")[0] != "agentv":
        return None
    try:
        source: Any = import_module(place if name or node.id != "agentv" else "agentv")
        return getattr(source, name) if name else source
    except (ImportError, AttributeError):
        return None


def _field(module: Module, name: str, node: ast.AnnAssign) -> tuple[Any, ...]:
    type_ = _type(module, node.annotation)
    if node.value is None:
        return (name, type_)
    try:
        default = ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        default = None
    if isinstance(default, list | dict | set):
        return (name, type_, msgspec.field(default_factory=lambda: type(default)(default)))
    return (name, type_, default)


def _value(module: Module, node: ast.expr | None) -> Any:
    """Return the value of a class variable, which may include constants of agentv."""
    if isinstance(node, ast.Dict):
        mapping: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            mapping |= _mapping(_value(module, value)) if key is None else {_value(module, key): _value(module, value)}
        return mapping
    if (constant := _resolved(module, node)) is not None:
        return constant
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError):
        raise UnknownOutline(ast.unparse(node) if node is not None else "") from None


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise UnknownOutline(repr(value))
    return value


def _head(node: ast.expr) -> str:
    """Return the name of an annotation without its arguments."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _type(module: Module, node: ast.expr) -> Any:
    """Return the type of an annotation; Any if only running the file would show it."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return _type(module, ast.parse(node.value, mode="eval").body)
        return None if node.value is None else Any
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        both = [_type(module, node.left), _type(module, node.right)]
        return Any if Any in both else reduce(or_, both)
    if isinstance(node, ast.Subscript):
        return _generic(module, node)
    base = _TYPES.get(_head(node), Any)
    own_type = _resolved(module, node) if base is Any else None
    return base if own_type is None else own_type


def _generic(module: Module, node: ast.Subscript) -> Any:
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if (head := _head(node)) == "Literal":
        return Literal[tuple(ast.literal_eval(item) for item in inner)]
    if head == "Annotated":
        return _type(module, inner[0])
    if head == "Optional":
        return _type(module, inner[0]) | None
    types = [... if isinstance(item, ast.Constant) and item.value is ... else _type(module, item) for item in inner]
    base = _TYPES.get(head)
    return base[tuple(types)] if base in (list, dict, tuple, set, frozenset) else Any
