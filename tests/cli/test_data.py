"""`syft data check`, and a worker whose folder has broken files in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from syft.cli.worker import from_folder


def broken(folder: Path) -> Path:
    folder.mkdir()
    (folder / "junk.npy").write_bytes(b"junk")
    (folder / "good.csv").write_text("age,weight,name\n51,nan,ana\n62,80,bob\n")
    (folder / "good.toml").write_text('tags = ["#clinic"]\nallowed = ["ana"]\n')
    return folder


def test_a_broken_file_is_a_line_of_the_log_and_the_good_one_is_served(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO")
    contents, _ = from_folder(broken(tmp_path / "data"))
    (served,) = (one.tensor for one in contents.served)
    assert set(served.tags) == {"#good", "#clinic"}
    lines = [record.getMessage() for record in caplog.records if record.name == "syft.worker"]
    assert len(lines) == 2 and all("\n" not in line for line in lines)
    assert (
        lines[0].startswith("left out: ") and "junk.npy" in lines[0] and "column 'name' is text" in lines[1]
    )


def test_the_check_shows_what_would_be_served_and_what_is_wrong(tmp_path: Path, types: Any) -> None:
    folder = broken(tmp_path / "data")
    status, out, _ = types("data", "check", str(folder))
    rows = [line.split() for line in out.splitlines() if line.split()[:1] == ["good.csv"]]
    assert rows[0] == "good.csv #clinic #good (2, 2) float32 1 columns: age, weight".split()
    assert rows[1] == "good.csv age number int64 0".split()
    assert rows[2] == "good.csv weight number float64 1".split()
    assert status == 1 and out.count("left out: ") == 1 and out.count("note: ") == 1
    said = json.loads(types("data", "check", str(folder), "--json")[1])
    assert (
        said["served"][0]["shape"] == [2, 2]
        and said["columns"][1]["missing"] == 1
        and len(said["left_out"]) == 1
    )


def test_the_check_of_a_good_an_empty_and_a_missing_folder(tmp_path: Path, types: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    status, out, _ = types("data", "check", str(folder))
    assert status == 0 and "would be served" in out
    np.save(folder / "ages.npy", np.arange(4))
    status, out, _ = types("data", "check", str(folder))
    assert status == 0 and "#ages" in out and "int64" in out and "left out" not in out
    status, out, _ = types("data", "check", str(folder), "--data-limit", "8 b")
    assert status == 1 and "--data-limit" in out
    status, _, err = types("data", "check", str(folder), "--data-limit", "much")
    assert status == 1 and "is not a size" in err
    status, _, err = types("data", "check", str(tmp_path / "missing"))
    assert status == 1 and "DataFileError" in err and "missing" in err
