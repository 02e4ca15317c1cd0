"""The results of a run as a pandas or polars data frame: one row per job, with the columns of the CSV report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentv.errors import UsageError
from agentv.report.columns import columns, rows
from agentv.runs.store import RunStore

if TYPE_CHECKING:
    import pandas
    import polars

_PANDAS_TYPES = {str: "string", int: "Int64", float: "float64", bool: "boolean", list: "object"}


def pandas_frame(run: RunStore) -> pandas.DataFrame:
    """Return a pandas data frame. Absent values are NA, and NaN for fractions."""
    library = _imported("pandas")
    names, data = _data(run)
    return library.DataFrame({name: library.Series(data[name], dtype=_PANDAS_TYPES[names[name]]) for name in names})


def polars_frame(run: RunStore) -> polars.DataFrame:
    """Return a polars data frame. Absent values are null."""
    library = _imported("polars")
    types = {str: library.String, int: library.Int64, float: library.Float64, bool: library.Boolean}
    names, data = _data(run)
    schema = {name: types.get(kind) or library.List(library.String) for name, kind in names.items()}
    return library.DataFrame(data, schema=schema)


def _data(run: RunStore) -> tuple[dict[str, type], dict[str, list[Any]]]:
    figures = run.figures()
    names = columns(figures.evaluators)
    found = list(rows(run, figures))
    return names, {name: [row.get(name) for row in found] for name in names}


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        hint = f"Install it with: pip install 'agentv[{name}]'"
        raise UsageError(f"to_{name} needs the package {name}, which is not installed", hint=hint) from None
