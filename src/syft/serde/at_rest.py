"""Tensors on disk: safetensors files, with tags and descriptions, that any reader of that format can open.

A file is written beside its place and moved there when it is complete, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from syft.core.chain import Wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.structs import prepared
from syft.exceptions import DependencyError
from syft.serde.errors import SerdeError, UnserializableError

#: The entry of a file's metadata that is ours.
_KEY = "syft"
_VERSION = 1


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a tensor beside its values."""

    id: int | str | None = None
    tags: list[str] = []
    description: str | None = None
    requires_grad: bool = False
    complex: bool = False


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    tensors: dict[str, Kept]


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors by name, with their tags, descriptions and ids, and some text about them all."""
    torch_format = _safetensors("safetensors.torch")
    about = dict(metadata or {})
    if _KEY in about or not all(type(k) is str and type(v) is str for k, v in about.items()):
        raise SerdeError(f"The metadata of a file maps strings to strings, and the name {_KEY!r} is taken.")
    values: dict[str, torch.Tensor] = {}
    kept: dict[str, Kept] = {}
    for name, tensor in tensors.items():
        if type(name) is not str or type(tensor) is Wrapper or not isinstance(tensor, torch.Tensor):
            raise UnserializableError(
                f"{name!r} is a {type(tensor).__name__}. A file holds plain tensors by name: fetch pointers and open "
                "secrets first."
            )
        # NB: a copy, because two names for one memory are refused.
        plain = tensor.detach().to("cpu", copy=True).contiguous()
        values[name] = torch.view_as_real(plain) if plain.is_complex() else plain
        kept[name] = _kept(tensor)
    about[_KEY] = msgspec.json.encode(_Entry(_VERSION, kept)).decode()
    try:
        data = torch_format.save(values, about)
    except (KeyError, ValueError, TypeError) as error:
        raise UnserializableError(f"The tensors cannot be written to a safetensors file: {error}") from error
    _write_whole(Path(path), data)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors by name and the metadata of a safetensors file, ours or another's. !! SerdeError"""
    safetensors = _safetensors("safetensors")
    try:
        with safetensors.safe_open(os.fspath(path), framework="pt") as file:
            about: dict[str, str] = dict(file.metadata() or {})
            tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise SerdeError(f"{os.fspath(path)!r} is not a safetensors file: {error}") from error
    entry = _entry(about.pop(_KEY, None), path)
    for name, known in entry.tensors.items():
        if name in tensors:
            tensors[name] = _restored(tensors[name], known)
    return tensors, about


def _kept(tensor: torch.Tensor) -> Kept:
    known = known_identity(tensor)
    if known is None:
        return Kept(requires_grad=tensor.requires_grad, complex=tensor.is_complex())
    return Kept(
        known._id if isinstance(known._id, (int, str)) else None,
        sorted(str(tag) for tag in known.tags),
        known.description,
        tensor.requires_grad,
        tensor.is_complex(),
    )


def _restored(tensor: torch.Tensor, kept: Kept) -> torch.Tensor:
    try:
        made = torch.view_as_complex(tensor) if kept.complex else tensor
        made.requires_grad_(kept.requires_grad)
    except RuntimeError as error:
        raise SerdeError(f"What a file says of a tensor does not fit it: {error}") from error
    if kept.id is not None or kept.tags or kept.description is not None:
        identity = identity_of(made)
        identity._id, identity.tags, identity.description = kept.id, set(kept.tags), kept.description
    return made


def _entry(text: str | None, path: Any) -> _Entry:
    if text is None:
        return _Entry(_VERSION, {})
    try:
        entry = msgspec.json.decode(text, type=prepared(_Entry))
    except (msgspec.DecodeError, RecursionError) as error:
        raise SerdeError(f"The entry {_KEY!r} of {os.fspath(path)!r} cannot be read: {error}") from error
    if entry.version != _VERSION:
        raise SerdeError(
            f"{os.fspath(path)!r} is of version {entry.version}; this library reads {_VERSION}. Update it."
        )
    return entry


def _write_whole(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


def _safetensors(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DependencyError("safetensors") from error
