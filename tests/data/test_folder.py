"""Folders of ordinary files: what is served of them, as what, and the sentence for each that is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import syft as sy
from broken_files import BROKEN, IMAGE_FOLDERS, LIMIT, SIDE_FILES, write_all
from syft.data.errors import DataFileError
from syft.data.folder import FolderContents, load_folder, read_folder


def test_each_broken_file_is_one_sentence_and_the_good_one_is_served(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    write_all(folder)
    (folder / "good.csv").write_text("age\n51\n")
    contents = read_folder(folder, LIMIT)
    assert [one.file.name for one in contents.served] == ["good.csv"]
    said = [str(problem) for problem in contents.problems]
    expected = {**{n: s for n, (_, s) in BROKEN.items()}, **{n: s for n, (_, s) in IMAGE_FOLDERS.items()}}
    assert len(expected) >= 30 and len(said) == len(expected)
    for name, words in expected.items():
        (sentence,) = [text for text in said if str(folder / name) in text[: len(str(folder / name)) + 2]]
        assert words in sentence, sentence
    with pytest.raises(DataFileError):
        load_folder(folder)


@pytest.mark.parametrize("text", SIDE_FILES)
def test_data_whose_side_file_is_wrong_is_served_to_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text("x,word\n1,ana\n300,bob\n")
    (tmp_path / "a.toml").write_text(text)
    contents = read_folder(tmp_path)
    assert contents.served == () and len(contents.problems) == 1
    assert SIDE_FILES[text] in str(contents.problems[0]) and "a." in str(contents.problems[0])


PATIENTS = """age,sex,born,weight,smokes,note,seen
51,f,1970-01-02,70.5,true,well,2026-01-01T00:00:10
62,m,1969-12-31,,false,ill,1970-01-01T01:00:00+01:00
"""


def of(tmp_path: Path, text: str, about: str = "") -> FolderContents:
    (tmp_path / "patients.csv").write_text(text)
    (tmp_path / "patients.toml").write_text(about)
    contents = read_folder(tmp_path)
    assert contents.problems == (), contents.problems
    return contents


def test_texts_and_dates_are_left_out_with_a_line_unless_they_are_declared(tmp_path: Path) -> None:
    contents = of(tmp_path, PATIENTS, 'missing = "mask"')
    (one,) = contents.served
    assert [c.name for c in one.columns] == [
        "age", "age_missing", "weight", "weight_missing", "smokes", "smokes_missing",
    ]  # fmt: skip
    assert one.values.tolist() == [[51, 0, 70.5, 0, 1, 0], [62, 0, 0, 1, 0, 0]]
    left = " ".join(contents.notes)
    assert all(f"column {name!r} is {what}" in left for name, what in
               (("sex", "text with 2"), ("born", "a date"), ("note", "text with 2"), ("seen", "a date")))  # fmt: skip
    assert one.missing == (0, 0, 1, 0, 0, 0)


def test_declared_columns_are_codes_days_and_seconds_of_their_own_dtypes(tmp_path: Path) -> None:
    about = """
layout = "columns"
text = "category"
dates = "days"
missing = "fill"
fill = -1
[columns.sex]
categories = ["m", "f"]
show_categories = "names"
[columns.note]
show_categories = "count"
[columns.seen]
unit = "seconds"
[columns.smokes]
kind = "left out"
[columns.age]
dtype = "int16"
"""
    contents = of(tmp_path, PATIENTS, about)
    found = {one.name: one for one in contents.served}
    values: dict[Any, Any] = {name: one.values.tolist() for name, one in found.items()}
    assert values == {
        "age": [51, 62],
        "sex": [1, 0],
        "born": [1, -1],
        "weight": [70.5, -1.0],
        "note": [1, 0],
        "seen": [1767225610, 0],
    }
    dtypes = [str(found[name].values.dtype) for name in ("age", "sex", "born", "weight", "seen")]
    assert dtypes == ["torch.int16", "torch.int64", "torch.int64", "torch.float32", "torch.int64"]
    sex, note = found["sex"].columns[0], found["note"].columns[0]
    assert sex.categories == ("m", "f") and note.categories is None and note.count == 2
    assert "m, f" in str(found["sex"].tensor.description)  # type: ignore[attr-defined]
    assert "well" not in repr([one.columns for one in contents.served])
    assert set(found["sex"].tensor.tags) == {"#patients", "#sex"}  # type: ignore[attr-defined]


def test_the_names_of_categories_are_hidden_unless_the_owner_shows_them(tmp_path: Path) -> None:
    (one,) = of(tmp_path, "sex,age\nf,1\nm,2\n", 'text = "category"').served
    assert one.columns[0].categories is None and one.columns[0].count is None
    assert one.values[:, 0].tolist() == [0, 1] and "f, m" not in str(one.tensor.description)  # type: ignore[attr-defined]


def test_dates_of_a_format_other_separators_and_words_for_missing(tmp_path: Path) -> None:
    about = """separator = ";"
missing_values = ["", "NA"]
[columns.day]
kind = "date"
unit = "days"
format = "%d.%m.%Y"
[columns.x]
missing = "fill"
fill = 7
"""
    (one,) = of(tmp_path, "day;x\n02.01.1970;NA\n01.01.1970;3\n", about).served
    assert one.values.tolist() == [[1, 7], [0, 3]]


def test_whole_numbers_that_float32_rounds_are_told(tmp_path: Path) -> None:
    contents = of(tmp_path, "x\n16777217\n")
    assert "float32 rounds" in contents.notes[0]
    (one,) = of(tmp_path, "x\n16777217\n0.5\n", 'dtype = "float64"').served
    assert one.values.tolist() == [[16777217.0], [0.5]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            st.one_of(st.none(), st.floats(-1e6, 1e6, allow_nan=False)),
            st.one_of(st.none(), st.sampled_from(["a", "b,c", 'd"e', "f g"])),
            st.one_of(st.none(), st.dates()),
        ),
        min_size=1,
    )
)
def test_a_table_as_text_and_as_parquet_is_served_as_the_same_numbers(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    names, types = (
        "whole fraction word day".split(),
        [arrow.int64(), arrow.float64(), arrow.string(), arrow.date32()],
    )
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = arrow.table({n: arrow.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})
    quoted = [
        ",".join("" if cell is None else '"' + str(cell).replace('"', '""') + '"' for cell in row)
        for row in rows
    ]
    (folder / "x.csv").write_text("\n".join([",".join(names), *quoted]) + "\n")
    parquet.write_table(table, folder / "y.parquet")
    feather.write_feather(table, folder / "z.feather")
    about = 'layout = "columns"\ntext = "category"\ndates = "days"\nmissing = "mask"\ndtype = "float64"\n'
    for stem in "xyz":
        (folder / f"{stem}.toml").write_text(about)
    contents = read_folder(folder)
    found: dict[str, dict[Any, Any]] = {"x.csv": {}, "y.parquet": {}, "z.feather": {}}
    for one in contents.served:
        found[one.file.name][one.name] = (one.values.tolist(), one.columns[0].kind)
    assert found["x.csv"] == found["y.parquet"] == found["z.feather"], contents.problems
    masks = {name: [cell is None for cell in column] for name, column in zip(names, columns, strict=True)}
    for name, mask in masks.items():
        if not all(mask):
            assert found["x.csv"][f"{name}_missing"][0] == mask


def test_arrays_of_one_and_of_many_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", images=np.zeros((2, 3), np.uint8), labels=np.array([0, 1]))
    np.savez_compressed(tmp_path / "one.npz", x=np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.save(tmp_path / "big_endian.npy", np.arange(3, dtype=">i4"))
    by_tags = {frozenset(t.tags): t for t in load_folder(tmp_path)}  # type: ignore[attr-defined]
    assert by_tags[frozenset({"#many", "#labels"})].tolist() == [0, 1]
    assert by_tags[frozenset({"#one"})].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert by_tags[frozenset({"#big_endian"})].tolist() == [0, 1, 2]


def test_images_in_a_folder_per_class_and_in_one(tmp_path: Path) -> None:
    for name, grey in (
        ("scans/cat/1.png", 10),
        ("scans/dog/2.png", 20),
        ("scans/dog/3.png", 30),
        ("flat/1.png", 51),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (3, 2), grey).save(file)
    (tmp_path / "scans/dog/broken.png").write_bytes(b"no image")
    (tmp_path / "scans.toml").write_text('show_categories = "names"\n')
    (tmp_path / "flat.toml").write_text('dtype = "float32"\nmode = "RGB"\nsize = [4, 5]\n')
    contents = read_folder(tmp_path)
    assert contents.problems == () and len(contents.notes) == 1 and "broken.png" in contents.notes[0]
    flat, scans, labels = contents.served
    assert flat.values.shape == (1, 3, 4, 5) and flat.values.dtype == torch.float32
    assert torch.allclose(flat.values, torch.full_like(flat.values, 0.2))
    assert scans.values.shape == (3, 1, 2, 3) and scans.values[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert labels.values.tolist() == [0, 1, 1] and labels.columns[0].categories == ("cat", "dog")
    assert set(labels.tensor.tags) == {"#scans", "#labels"}  # type: ignore[attr-defined]


def test_without_the_extra_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    parquet.write_table(arrow.table({"x": [1]}), tmp_path / "x.parquet")
    (tmp_path / "scans").mkdir()
    Image.new("L", (2, 2)).save(tmp_path / "scans" / "1.png")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    problems = read_folder(tmp_path).problems
    assert len(problems) == 2 and all("resyft[data]" in str(problem) for problem in problems)


# -- persons ---------------------------------------------------------------------------------------------


def test_the_column_of_persons_is_served_as_codes_and_is_known(tmp_path: Path, hook: Any, me: Any) -> None:
    rows = [("ann", 3, "a"), ("bob", 4, "b"), ("ann", 5, "a"), ("cid", 6, "a")]
    lines = [f"{who},{dose},{ward}" for who, dose, ward in rows]
    (tmp_path / "visits.csv").write_text("who,dose,ward\n" + "\n".join(lines) + "\n")
    (tmp_path / "visits.toml").write_text(
        'person_column = "who"\nshow_categories = "names"\ntext = "category"\n[offer]\ntarget = "ward"\n'
    )
    parquet.write_table(
        arrow.table({"no": [2**40, 2**40 + 1, 2**40], "x": [1, 2, 3]}), tmp_path / "p.parquet"
    )
    np.save(tmp_path / "a.npy", np.array([[1.0, 7.0], [2.0, 7.0]]))
    np.save(tmp_path / "flat.npy", np.arange(3.0))
    persons = ["p.parquet=no", "a.npy=1"]
    contents = read_folder(tmp_path, persons=persons)
    assert contents.problems == ()
    found = {one.file.name: one for one in contents.served}
    visits = found["visits.csv"]
    assert visits.person_column == 0 and visits.values[:, 0].tolist() == [0, 1, 0, 2]
    assert str(visits.tensor.description) == "columns: who (person), dose, ward (a, b)"  # type: ignore[attr-defined]
    assert visits.columns[0].kind == "person" and visits.columns[0].categories is None
    assert found["p.parquet"].values[:, 0].tolist() == [0, 1, 0]  # not rounded to one
    assert found["a.npy"].person_column == 1 and found["flat.npy"].person_column is None
    said = [note for note in contents.notes if "one person has up to 2 rows" in note]
    assert len(said) == 3 and all("--records 2" in note for note in said)
    worker = sy.VirtualWorker(hook, id="of-persons")
    worker.serve_folder(tmp_path, persons=persons)
    known = {
        min(obj.tags): worker.entry_of(obj.id).person_column for obj in worker.current_objects().values()
    }
    assert known["#visits"] == 0 and known["#a"] == 1 and known["#flat"] is None
    (offer,) = worker.datasets()
    assert [column.name for column in offer.parts[0].columns] == ["dose"]  # who it is, is no input


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("visits", "write FILE=COLUMN"),
        ("=x", "write FILE=COLUMN"),
        ("other.csv=x", "there is no 'other.csv' in the folder. It has a.npy"),
    ],
)
def test_a_column_of_persons_that_is_said_wrongly(tmp_path: Path, text: str, said: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match=said):
        read_folder(tmp_path, persons=[text])
    for column in ("2", "name", "-1"):
        (problem,) = read_folder(tmp_path, persons=[f"a.npy={column}"]).problems
        assert "person_column" in str(problem)


def test_the_line_that_a_note_advises_can_be_copied_into_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('sex,"day, born",x\nf,2001-02-03,1\nm,2002-03-04,2\n')
    notes = read_folder(tmp_path).notes
    lines = [re.sub(r' \(or "seconds"\)$', "", note).partition(": columns.")[2] for note in notes]
    (tmp_path / "t.toml").write_text("".join(f"columns.{line}\n" for line in lines))
    contents = read_folder(tmp_path)
    assert contents.notes == () and contents.problems == () and len(contents.served[0].columns) == 3


def test_a_long_text_in_every_row_takes_its_room_once(tmp_path: Path) -> None:
    """A few kilobytes of .parquet were gigabytes when they were read, whatever the limit."""
    rows = 500
    numbers, codes = arrow.array(range(rows)), arrow.array(np.arange(rows, dtype=np.int32) % 2)
    texts = arrow.DictionaryArray.from_arrays(codes, arrow.array(["y" * 1_000_000, "z" * 1_000_000]))
    table = arrow.table({"x": numbers, "text": texts, "left": texts})
    parquet.write_table(table, tmp_path / "x.parquet", store_schema=False, row_group_size=100)
    (tmp_path / "x.toml").write_text('[columns.text]\nkind = "category"\n')
    usual = arrow.default_memory_pool()
    counted = arrow.proxy_memory_pool(usual)
    arrow.set_memory_pool(counted)
    try:
        (one,) = read_folder(tmp_path, most_bytes=50_000_000).served
    finally:
        arrow.set_memory_pool(usual)
    assert one.values.tolist() == [[float(row), float(row % 2)] for row in range(rows)]
    assert 1_000_000 < (counted.max_memory() or 0) < 200_000_000


def test_lists_in_parquet_count_by_their_values(tmp_path: Path) -> None:
    lists = arrow.ListArray.from_arrays(np.arange(21, dtype=np.int32) * 100_000, np.full(2_000_000, 7))
    parquet.write_table(arrow.table({"x": range(20), "lists": lists}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    (problem,) = read_folder(tmp_path, most_bytes=5_000_000).problems
    assert "MiB of memory" in str(problem)
