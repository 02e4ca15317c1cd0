"""The picture of the README can be drawn again, so that it does not go stale."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.usefixtures("shared_browser")  # skips the test without Chromium
def test_the_picture_is_drawn_in_both_colour_schemes(tmp_path):
    command = [sys.executable, str(REPOSITORY / "docs" / "picture.py"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == sorted(path.name for path in (REPOSITORY / "docs" / "images").iterdir())
    for path in [*tmp_path.iterdir(), *(REPOSITORY / "docs" / "images").iterdir()]:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 200_000


def test_the_readme_shows_both_pictures():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(f"docs/images/{path.name}" in readme for path in (REPOSITORY / "docs" / "images").iterdir())
