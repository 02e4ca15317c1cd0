"""The rows of the page: filters, counts, search and order of many rows, compared with plain Python."""

import json
import random

import pytest

from agentv.report.page_bundle import joined, page_file

VERDICTS = ["pass", "borderline", "fail", "error", "unscored"]
TOTAL, BLOCK = 12_000, 5_000
FACETS = {
    "verdict": lambda row: [VERDICTS[row["verdict"]]],
    "target": lambda row: [["two", "one", "ten"][row["target"]]],
    "tag": lambda row: [["x"], ["x", "y"], []][row["tags"]],
    "error": lambda row: [["timeout", "rate_limit"][row["error"]]] if row["error"] >= 0 else [],
}
HEAD = {
    "total": 0,
    "targets": ["two", "one", "ten"],
    "datasets": [{"name": "d", "path": "d.jsonl"}],
    "prompts": [],
    "errors": ["timeout", "rate_limit"],
    "tagSets": [["x"], ["x", "y"], []],
    "evaluatorSets": [[]],
}
SELECT = """(questions) => questions.map(({ at, facets, ...values }) => {
    while (rows.total < at) {
        const first = rows.total;
        const n = Math.min(BLOCK, at - first);
        const part = Object.fromEntries(Object.entries(data).map(([name, all]) => [name, Array.isArray(all) ? all.slice(first, first + n) : all]));
        rows.append({ n, ...part });
    }
    const chosen = Object.fromEntries(Object.keys(FACETS).map((name) => [name, new Set(facets?.[name] ?? [])]));
    const found = rows.select({ search: "", scores: null, sort: "worst", descending: false, ...values, facets: chosen }, null);
    return { rows: [...found.rows], counts: Object.fromEntries(Object.entries(found.counts).map(([name, all]) => [name, [...all]])) };
})"""  # noqa: E501


def made_rows():
    chance = random.Random(7)
    rows = []
    for _ in range(TOTAL):
        verdict = chance.randrange(5)
        rows.append(
            {
                "id": chance.choice(("Case-", "case-é", "\u4e2d", "")) + str(chance.randrange(9_000)),
                "verdict": verdict,
                "score": None if verdict > 2 else chance.choice((0, 0.5, 1, chance.random())),
                "target": chance.randrange(3),
                "tags": chance.randrange(3),
                "error": chance.randrange(2) if verdict == 3 else -1,
                "duration": chance.choice((None, 0.0, chance.random() * 1e6)),
            }
        )
    return rows


@pytest.fixture(scope="module")
def select(browser):
    """Ask the script of the page for rows; and the rows that it has."""
    rows = made_rows()
    page = browser.new_page()
    data = {name: [row[name] for row in rows] for name in rows[0]}
    data |= dict.fromkeys(("cost", "input", "output", "cached", "ended"))
    data |= {"dataset": 0, "prompt": -1, "trial": 1, "missed": 0, "case": -1}
    page.add_script_tag(content=joined(page_file, "data/rows.js"))
    constants = {"BLOCK": json.dumps(BLOCK), "data": json.dumps(data), "rows": f"new Rows({json.dumps(HEAD)})"}
    lines = ["const { Rows, FACETS } = module_data_rows_js;", *(f"const {k} = {v};" for k, v in constants.items())]
    page.add_script_tag(content="".join(lines))
    yield lambda *questions: page.evaluate(SELECT, questions), rows
    page.close()


def has(row, facets):
    return all(set(FACETS[name](row)) & set(chosen) for name, chosen in facets.items())


@pytest.mark.parametrize("sort", ["worst", "score", "duration", "id", "target", "order"])
def test_rows_are_sorted_stably_and_unknown_values_are_last(select, sort):
    ask, rows = select
    keys = {
        "worst": lambda row: [6, 4, 2, 0, 8][row["verdict"]] + (row["score"] or 0),
        "id": lambda row: row["id"].encode("utf-16-be"),
        "target": lambda row: FACETS["target"](row)[0],
        "order": lambda row: 0,
    }
    key = keys.get(sort, lambda row: row[sort])
    up, down = ask({"at": TOTAL, "sort": sort}, {"at": TOTAL, "sort": sort, "descending": True})
    known = [number for number, row in enumerate(rows) if key(row) is not None]
    unknown = [number for number, row in enumerate(rows) if key(row) is None]
    assert up["rows"] == sorted(known, key=lambda number: key(rows[number])) + unknown
    if sort != "order":
        assert down["rows"] == sorted(known, key=lambda number: key(rows[number]), reverse=True) + unknown


@pytest.mark.parametrize(
    "facets", [{}, {"verdict": ["fail", "error"]}, {"target": ["one"], "tag": ["y"], "verdict": ["pass"]}]
)
def test_counts_of_a_facet_apply_the_filters_of_the_others(select, facets):
    ask, rows = select
    [found] = ask({"at": TOTAL, "facets": facets, "sort": "order"})
    assert found["rows"] == [number for number, row in enumerate(rows) if has(row, facets)]
    for name, values in FACETS.items():
        others = {other: chosen for other, chosen in facets.items() if other != name}
        expected = {}
        for row in rows:
            for value in values(row) if has(row, others) else []:
                expected[value] = expected.get(value, 0) + 1
        assert dict(found["counts"][name]) == expected, name


@pytest.mark.parametrize("text", ["case-1", "CASE-É7", "9", "\u4e2d", "timeout", "e-1\ncase", "nothing"])
def test_search_looks_in_ids_targets_tags_and_error_classes(select, text):
    ask, rows = select
    [found] = ask({"at": TOTAL, "search": text, "sort": "order"})
    named = [
        (row["id"], *(value for name in ("target", "tag", "error") for value in FACETS[name](row))) for row in rows
    ]
    expected = [number for number, names in enumerate(named) if any(text.lower() in name.lower() for name in names)]
    assert found["rows"] == expected
