"""The tests of a promptfoo configuration: inline, in files, tables and scenarios, multiplied by list variables."""

from __future__ import annotations

import base64
import itertools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.records import Record, items_of
from agentv.datasets.foreign.values import first_of, is_blank, object_at, text_of
from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE
from agentv.extensions.promptfoo.providers.provider_entries import NoCounterpart
from agentv.extensions.promptfoo.suite_files import SuiteFiles, is_pattern
from agentv.registry import service
from agentv.support.javascript.values import stringify, to_text

PLACEHOLDERS: dict[str, Any] = {}
"""The variables of a placeholder for the tests of a function that is not called: each has a text."""

MOST_COMBINATIONS = 100_000
MOST_CHARACTERS = 1_000_000
_IMAGES = {f".{name}": f"image/{name}" for name in ("jpeg", "png", "gif", "bmp", "webp")}
_IMAGES |= {".jpg": "image/jpeg", ".svg": "image/svg+xml"}
_MAGIC = {
    "/9j/": "image/jpeg",
    "iVBORw0KGgo": "image/png",
    **dict.fromkeys(("R0lGODlh", "R0lGODdh"), "image/gif"),
    "UklGR": "image/webp",
    **dict.fromkeys(("Qk0", "Qk1"), "image/bmp"),
    **dict.fromkeys(("SUkq", "TU0A"), "image/tiff"),
    "AAABAA": "image/x-icon",
}
"""The types of images by how their Base64 begins, which promptfoo prefers to the ending of the name."""

_SHORTEST_IMAGE = 20
"""The characters of Base64 from which promptfoo sends a text to Gemini as an image."""

_MEDIA = (
    *(".mp4", ".webm", ".ogg", ".mov", ".avi", ".wmv", ".mkv", ".m4v"),
    *(".wav", ".mp3", ".aac", ".m4a", ".flac", ".wma", ".aiff", ".opus"),
)
_REMOTE = ("http://", "https://", "huggingface://", "az://", "s3://", "sharepoint://")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}")
_MARK = re.compile(r"\$[$&`']")
_UUID = re.compile(r"\bcontext(?:\?*\.|\[['\"]|\.get\(['\"])uuid\b")


def read_tests(value: Any, files: SuiteFiles, lose: Lose) -> Iterator[Record]:
    """Yield the tests in a list, a file, a folder or a pattern, or those that a function returns."""
    for record in items_of(value if isinstance(value, list) else [] if value is None else [value]):
        if isinstance(record.data, str):
            yield from _in_files(record.data, files, lose)
        elif isinstance(record.data, dict) and isinstance(record.data.get("path"), str):
            config = record.data.get("config")
            yield from _in_files(record.data["path"], files, lose, [] if config is None else [config])
        else:
            yield record


def _generated(reference: str, files: SuiteFiles, lose: Lose, arguments: list[Any]) -> Iterator[Record]:
    """Yield the tests that a function returns."""
    is_python = reference.partition(":")[0].endswith(".py")
    try:
        tests = files.call(reference, arguments, files.tests_function if is_python else "")
    except CodeNotRun:
        lose(f"the tests that '{reference}' returns: they are checked when a run calls it")
        yield Record(1, {"description": f"(the tests that {reference} returns)", "vars": PLACEHOLDERS})
        return
    if not isinstance(tests, list):
        raise ValueError(f"'{reference}' must return a list of tests, got {text_of(tests)[:80]}")
    yield from read_tests(tests, files, lose)


def _in_files(name: str, files: SuiteFiles, lose: Lose, arguments: list[Any] | None = None) -> Iterator[Record]:
    bare = name.removeprefix("file://")
    if name.startswith(_REMOTE):
        raise ValueError(f"The tests are at {name.partition('?')[0]}. {_download(name)}")
    if FUNCTION_FILE.match(bare):
        yield from _generated(bare, files, lose, arguments or [])
        return
    bare, _, sheet = bare.partition("#")
    pattern = os.path.join(bare, files.tests_in_folder) if os.path.isdir(os.path.join(files.folder, bare)) else bare
    paths = files.matching(pattern)
    if not paths:
        raise ValueError(f"The tests '{name}' were not found in {files.folder}")
    if sheet and sheet.strip() != "1":
        raise ValueError(f"The tests are on the sheet '{sheet}' of {bare}, and only the first is read. Make it a file")
    for path in paths:
        yield from _in_file(path, files)


def _download(address: str) -> str:
    """Return how to download tests, for a hint."""
    file, command = "tests.csv", f"curl -L -o tests.csv '{address}'"
    if address.startswith("huggingface://datasets/"):
        parts = urlsplit(address.removeprefix("huggingface://datasets/"))
        query = dict(parse_qsl(parts.query))
        rows = {"dataset": parts.path, "split": query.get("split", "test"), "config": query.get("config", "default")}
        rows |= {"offset": query.get("offset", "0"), "length": query.get("limit", "100")}
        source = f"https://datasets-server.huggingface.co/rows?{urlencode(rows)}"
        shape = "[.rows[] | {vars: .row, options: {disableVarExpansion: true}}]"
        file, command = "tests.json", f"curl '{source}' | jq '{shape}' > tests.json"
    elif sheet := re.match(r"https://docs\.google\.com/spreadsheets/d/[^/?#]+", address):
        page = re.search(r"[?&#]gid=(\d+)", address)
        command = f"curl -L -o tests.csv '{sheet[0]}/export?format=csv{f'&gid={page[1]}' if page else ''}'"
    elif address.startswith("s3://"):
        command = f"aws s3 cp '{address}' tests.csv"
    return f"Download them, and name the file: {command}; then `tests: file://{file}`"


def _in_file(path: str, files: SuiteFiles) -> Iterator[Record]:
    for record in files.records(path):
        test = files.test_in_file(path, record.data)
        items = test["tests"] if isinstance(test, dict) and isinstance(test.get("tests"), list) else test
        for item in items_of(items) if isinstance(items, list) else [Record(record.line, test)]:
            yield item._replace(file=path)


def scenario_tests(value: Any, files: SuiteFiles, lose: Lose) -> Iterator[Record]:
    """Yield each test of each scenario with each of its configurations."""
    for record in items_of(value if isinstance(value, list) else [value]):
        scenarios = [record.data]
        if isinstance(record.data, str):
            scenarios = [item for path in files.matching(record.data) for item in _scenarios(files.data(path))]
        for scenario in scenarios:
            if not isinstance(scenario, dict):
                raise ValueError(f"A scenario must be an object, got {text_of(scenario)[:80]}")
            configs = [{}] if scenario.get("config") is None else _list(_loaded(scenario["config"], files))
            tests = [Record(record.line, {})]
            if scenario.get("tests") is not None:
                tests = list(read_tests(scenario["tests"], files, lose))
            for config, test in itertools.product(configs, tests):
                if not isinstance(config, dict) or not isinstance(test.data, dict):
                    raise ValueError("A scenario needs `config` and `tests`, which are lists of objects")
                merged = {
                    **config,
                    **test.data,
                    "assert": _list(config.get("assert")) + _list(test.data.get("assert")),
                }
                for key in ("vars", "options", "metadata"):
                    merged[key] = {**object_at(config, key), **object_at(test.data, key)}
                if "id" in merged and len(configs) > 1:
                    number = configs.index(config) + 1
                    name = first_of(test.data, "id", "description") or tests.index(test) + 1
                    merged["id"] = f"{text_of(name)} [{text_of(config.get('id', number))}]"
                yield Record(record.line, merged)


def _scenarios(data: Any) -> list[Any]:
    return _list(data["scenarios"] if isinstance(data, dict) and "scenarios" in data else data)


def _loaded(value: Any, files: SuiteFiles) -> Any:
    is_file = isinstance(value, str) and value.startswith("file://")
    return [item for path in files.matching(value) for item in _list(files.data(path))] if is_file else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def with_variable_files(test: dict[str, Any], files: SuiteFiles) -> dict[str, Any]:
    """Return a test whose variables are in files with those variables. Raises ValueError."""
    value = test.get("vars")
    if value is None or isinstance(value, dict):
        return test
    names = value if isinstance(value, list) else [value]
    if any(isinstance(name, str) and name.startswith("file://") for name in names):
        raise ValueError(
            f"'vars' is {text_of(value)[:80]}, which promptfoo does not read. Name the file without file://"
        )
    paths = [path for name in names if isinstance(name, str) for path in files.matching(name)]
    contents = [files.data(path) for path in paths if path.lower().endswith((".yaml", ".yml", ".json"))]
    if not contents or not all(isinstance(content, dict) for content in contents):
        raise ValueError(f"'vars' must be an object, or name a YAML or JSON file with one, got {text_of(value)[:80]}")
    return {**test, "vars": {key: content[key] for content in contents for key in content}}


def merged_test(default: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """Return a test with the defaults; their assertions come first, unless the test turns them off."""
    options = {**object_at(default, "options"), **object_at(test, "options")}
    first = [] if options.get("disableDefaultAsserts") else _list(default.get("assert"))
    return {
        **{key: value for key, value in default.items() if key != "description"},
        **{key: value for key, value in test.items() if value is not None},
        "vars": {**_variables(default), **_variables(test)},
        "assert": [*first, *_list(test.get("assert"))],
        "options": options,
        "metadata": {**object_at(default, "metadata"), **object_at(test, "metadata")},
    }


def _variables(test: dict[str, Any]) -> dict[str, Any]:
    variables = test.get("vars")
    return dict(variables) if isinstance(variables, dict) else {}


def combinations(variables: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the variables for each combination of list items, and a text that tells the combinations apart.

    A list is one value, unless its first item is a text.
    """
    lists = {name: value for name, value in variables.items() if isinstance(value, list) and _is_expanded(value)}
    if not lists:
        yield variables, ""
        return
    if math.prod(map(len, lists.values())) > MOST_COMBINATIONS:
        raise ValueError(f"The lists in 'vars' make more than {MOST_COMBINATIONS:,} tests; set `disableVarExpansion`")
    for values in itertools.product(*lists.values()):
        combination = dict(zip(lists, values, strict=True))
        yield {**variables, **combination}, ", ".join(text_of(value)[:30] for value in combination.values())


def _is_expanded(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], str)


def with_files(
    variables: dict[str, Any], files: SuiteFiles, prompt: str = "", *, expands: bool = True
) -> dict[str, Any]:
    """Return variables with the content of the files that they name; a pattern `expands` to a list. Raises ValueError.

    A function gets the name of its variable, the prompt, and the variables.
    """
    values = dict(variables)
    for name, value in variables.items():
        values[name] = _file_value(name, value, files, [prompt, values], expands)
    return values


def _file_value(name: str, value: Any, files: SuiteFiles, arguments: list[Any], expands: bool) -> Any:
    if isinstance(value, list):
        is_read = expands and _is_expanded(value)  # promptfoo reads no files in other lists
        return [_file_value(name, item, files, arguments, expands=False) for item in value] if is_read else value
    if not isinstance(value, str) or not value.startswith("file://"):
        return value
    if FUNCTION_FILE.match(value):
        return _function_value(name, value, files, arguments)
    paths = files.matching(value) if expands or not is_pattern(value) else []
    if not paths:
        raise ValueError(f"The file of the variable '{name}' was not found: {value}")
    contents = [_content(path, files) for path in paths]
    return contents[0] if len(contents) == 1 and "*" not in value else contents


def _function_value(name: str, value: str, files: SuiteFiles, arguments: list[Any]) -> Any:
    """Return what a function returns as `output`."""
    is_python = value.endswith(".py")
    try:
        result = files.call(value, [name, *arguments], "get_var" if is_python else "")
    except CodeNotRun:
        return f"({value.removeprefix('file://')})"
    output = result.get("output") if isinstance(result, dict) else None
    if not output or result.get("error"):
        reason = text_of(result.get("error")) if isinstance(result, dict) else text_of(result)[:80]
        raise ValueError(f"{value} returned no output for the variable '{name}': {reason}")
    if is_python and not isinstance(output, str):
        raise ValueError(f"{value} must return a text for the variable '{name}', got {type(output).__name__}")
    return output.strip() if is_python else output


def transformed_variables(variables: dict[str, Any], code: Any, files: SuiteFiles) -> dict[str, Any]:
    """Return variables with those that `transformVars` returns: JavaScript, or a function. Raises ValueError."""
    if is_blank(code):
        return variables
    if not isinstance(code, str):
        raise ValueError(f"'transformVars' must be text, got {type(code).__name__}")
    if _UUID.search(files.code_text(code)):
        raise NoCounterpart("'transformVars' reads `context.uuid`, and a case has no new id for each run")
    try:
        if code.startswith("file://"):
            value = files.call(code, [variables, {"prompt": {}}], "get_transform", is_transform=True)
        else:
            files.allow_script(code)
            value = _run_inline(code, variables)
    except CodeNotRun:
        return variables
    if not isinstance(value, dict):
        raise ValueError(f"'transformVars' must return an object, got {text_of(value)[:80]}")
    return {**variables, **value}


def _run_inline(code: str, variables: dict[str, Any]) -> Any:
    """Return what the JavaScript of `transformVars` returns."""
    body = code if "\n" in code else f"return {code}"
    run_code = service("javascript-engine", "'transformVars'")
    result = run_code(f"const vars = output;\n{body}", variables, {"prompt": {}}, syntax="transform")
    if result.get("value") is None:
        reason = result.get("syntax") or result.get("message") or f"it returned {result.get('odd', 'null')}"
        raise ValueError(f"'transformVars' failed: {reason}")
    return result["value"]


def image_url(text: str) -> str:
    """Return the data URL of a text that is one, or the Base64 of an image; empty for any other text."""
    data = text.partition(",")[2] if text.startswith("data:") else text
    kind = next((kind for start, kind in _MAGIC.items() if data.startswith(start)), "")
    if not kind or len(data) < _SHORTEST_IMAGE:
        return ""
    return text if text.startswith("data:") else f"data:{kind};base64,{text}"


def _content(path: str, files: SuiteFiles) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _IMAGES or suffix in _MEDIA:
        data = base64.b64encode(Path(path).read_bytes()).decode()
        kind = next((kind for start, kind in _MAGIC.items() if data.startswith(start)), _IMAGES.get(suffix))
        return data if suffix in _MEDIA else f"data:{kind};base64,{data}"
    if suffix == ".pdf":
        raise NoCounterpart(f"{path} is a PDF. Convert it to text, and name that file")
    if suffix in (".yaml", ".yml"):
        data = files.data(path)
        if path in files.dates:
            raise ValueError(f"{path} has the date {files.dates[path]}, which promptfoo changes. Put it into quotes")
        return str(stringify(data))
    return files.text(path).strip()


def resolved(variables: dict[str, Any]) -> dict[str, Any]:
    """Return variables without a line end after each, and with others where a text names them.

    As in promptfoo, each of five passes inserts one variable into each text: that of the first placeholder.
    """
    values = {name: value.removesuffix("\n") if isinstance(value, str) else value for name, value in variables.items()}
    for _ in range(5):
        before = dict(values)
        for name, value in before.items():
            if isinstance(value, str) and "{{" in value:
                values[name] = _with_first(name, value, values)
        if values == before:
            break
    return values


def _with_first(own: str, text: str, values: dict[str, Any]) -> str:
    """Return a text with the variable of its first placeholder inserted, if there is such a variable."""
    place = _VARIABLE.search(text)
    if place is None or place[1] not in values:
        return text
    start, end = text[: place.start()], text[place.end() :]
    # In JavaScript, these are marks in the text that is inserted.
    marks = {"$$": "$", "$&": place[0], "$`": start, "$'": end}
    inserted = _MARK.sub(lambda mark: marks[mark[0]], to_text(values[place[1]]))
    if len(start) + len(inserted) + len(end) > MOST_CHARACTERS:
        raise ValueError(f"The variable '{own}' is longer than {MOST_CHARACTERS:,} characters with others inserted")
    return f"{start}{inserted}{end}"
