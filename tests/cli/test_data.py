"""`syft data check`, and a worker whose folder has broken files in it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syft.cli.worker import _from_folder
from syft.serde.data_files import DataFileError, load_folder, read_folder

#: name -> content of a file that cannot be served
BROKEN: dict[str, bytes] = {
    "text.csv": b"age,name\n51,ana\n",
    "date.csv": b"age,day\n51,2026-11-18\n",
    "hole.csv": b"age,weight\n51,\n",
    "ragged.csv": b"age,weight\n51,70,3\n",
    "empty.csv": b"",
    "utf16.csv": "age\n51\n".encode("utf-16"),
    "quote.csv": b'age\n"51\n',
    "nul.csv": b"age\n5\x001\n",
    "junk.npy": b"junk",
    "short.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }"
    + b" " * 60
    + b"\n",
    "huge.npy": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999,), }".ljust(117)
    + b"\n",
    "pickled.npy": pickle.dumps([1]),
    "junk.safetensors": b"junk",
    "cut.safetensors": (80).to_bytes(8, "little") + b'{"x"',
    "lonely.toml": b"tags = []",
}
#: Files beside a good a.csv that make it one that cannot be served.
SIDE_FILES = ("tag = ['#x']", "tags = 5", "not toml", "dtype = 'float7'", "allowed = 'ana'", "\x00")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    folder.mkdir()
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    np.save(folder / "words.npy", np.array(["a", "b"]))
    (folder / "good.csv").write_text("age,weight\n51,nan\n62,80\n")
    (folder / "good.toml").write_text('tags = ["#clinic"]\nallowed = ["ana"]\n')
    return folder


def test_each_broken_file_is_left_out_with_one_line_and_the_good_one_is_served(
    broken: Path, caplog: Any
) -> None:
    (served,) = _from_folder(broken)
    assert set(served.tags) == {"#good", "#clinic"}
    lines = [record.getMessage() for record in caplog.records if record.name == "syft.worker"]
    for name in [*BROKEN, "words.npy"]:
        (line,) = [line for line in lines if f"/{name}" in line.split(" ", 3)[2].rstrip(",:")]
        assert line.startswith("left out: ") and "\n" not in line
    assert len(lines) == len(BROKEN) + 1
    with pytest.raises(DataFileError):
        load_folder(broken)


@pytest.mark.parametrize("text", SIDE_FILES)
def test_data_whose_side_file_is_wrong_is_served_to_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    (tmp_path / "a.toml").write_text(text)
    contents = read_folder(tmp_path)
    assert contents.served == () and len(contents.problems) == 1 and "a.toml" in str(contents.problems[0])


def test_the_check_shows_what_would_be_served_and_what_is_wrong(broken: Path, types: Any) -> None:
    status, out, _ = types("data", "check", str(broken))
    (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == ["good.csv"]]
    assert row == "good.csv #clinic #good (2, 2) float32 1 columns: age, weight".split()
    assert status == 1 and out.count("left out: ") == len(BROKEN) + 1
    assert "'ana' is not a number" in out


def test_the_check_of_a_good_an_empty_and_a_missing_folder(tmp_path: Path, types: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    status, out, _ = types("data", "check", str(folder))
    assert status == 0 and "would be served" in out
    np.save(folder / "ages.npy", np.arange(4))
    status, out, _ = types("data", "check", str(folder))
    assert status == 0 and "#ages" in out and "int64" in out and "left out" not in out
    status, _, err = types("data", "check", str(tmp_path / "missing"))
    assert status == 1 and "DataFileError" in err and "missing" in err
