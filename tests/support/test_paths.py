"""Paths that only Windows has."""

import ntpath
import os

import pytest

from agentv.support.hashes import leaves_folder, relative_path, short


@pytest.fixture
def windows_paths(monkeypatch):
    for name in ("relpath", "abspath", "normpath", "splitdrive", "join"):
        monkeypatch.setattr(os.path, name, getattr(ntpath, name))
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os, "getcwd", lambda: "D:\\work")


def test_a_path_on_another_drive_stays_absolute(windows_paths):
    assert relative_path("C:\\temp\\run", "D:\\work") == "C:\\temp\\run"
    assert relative_path("D:\\work\\run", "D:\\work") == "run"
    assert short("C:\\temp\\run") == "C:\\temp\\run"


@pytest.mark.parametrize("path", ["C:x", "C:\\x", "\\x", "/x", "..", "a/../../x", "\\\\host\\share\\x"])
def test_a_path_that_leaves_its_folder_on_windows_is_found(windows_paths, path):
    assert leaves_folder(path)


@pytest.mark.parametrize("path", ["x", "a/b", "a/../b", ".", "..x"])
def test_a_path_inside_its_folder_does_not_leave_it(path):
    assert not leaves_folder(path)
