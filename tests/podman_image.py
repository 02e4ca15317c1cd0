"""A small image for Podman: a shell and empty folders. Python is mounted from this machine."""

import os
import shutil
import subprocess
import sys
import tarfile
from functools import lru_cache
from pathlib import Path

IMAGE = "localhost/agentv-tests:1"
READABLE = tuple(filter(os.path.exists, dict.fromkeys(("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix))))
"""What programs in the container need of this machine, to run its Python."""

_FOLDERS = ("bin", "usr", "lib", "lib64", "etc", "proc", "sys", "dev", "tmp", "run", "var")
_CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
"""


def use_runc(folder: Path) -> str:
    """Write the settings of Podman, for machines that do not let containers have higher limits; return their path."""
    path = folder / "containers.conf"
    path.write_text(_CONFIGURATION)
    return str(path)


@lru_cache(maxsize=1)
def podman_problem(folder: Path) -> str:
    """Import the image, and try to run it. Returns why that does not work; an empty string if it does."""
    missing = [name for name in ("podman", "runc", "busybox") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    archive = folder / "image.tar"
    _write_image(folder / "root", archive)
    for command in (["import", str(archive), IMAGE], ["run", "--rm", "--network", "none", IMAGE, "/bin/true"]):
        done = subprocess.run(["podman", *command], capture_output=True, text=True, timeout=200)
        if done.returncode:
            return f"podman {command[0]} failed: {done.stderr.strip()[-300:]}"
    return ""


def _write_image(root: Path, archive: Path) -> None:
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
    for name in ("sh", "cat", "echo", "true", "sleep", "ls", "grep", "touch", "pwd", "id"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    with tarfile.open(archive, "w") as file:
        file.add(root, arcname=".")
