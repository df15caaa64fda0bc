"""The version stands in one place; a release that does not agree with itself is refused."""

from __future__ import annotations

import importlib.util
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import syft
from forked_runs import ROOT


@pytest.fixture(scope="module")
def release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools/release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_stands_in_one_place(release: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/syft/version.py"
    assert release.version() == syft.__version__


@pytest.mark.parametrize(
    "changelog", ["# Changelog\n", "## 1.2\n\n## 1.1\n- old\n", "## Unreleased\n- new\n"]
)
def test_a_release_without_its_changes_is_refused(release: Any, changelog: str) -> None:
    with pytest.raises(SystemExit, match=r"no entries below '## 1\.2'"):
        release.check_changelog("1.2", changelog)


def test_a_release_with_its_changes_passes(release: Any) -> None:
    release.check_changelog("1.2", "## Unreleased\n\n## 1.2 (2027-01-01)\n- new\n")


def test_what_was_built_is_looked_into(release: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no wheel"):
        release.check_built("1.2", tmp_path)
    with zipfile.ZipFile(tmp_path / "resyft-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("syft/version.py", "")
    with tarfile.open(tmp_path / "resyft-1.2.tar.gz", "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "resyft-1.2/LICENSE")
    with pytest.raises(SystemExit, match=r"lacks README\.md, SECURITY\.md, docs/index\.md, syft/py\.typed"):
        release.check_built("1.2", tmp_path)


def test_the_badges_of_the_readme_say_what_the_project_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    shown = {path.stem: path.read_text() for path in (ROOT / "docs/pictures/badges").glob("*.svg")}
    assert all(f"docs/pictures/badges/{name}.svg" in readme for name in shown)
    assert project["license"] in shown["licence"]
    assert project["requires-python"].removeprefix(">=") + "+" in shown["python"]
    (torch_needed,) = [one for one in project["dependencies"] if one.startswith("torch>=")]
    from syft.hooking.torch_hook import TESTED_TORCH

    least, newest = (".".join(map(str, one)) for one in TESTED_TORCH)
    assert torch_needed == f"torch>={least}" and f">{least} to {newest}<" in shown["torch"]
