"""Files that cannot be served, each with a word that its sentence has to have."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.feather as feather
import pyarrow.parquet as parquet
from PIL import Image


def _npy_head(shape: str, descr: str = "'<f4'") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00v\x00" + head


def _parquet(table: arrow.Table) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()


def _feather(table: arrow.Table) -> bytes:
    stream = io.BytesIO()
    feather.write_feather(table, stream, compression="uncompressed")
    return stream.getvalue()


def _npz(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return stream.getvalue()


_LONG = arrow.table({"x": arrow.array(np.zeros(100_000), arrow.float64())})
_HOLES = arrow.table({"x": [1.0, None], "y": [1, 2]})

#: name -> (content, what the sentence says)
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "head_only.csv": (b"age,weight\n", "no rows"),
    "ragged.csv": (b"age,weight\n51,70,3\n", "line 2 has 3 columns"),
    "hole.csv": (b"age,weight\n51,\n62,80\n", "no value in 1 of 2 rows"),
    "texts.csv": (b"name\nana\nbob\n", "no column that can be served"),
    "twice.csv": (b"age,age\n1,2\n", "two columns of the name 'age'"),
    "utf16.csv": ("age\n51\n".encode("utf-16"), "UTF-8"),
    "latin1.csv": ("größe\n51\n".encode("latin-1"), "UTF-8"),
    "quote.csv": (b'age\n"51\n', "cannot be read"),
    "huge_cell.csv": (b"age\n" + b"1" * 200_000 + b"\n", "field larger"),
    "semicolons.csv": (b"age;weight\n51;70\n", "separator"),
    "junk.npy": (b"junk", "numpy.save"),
    "no_bytes.npy": (b"", "numpy.save"),
    "short.npy": (_npy_head("(9,)"), "36 bytes of numbers"),
    "huge.npy": (_npy_head("(9999999999999999,)"), "bytes of numbers"),
    "words.npy": (_npy_head("(2,)", "'<U1'") + b"\0" * 8, "no number"),
    "objects.npy": (_npy_head("(1,)", "'|O'") + pickle.dumps([1]), "no number"),
    "pickled.npy": (pickle.dumps([1]), "numpy.save"),
    "junk.npz": (b"PK junk", "numpy.savez"),
    "nothing.npz": (_npz(), "0 arrays"),
    "bad_member.npz": (_npz(x=b"junk"), "numpy.savez"),
    "bomb.npz": (_npz(x=_npy_head("(3000000,)") + b"\0" * 12_000_000), "--data-limit"),
    "junk.safetensors": (b"junk", "cannot be served"),
    "cut.safetensors": ((80).to_bytes(8, "little") + b'{"x"', "cannot be served"),
    "junk.parquet": (b"PAR1junkPAR1", "cannot be read"),
    "cut.parquet": (_parquet(_HOLES)[:-20], "cannot be read"),
    "holes.parquet": (_parquet(_HOLES), "no value in 1 of 2 rows"),
    "no_rows.parquet": (_parquet(_HOLES.slice(0, 0)), "no rows"),
    "lists.parquet": (_parquet(arrow.table({"x": [[1], [2]]})), "list"),
    "repeated.parquet": (_parquet(arrow.table({f"x{i}": _LONG["x"] for i in range(10)})), "--data-limit"),
    "junk.arrow": (b"ARROW1junk", "cannot be read"),
    "cut.feather": (_feather(_HOLES)[:-12], "cannot be read"),
    "lonely.toml": (b"tags = []", "no such file"),
}
#: How much memory the folder of all of them may take.
LIMIT = 4 << 20

#: The .toml beside a good a.csv -> what the sentence says.
SIDE_FILES: dict[str, str] = {
    "tag = ['#x']": "unknown field",
    "tags = 5": "cannot be understood",
    "not toml": "cannot be understood",
    "dtype = 'float7'": "float7",
    "allowed = 'ana'": "cannot be understood",
    "\x00": "cannot be understood",
    "missing = 'fill'": "fill = 0",
    "missing = 'guess'": "cannot be understood",
    "separator = 'ab'": "one character",
    "mode = 'L'": "images in folders",
    "size = [2, 2]": "images in folders",
    "[columns.nothing]\nkind = 'number'": "no such column",
    "[columns.x]\nkind = 'date'": "Say which",
    "[columns.x]\nkind = 'date'\nunit = 'days'": "is said to be a date",
    "[columns.x]\nkind = 'number'\nshow_categories = 'names'": "show_categories is for",
    "[columns.x]\ncategories = ['1', '1']": "named twice",
    "[columns.x]\ncategories = ['7']": "none of the categories",
    "[columns.x]\ndtype = 'uint8'": "fits into",
    "[columns.word]\nkind = 'number'": "'ana' is not a number",
    "person_column = 'patient'": "has no column 'patient'",
    "person_column = 0": "is named by its name",
    "person_column = 'word'\nlayout = 'columns'": "as one matrix",
    "person_column = 'word'\n[columns.word]\nkind = 'left out'": "is said to be left out, and to name",
    "person_column = 'word'\n[columns.word]\nshow_categories = 'names'": "nobody sees which code is whose",
    "released_only = true\nallowed = ['ana']": "Leave one of the two out",
}


def _save(file: Path, mode: str, size: tuple[int, int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(file)


def _two_sizes(folder: Path) -> None:
    _save(folder / "1.png", "L", (4, 4))
    _save(folder / "2.png", "L", (5, 4))


def _two_modes(folder: Path) -> None:
    _save(folder / "1.png", "L", (4, 4))
    _save(folder / "2.png", "RGB", (4, 4))


def _transparent(folder: Path) -> None:
    _save(folder / "1.png", "RGBA", (4, 4))


def _none_readable(folder: Path) -> None:
    folder.mkdir()
    (folder / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDRjunk")


def _mixed_places(folder: Path) -> None:
    _save(folder / "1.png", "L", (4, 4))
    _save(folder / "cats" / "2.png", "L", (4, 4))


def _too_large(folder: Path) -> None:
    _save(folder / "1.png", "RGB", (2_000, 2_000))


#: name of a folder -> (how it is made, what the sentence says)
IMAGE_FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "two_sizes": (_two_sizes, "size = [28, 28]"),
    "two_modes": (_two_modes, 'mode = "L"'),
    "transparent": (_transparent, 'mode = "L"'),
    "none_readable": (_none_readable, "no image that can be read"),
    "mixed_places": (_mixed_places, "both beside and in"),
    "too_large": (_too_large, "--data-limit"),
}


def write_all(folder: Path) -> None:
    """Every broken file, and every broken folder of images."""
    folder.mkdir()
    for name, (content, _said) in BROKEN.items():
        (folder / name).write_bytes(content)
    for name, (make, _said) in IMAGE_FOLDERS.items():
        make(folder / name)
