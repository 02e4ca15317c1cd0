"""Print a CycloneDX software bill of materials: each package that agentv needs, with hash and licence.

    python .ci/sbom.py > sbom.json
    python .ci/sbom.py '.[ray,parquet]' > sbom.json

pip resolves the packages without installing them. `PIP_CONSTRAINT=constraints.txt` selects the versions that CI uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

_LONGEST_NAME = 100
_PIP = ("-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-")


def resolved(requirement: str) -> dict[str, Any]:
    """Return pip's report of what it would install."""
    printed = subprocess.run([sys.executable, *_PIP, requirement], stdout=subprocess.PIPE, check=True).stdout  # noqa: S603
    report: dict[str, Any] = json.loads(printed)
    return report


def bill_of_materials(report: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Convert pip's report to CycloneDX. Only agentv itself, which is built from source, has no hash."""
    packages = sorted(report["install"], key=lambda entry: entry["metadata"]["name"].lower())
    main = next(entry for entry in packages if entry["metadata"]["name"] == "agentv")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": now.isoformat(timespec="seconds"), "component": _component(main, "application")},
        "components": [_component(entry, "library") for entry in packages if entry is not main],
    }


def _component(entry: dict[str, Any], kind: str) -> dict[str, Any]:
    metadata = entry["metadata"]
    name, version = metadata["name"], metadata["version"]
    address = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    component = {"type": kind, "bom-ref": address, "name": name, "version": version, "purl": address}
    hashes = entry["download_info"].get("archive_info", {}).get("hashes", {})
    if hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": hashes["sha256"]}]
    if licenses := _licenses(metadata):
        component["licenses"] = licenses
    return component


def _licenses(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the licences of a package: an expression, or else their names in its classifiers or as it writes them."""
    if expression := metadata.get("license_expression") or _installed_expression(metadata):
        return [{"expression": expression}]
    classifiers = (each for each in metadata.get("classifier", ()) if each.startswith("License ::"))
    names = [each.rpartition(" :: ")[2] for each in classifiers if not each.endswith(":: OSI Approved")]
    text = (metadata.get("license") or "").strip()
    if not names and text and len(text) <= _LONGEST_NAME and "\n" not in text:
        names = [text]
    return [{"license": {"name": name}} for name in names]


def _installed_expression(metadata: dict[str, Any]) -> str | None:
    """Return the licence of the same version in this environment: the report of pip before 25 has no expressions."""
    try:
        package = distribution(metadata["name"])
    except PackageNotFoundError:
        return None
    return package.metadata.get("License-Expression") if package.version == metadata["version"] else None


if __name__ == "__main__":
    json.dump(bill_of_materials(resolved(*(sys.argv[1:] or ["."])), datetime.now(UTC)), sys.stdout, indent=2)
