"""Print a CycloneDX software bill of materials: every package that an installation of agentv needs, with its hash.

    python .ci/sbom.py > sbom.json
    python .ci/sbom.py '.[ray,parquet]' > sbom.json

pip resolves the packages without installing them. `PIP_CONSTRAINT=constraints.txt` selects the versions that CI uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

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
    if metadata.get("license_expression"):
        component["licenses"] = [{"expression": metadata["license_expression"]}]
    return component


if __name__ == "__main__":
    json.dump(bill_of_materials(resolved(*(sys.argv[1:] or ["."])), datetime.now(UTC)), sys.stdout, indent=2)
