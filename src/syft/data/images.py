"""Folders of images: one class per folder inside, or all in one. Read with Pillow.

scans/benign/1.png   scans/malign/7.png      images (n, channels, height, width), and labels 0 and 1
photos/1.jpg         photos/2.jpg            images alone
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syft.data.errors import DataFileError
from syft.data.limits import MemoryLimit
from syft.data.side_file import About

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
_CHANNELS = {"L": 1, "RGB": 3}


@dataclass(frozen=True)
class Images:
    """The images of a folder, the class of each (None: they are in one folder), and a line for each that is left out."""

    images: torch.Tensor
    labels: torch.Tensor | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def holds_images(folder: Path) -> bool:
    """Whether a folder, or one in it, has an image."""
    return next(_files(folder), None) is not None


def _files(folder: Path) -> Iterator[tuple[str | None, Path]]:
    """(class, file) of each image, in the order of their names."""
    for entry in _entries(folder):
        if entry.is_dir():
            yield from ((entry.name, file) for file in _entries(entry) if _is_image(file))
        elif _is_image(entry):
            yield None, entry


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.is_file()


def read_images(folder: Path, about: About, limit: MemoryLimit) -> Images:
    """!! DataFileError"""
    try:
        from PIL import Image
    except ImportError:
        raise DataFileError(
            f"{folder} is a folder of images, which needs the package Pillow: pip install 'resyft[data]'."
        ) from None
    found = list(_files(folder))
    if len({name is None for name, _file in found}) > 1:
        raise DataFileError(
            f"{folder} has images both beside and in its folders. Put each into the folder of its class, or all into one."
        )
    notes: list[str] = []
    good: list[tuple[str | None, Path, str, tuple[int, int]]] = []
    for name, file in found:
        try:
            with Image.open(file, formats=_FORMATS) as image:
                width, height = image.size
                good.append((name, file, image.mode, (height, width)))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            notes.append(f"{file} is no image that can be read, and is left out: {error}.")
    if not good:
        raise DataFileError(f"{folder} has no image that can be read. {notes[0] if notes else ''}")
    mode = about.mode or _one_mode(folder, good)
    size = about.size or _one_size(folder, good)
    channels = _CHANNELS[mode]
    limit.check(folder, len(good) * channels * size[0] * size[1])
    largest = max(height * width for _name, _file, _mode, (height, width) in good)
    limit.check(folder, largest * 4)  # one image at a time is decoded
    pixels = np.empty((len(good), channels, *size), np.uint8)
    kept: list[str | None] = []
    for name, file, _mode, _size in good:
        try:
            pixels[len(kept)] = _pixels(Image, file, mode, size)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            notes.append(f"{file} is damaged, and is left out: {error}.")
            continue
        kept.append(name)
    if not kept:
        raise DataFileError(f"{folder} has no image that can be read. {notes[0]}")
    images = torch.from_numpy(pixels[: len(kept)])
    classes = tuple(entry.name for entry in _entries(folder) if entry.is_dir())
    if kept[0] is None:
        return Images(images, None, (), tuple(notes))
    codes = {name: code for code, name in enumerate(classes)}
    labels = torch.tensor([codes[str(name)] for name in kept], dtype=torch.int64)
    return Images(images, labels, classes, tuple(notes))


def _pixels(pillow: Any, file: Path, mode: str, size: tuple[int, int]) -> Any:
    with pillow.open(os.fspath(file), formats=_FORMATS) as image:
        image.load()
        converted = image.convert(mode)
        if (converted.height, converted.width) != size:
            converted = converted.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
        array = np.asarray(converted, dtype=np.uint8)
    return array[None] if mode == "L" else array.transpose(2, 0, 1)


def _one_mode(folder: Path, found: list[Any]) -> str:
    modes = {mode: file for _name, file, mode, _size in found}
    if len(modes) == 1 and next(iter(modes)) in _CHANNELS:
        return str(next(iter(modes)))
    said = ", ".join(f"{file.name} is {mode}" for mode, file in sorted(modes.items())[:4])
    raise DataFileError(
        f"{folder}: images are served as grey values or as colours, and {said}. Say which in {folder.name}.toml: "
        'mode = "L" (grey) or mode = "RGB".'
    )


def _one_size(folder: Path, found: list[Any]) -> tuple[int, int]:
    sizes = {size: file for _name, file, _mode, size in found}
    if len(sizes) == 1:
        (size,) = sizes
        return int(size[0]), int(size[1])
    said = ", ".join(f"{file.name} is {size[0]} by {size[1]}" for size, file in list(sizes.items())[:3])
    raise DataFileError(
        f"{folder}: images of one data set have one size, and {said}. Say the size in {folder.name}.toml, and they are "
        "resized: size = [28, 28] (height, width)."
    )
