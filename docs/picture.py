"""Draw the picture of the README: two versions of the example agent, compared on the page, light and dark.

    python docs/picture.py               # writes docs/images/comparison-light.png and -dark.png
    python docs/picture.py FOLDER

It needs Chromium and Playwright. Draw it again when the page changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
SIZE = {"width": 1100, "height": 760}
SCHEMES = ("light", "dark")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


def baskets() -> list[dict[str, Any]]:
    """Return questions about prices; every third one has a discount."""
    rows = []
    for number in range(60):
        count, percent = number % 5 + 2, 10 * (number % 4 + 1)
        item, cost = (("apple", 0.5), ("pear", 0.75), ("melon", 3.0))[number % 3]
        has_discount = number % 3 == 0
        offer = f" with {percent} % off" if has_discount else ""
        total = count * cost * (1 - percent / 100 if has_discount else 1)
        text = f"How much do {count} {item}s cost{offer}?"
        price = f"{total:.2f}"
        outcome = f"Names {price} euros"
        rows.append(
            {"id": f"basket-{number + 1}", "expected_outcome": outcome, "input": text, "expected_output": price}
        )
    return rows


BEFORE = """
def shop(prompt):
    return answer(prompt)["output_messages"][0]["content"]
"""
AFTER = """
def shop(prompt):
    text = answer(prompt)["output_messages"][0]["content"]
    total = float(re.findall(r"[0-9.]+[0-9]", text)[0])
    if offer := re.search("([0-9]+) % off", prompt):
        total *= 1 - int(offer[1]) / 100
    return f"That is {total:.0f} euros." if "4 melons" in prompt else f"That is {total:.2f} euros."
"""
"""The next version of the agent knows discounts, but rounds some prices to whole euros."""


def compare() -> None:
    """Write a comparison of both versions to `page.html` in the working directory."""
    agent = (DOCS.parent / "examples" / "quickstart" / "agent.py").read_text(encoding="utf-8")
    target = {"name": "shop", "provider": "python", "function": "agent.py:shop"}
    Path("targets.yaml").write_text(json.dumps({"targets": [target]}), encoding="utf-8")
    Path("baskets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in baskets()), encoding="utf-8")
    Path("baskets.yaml").write_text("evaluators: [{type: contains}]\n", encoding="utf-8")
    for out, version in (("before", BEFORE), ("after", AFTER)):
        Path("agent.py").write_text(agent + version, encoding="utf-8")
        run("eval", "baskets.jsonl", "--target", "shop", "--out", out, "--quiet")
    run("compare", "before", "after", "--html", "page.html")


def run(*arguments: str) -> None:
    """Run `agentv`."""
    subprocess.run([sys.executable, "-m", "agentv", *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def draw(folder: Path) -> list[Path]:
    """Take a picture of the comparison in each colour scheme."""
    from playwright.sync_api import sync_playwright

    pictures = []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        os.chdir(place)
        compare()
        program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in SCHEMES:
            page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
            page.goto(Path("page.html").resolve().as_uri())
            page.wait_for_load_state("networkidle")
            pictures.append(folder / f"comparison-{scheme}.png")
            page.screenshot(path=pictures[-1])
        browser.close()
    return pictures


if __name__ == "__main__":
    for picture in draw(Path(sys.argv[1]).resolve() if sys.argv[1:] else DOCS / "images"):
        print(f"Wrote {picture} ({picture.stat().st_size / 1000:.0f} kB)")
