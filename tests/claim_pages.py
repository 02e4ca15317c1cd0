"""Run simulations again and write their pages: `python tests/claim_pages.py [PAGE ...]`, or `--list` for the pages."""

import importlib
import sys
from pathlib import Path

PAGES = {
    "claims": "claim_rows",
    "coverage": "coverage_rows",
    "cluster-claims": "cluster_page",
    "draw-claims": "draw_page",
    "recorded-draws": "recorded_rows",
    "command-claims": "command_rows",
}
"""The modules that write the pages. The last one reads the first page."""


def main(*names: str) -> None:
    sys.path.append(str(Path(__file__).parent / "stats"))
    modules = {name: importlib.import_module(module) for name, module in PAGES.items()}
    for name in names or PAGES:
        if name == "--list":
            print(*PAGES, sep="\n")
        else:
            modules[name].write()


if __name__ == "__main__":
    main(*sys.argv[1:])
