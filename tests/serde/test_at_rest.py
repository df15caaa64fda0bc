"""Tagged tensors in safetensors files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from syft import exceptions, serde
from syft.core.identity import known_identity


def test_tensors_come_back_with_their_tags(tmp_path: Path) -> None:
    tagged = torch.randn(3, 4).tag("#mnist", "#train").describe("images")  # type: ignore[attr-defined]
    tensors = {
        "images": tagged,
        "half": torch.randn(5).bfloat16(),
        "complex": torch.randn(2, 2, dtype=torch.complex128),
        "bits": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3),
        "transposed": tagged.t(),
        "weights": torch.randn(2, requires_grad=True),
    }
    wanted = tagged.id
    serde.save(tmp_path / "data.safetensors", tensors, {"licence": "CC0"})
    back, about = serde.load(tmp_path / "data.safetensors")
    assert about == {"licence": "CC0"}
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype, name
        assert back[name].requires_grad == tensor.requires_grad
    assert back["images"].tags == {"#mnist", "#train"} and back["images"].description == "images"
    assert back["images"].id == wanted
    assert known_identity(back["half"]) is None
    back["images"].add_(1)
    assert os.listdir(tmp_path) == ["data.safetensors"]


def test_other_programs_read_our_files_and_we_theirs(tmp_path: Path) -> None:
    serde.save(tmp_path / "ours", {"a": torch.ones(3)})
    assert torch.equal(safetensors.torch.load_file(tmp_path / "ours")["a"], torch.ones(3))
    safetensors.torch.save_file({"b": torch.zeros(3)}, tmp_path / "theirs", {"k": "v"})
    tensors, about = serde.load(tmp_path / "theirs")
    assert torch.equal(tensors["b"], torch.zeros(3)) and about == {"k": "v"}


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    serde.save(tmp_path / "good", {"a": torch.ones(300)})
    good = (tmp_path / "good").read_bytes()
    for number, data in enumerate(
        (b"", b"x" * 50, good[:-1], good[:9], pickle.dumps([1]), b"\xff" * 8 + good[8:])
    ):
        (tmp_path / f"bad{number}").write_bytes(data)
        with pytest.raises(serde.SerdeError, match="not a safetensors file"):
            serde.load(tmp_path / f"bad{number}")


@pytest.mark.parametrize(
    "entry",
    ["", "[]", "{}", '{"version": 2, "tensors": {}}', '{"version": 1, "tensors": {"a": {"complex": true}}}'],
)
def test_an_entry_of_ours_that_is_wrong_is_refused(tmp_path: Path, entry: str) -> None:
    safetensors.torch.save_file({"a": torch.ones(3)}, tmp_path / "x", {"syft": entry})
    with pytest.raises(serde.SerdeError):
        serde.load(tmp_path / "x")


def test_what_is_not_here_cannot_be_saved(tmp_path: Path, bob: Any) -> None:
    for value in (torch.ones(2).send(bob), [1], "text"):  # type: ignore[attr-defined]
        with pytest.raises(serde.UnserializableError, match="plain tensors"):
            serde.save(tmp_path / "x", {"a": value})
    with pytest.raises(serde.SerdeError, match="taken"):
        serde.save(tmp_path / "x", {}, {"syft": "mine"})
    with pytest.raises(serde.SerdeError, match="strings"):
        serde.save(tmp_path / "x", {}, {"a": 1})  # type: ignore[dict-item]
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serde.save(tmp_path / "x", {"a": torch.ones(1)})

    def fail(_fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        serde.save(tmp_path / "x", {"a": torch.zeros(1)})
    assert serde.load(tmp_path / "x")[0]["a"] == 1
    assert os.listdir(tmp_path) == ["x"]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def missing(name: str, package: str | None = None) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(exceptions.DependencyError, match="safetensors"):
        serde.save(tmp_path / "x", {})
