"""The declared minimum versions exclude known vulnerabilities, and a bill of materials lists every package."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "sbom.py"
FIXED = {
    "aiohttp": ("3.14.1", "CVE-2025-69223, CVE-2026-22815, CVE-2026-34993, CVE-2026-47265"),
    "pyyaml": ("6.0.1", "CVE-2020-14343"),
    "pyarrow": ("23.0.1", "CVE-2026-25087"),
    "ray": ("2.54", "CVE-2025-62593, CVE-2026-27482"),
    "torch": ("2.8", "CVE-2025-32434, CVE-2025-3730"),
    "mcp": ("2.0", "CVE-2025-66416"),
    "pytest": ("9.0.3", "CVE-2025-71176"),
}
"""The first version without the vulnerabilities."""


def declared() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = (re.match(r"([\w-]+)[^>]*>=([\d.]+)", entry) for entries in lists for entry in entries)
    return {match[1].lower(): match[2] for match in found if match}


@pytest.mark.parametrize("name", FIXED)
def test_the_minimum_version_excludes_known_vulnerabilities(name):
    minimum, fixed = ([*map(int, text.split("."))] for text in (declared()[name], FIXED[name][0]))
    assert minimum >= fixed, FIXED[name][1]


REPORT = {
    "install": [
        {
            "metadata": {"name": "agentv", "version": "0.1.0", "license_expression": "MIT"},
            "download_info": {"dir_info": {}},
        },
        {
            "metadata": {"name": "Some_Package", "version": "1.2", "license": "BSD"},
            "download_info": {"archive_info": {"hashes": {"sha256": "ab" * 32}}},
        },
        {
            "metadata": {
                "name": "other",
                "version": "1",
                "license": "A whole text\nof a licence",
                "classifier": ["License :: OSI Approved", "License :: OSI Approved :: Apache Software License"],
            },
            "download_info": {"archive_info": {"hashes": {"sha256": "cd" * 32}}},
        },
    ]
}


def test_the_bill_of_materials_has_names_versions_and_hashes():
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    sbom = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sbom)
    bill = json.loads(json.dumps(sbom.bill_of_materials(REPORT, datetime(2026, 1, 2, tzinfo=UTC))))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "MIT"}]
    other, component = bill["components"]
    assert component["licenses"] == [{"license": {"name": "BSD"}}]
    assert other["licenses"] == [{"license": {"name": "Apache Software License"}}]
    assert component["purl"] == "pkg:pypi/some-package@1.2"
    assert component["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]


def test_a_package_that_cannot_be_resolved_is_an_error():
    command = [sys.executable, SCRIPT, "./no-such-folder"]
    assert subprocess.run(command, capture_output=True, timeout=200).returncode != 0


def test_every_promise_of_the_security_page_names_tests_that_exist():
    section = (
        (ROOT / "SECURITY.md").read_text("utf-8").partition("## How the promises are tested")[2].partition("\n## ")[0]
    )
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 10
    for promise, tests, since in rows:
        paths = re.findall(r"`([^`]+)`", tests)
        assert paths and all((ROOT / path).exists() for path in paths), promise
        assert since.strip(), promise
