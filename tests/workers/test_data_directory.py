"""What was kept is there again: after a restart, after kill -9, beside what is broken."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import forked
import syft as sy
from syft import serde
from syft.data import data_directory
from syft.data.data_directory import DataDirectory, DataDirectoryError, is_durable
from syft.data.errors import DataFileError
from syft.data.folder import load_folder
from syft.exceptions import PermissionDeniedError
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy
from syft.policy.quotas import OWNER

TENSORS = {
    "float": torch.randn(3, 4),
    "half": torch.randn(5).bfloat16(),
    "double": torch.randn(2, dtype=torch.float64),
    "complex": torch.randn(2, 2, dtype=torch.complex64),
    "bits": torch.tensor([True, False]),
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    "small": torch.tensor([-128], dtype=torch.int8),
    "long": torch.tensor([-(1 << 63), (1 << 63) - 1]),
    "unsigned": torch.tensor([1, 2], dtype=torch.uint16),
    "narrow": torch.randn(4).to(torch.float8_e4m3fn),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(3.5),
    "transposed": torch.randn(3, 4).t(),
    "slice": torch.randn(10)[::3],
}


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and torch.equal(
        one.view(torch.uint8) if _narrow(one) else one, _viewed(one, other)
    )


def _narrow(tensor: Any) -> bool:
    return tensor.dtype is torch.float8_e4m3fn


def _viewed(one: Any, other: Any) -> Any:
    return other.view(torch.uint8) if _narrow(one) else other


# -- keeping -----------------------------------------------------------------------------------------


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        for name, tensor in TENSORS.items():
            directory.put(name, tensor.detach().tag(f"#{name}").describe(f"the {name} one"))  # type: ignore[attr-defined]
    with DataDirectory(tmp_path) as directory:
        assert sorted(directory.ids()) == sorted(TENSORS)
        assert directory.verify() == []
        for name, tensor in TENSORS.items():
            found = directory.get(name)
            assert same(found, tensor), name
            assert found.id == name and found.tags == {f"#{name}"} and found.description == f"the {name} one"


def test_ids_keep_their_type(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put(5, torch.tensor(1))
        directory.put("5", torch.tensor(2))
        directory.put((1 << 62) + 1, torch.tensor(3))
        with pytest.raises(DataDirectoryError, match="number or a text"):
            directory.put((1, 2), torch.tensor(4))
    with DataDirectory(tmp_path) as directory:
        assert [int(directory.get(i)) for i in (5, "5", (1 << 62) + 1)] == [1, 2, 3]
        with pytest.raises(KeyError, match="keeps no object"):
            directory.get(6)


def test_other_objects_are_kept_as_frames(tmp_path: Path) -> None:
    chain = torch.tensor([1.5, -2.0]).fix_prec().tag("#fixed")  # type: ignore[attr-defined]
    text = sy.String("hello").tag("#text")
    with DataDirectory(tmp_path) as directory:
        directory.put(1, chain)
        directory.put(2, text)
    with DataDirectory(tmp_path) as directory:
        assert [row.kind for row in directory.rows()] == ["object", "object"]
        back = directory.get(1)
        assert back.float_prec().tolist() == [1.5, -2.0] and back.tags == {"#fixed"} and back.id == 1
        assert directory.get(2) == "hello"


def test_what_cannot_be_kept_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        with pytest.raises(DataDirectoryError, match="cannot be kept"):
            directory.put(1, lambda: None)
        assert directory.ids() == [] and list((tmp_path / "objects").iterdir()) == []


def test_replacing_and_removing(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put("x", torch.zeros(3))
        directory.put("x", torch.ones(2), frozenset({"ana"}), True, "ben")
        assert len(list((tmp_path / "objects").iterdir())) == 1
        (row,) = directory.rows()
        assert (row.allowed, row.private, row.holder) == (frozenset({"ana"}), True, "ben")
        assert directory.get("x").tolist() == [1.0, 1.0]
        directory.remove("x")
        directory.remove("x")
        directory.remove("never there")
        assert directory.ids() == [] and list((tmp_path / "objects").iterdir()) == []


def test_what_is_durable(alice: Any) -> None:
    assert is_durable(torch.ones(2).tag("#x"))  # type: ignore[attr-defined]
    assert is_durable(sy.String("x").tag("#x"))
    assert is_durable(torch.ones(2).fix_prec().tag("#x"))  # type: ignore[attr-defined]
    assert not is_durable(torch.ones(2))
    assert not is_durable(torch.ones(2).tag("#x") * 2)  # type: ignore[attr-defined]
    assert not is_durable(torch.ones(2).send(alice).tag("#x"))  # type: ignore[attr-defined]


# -- workers -----------------------------------------------------------------------------------------


def test_a_worker_has_its_data_again_with_its_restrictions(tmp_path: Path, make_worker: Any) -> None:
    dan = make_worker("dan", policy=OwnerPolicy())
    dan.load_data(
        [torch.ones(2).tag("#open"), torch.ones(3).private_tensor(allowed_users=("ana",)).tag("#anas")]
    )
    with speaking_for("eve"):
        torch.zeros(4).tag("#eves").send(dan, garbage_collect_data=False)
    with DataDirectory(tmp_path) as directory:
        for obj_id in list(dan._objects):
            directory.keep(dan, obj_id)
    kept = {tags: dan.search(tags)[0].id_at_location for tags in ("#open", "#anas", "#eves")}
    erin = make_worker("erin", policy=OwnerPolicy())
    with DataDirectory(tmp_path) as directory:
        assert directory.load_into(erin) == []
    assert {tags: erin.search(tags)[0].id_at_location for tags in kept} == kept
    assert {entry.id for entry in erin._entries.values() if entry.is_owners} == {kept["#open"], kept["#anas"]}
    assert erin.is_held_by("eve", kept["#eves"]) and erin.is_held_by(OWNER, kept["#open"])
    with speaking_for("eve"):
        assert erin.search("#eves")[0].copy().get().tolist() == [0.0] * 4
        with pytest.raises(PermissionDeniedError):
            erin.search("#open")[0].get()
    with speaking_for("ana"):
        assert erin.search("#anas")[0].get().tolist() == [1.0] * 3
        with pytest.raises(PermissionDeniedError):
            (erin.search("#anas")[0] + erin.search("#open")[0].sum()).get()
    assert erin._holdings.quotas.usage("eve").objects == 1


def test_rules_of_the_owner_that_changed_hold_after_a_restart(tmp_path: Path, make_worker: Any) -> None:
    dan = make_worker("dan", data=[torch.ones(2).tag("#open")], policy=OwnerPolicy())
    with DataDirectory(tmp_path / "data") as directory:
        directory.keep(dan, next(iter(dan._objects)))
    (tmp_path / "policy.toml").write_text("[users.ana]\nmay_get = 'all'\n")
    erin = make_worker("erin", policy=OwnerPolicy.load(tmp_path / "policy.toml"))
    with DataDirectory(tmp_path / "data") as directory:
        directory.load_into(erin)
    with speaking_for("ana"):
        assert erin.search("#open")[0].get().tolist() == [1.0, 1.0]


def test_a_plain_worker_can_have_one_too(tmp_path: Path, make_worker: Any) -> None:
    dan = make_worker("dan", data=[torch.ones(2).private_tensor(allowed_users=("ana",)).tag("#x")])
    with DataDirectory(tmp_path) as directory:
        directory.keep(dan, next(iter(dan._objects)))
    erin = make_worker("erin")
    with DataDirectory(tmp_path) as directory:
        directory.load_into(erin)
    with pytest.raises(PermissionDeniedError):
        erin.search("#x")[0].get(user="eve")
    assert erin.search("#x")[0].get(user="ana").tolist() == [1.0, 1.0]


def test_loading_into_a_worker_that_keeps_what_it_gets_writes_nothing(
    tmp_path: Path, make_worker: Any
) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put(1, torch.ones(2).tag("#x"))  # type: ignore[attr-defined]
        before = directory.rows()
        dan = make_worker("dan")
        plain = dan.set_obj
        dan.set_obj = lambda obj_id, obj, *more: (plain(obj_id, obj, *more), directory.put(obj_id, obj))
        directory.load_into(dan)
        assert directory.rows() == before and len(dan._objects) == 1
        del dan.set_obj


# -- what is broken ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes instead of"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"), "was changed"),
        (lambda path: path.write_bytes(b""), "bytes instead of"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_a_broken_file_is_named_and_the_others_load(
    tmp_path: Path, make_worker: Any, caplog: pytest.LogCaptureFixture, damage: Any, words: str
) -> None:
    with DataDirectory(tmp_path) as directory:
        for number in range(3):
            directory.put(number, torch.full((4,), number).tag("#x"))  # type: ignore[attr-defined]
        broken = tmp_path / "objects" / directory.rows()[1].file
    damage(broken)
    dan = make_worker("dan")
    with DataDirectory(tmp_path) as directory:
        (verified,) = directory.verify()
        (problem,) = directory.load_into(dan)
        assert problem == verified
        assert (
            problem.id == 1
            and problem.file == broken
            and words in problem.reason
            and "backup" in problem.reason
        )
        assert str(broken) in caplog.text
        assert sorted(int(o[0]) for o in dan._objects.values()) == [0, 2]
        directory.put(1, torch.full((4,), 1))
        assert directory.verify() == []


def test_a_pickle_in_place_of_a_file_is_not_loaded(tmp_path: Path, make_worker: Any) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put(1, sy.String("x").tag("#x"))
        row = directory.rows()[0]
        path = tmp_path / "objects" / row.file
        path.write_bytes(pickle.dumps(os.getcwd))
        directory._index.execute(
            "UPDATE objects SET bytes = ?, checksum = ?",
            (path.stat().st_size, data_directory._checksum(path)),
        )
        (problem,) = directory.load_into(make_worker("dan"))
        assert "cannot be read by this version" in problem.reason


def test_leftovers_of_a_crash_are_swept_and_strangers_files_are_not(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put(1, torch.ones(2))
        kept = directory.rows()[0].file
    objects = tmp_path / "objects"
    for name in (f"{'ab' * 16}.safetensors", f".{'cd' * 16}.syft.0123abcd", f".{'cd' * 16}.safetensors.01ab"):
        (objects / name).write_bytes(b"half")
    (objects / "README.md").write_text("mine")
    with DataDirectory(tmp_path) as directory:
        assert sorted(p.name for p in objects.iterdir()) == sorted(["README.md", kept])
        assert directory.get(1).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", ["write", "checksum", "index"])
def test_a_failure_at_any_step_leaves_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.put("x", torch.zeros(3))
        with monkeypatch.context() as patch:

            def fail(*_: Any, **__: Any) -> Any:
                raise OSError(28, "No space left on device")

            if step == "write":
                patch.setattr(data_directory.serde, "save", fail)
            elif step == "checksum":
                patch.setattr(data_directory, "_checksum", fail)
            else:
                patch.setattr(directory, "_told_plainly", fail)
            with pytest.raises(OSError, match="No space"):
                directory.put("x", torch.ones(3))
        assert directory.get("x").tolist() == [0.0] * 3 and directory.verify() == []
        assert len(list((tmp_path / "objects").iterdir())) == 1
        directory.put("x", torch.ones(3))
        assert directory.get("x").tolist() == [1.0] * 3


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        with pytest.raises(DataDirectoryError, match=rf"in use by another process \(pid {os.getpid()}\)"):
            DataDirectory(tmp_path)
        directory.put(1, torch.ones(1))
    with pytest.raises(DataDirectoryError, match="was closed"):
        directory.put(1, torch.ones(1))
    DataDirectory(tmp_path).close()


def test_an_index_that_is_none_or_of_another_version(tmp_path: Path) -> None:
    DataDirectory(tmp_path).close()
    index = tmp_path / "index.sqlite"
    with sqlite3.connect(index) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(DataDirectoryError, match="version 7; this library reads 2"):
        DataDirectory(tmp_path)
    index.write_bytes(b"junk" * 100)
    with pytest.raises(DataDirectoryError, match="cannot be used: file is not a database"):
        DataDirectory(tmp_path)


# -- kill -9 -----------------------------------------------------------------------------------------

# One warm process forks writers and kills them at random points, because a new interpreter takes seconds.
KILLER = r"""
import os, random, select, signal, sys, time, warnings
import torch
import syft as sy
torch.set_num_threads(1)
sy.TorchHook(torch)
from syft.data.data_directory import DataDirectory

path, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def value(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(1 + number % 5000, generator=generator)

def write(out, seed):
    rng = random.Random(seed)
    with DataDirectory(path) as directory:
        os.write(out, b"opened\n")
        for _ in range(10_000):
            obj_id, number = rng.randrange(12), rng.randrange(1_000_000)
            if rng.random() < 0.3:
                os.write(out, b"begin remove %d 0\n" % obj_id)
                directory.remove(obj_id)
                os.write(out, b"done remove %d 0\n" % obj_id)
            else:
                os.write(out, b"begin put %d %d\n" % (obj_id, number))
                directory.put(obj_id, value(number).tag(f"#{number}"), frozenset({str(number)}))
                os.write(out, b"done put %d %d\n" % (obj_id, number))

rng = random.Random(seed)
known, acknowledged, cut = {}, 0, 0
for kill in range(kills):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write(write_end, rng.randrange(1 << 30) + kill)
        finally:
            os._exit(9)
    os.close(write_end)
    said = os.read(read_end, 7)
    assert said == b"opened\n", said
    time.sleep(rng.random() * 0.12)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(read_end, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    pending = None
    for line in lines:
        state, action, obj_id, number = line.split()
        now = int(number) if action == "put" else None
        if state == "begin":
            pending = int(obj_id), now
        else:
            known[int(obj_id)], pending = now, None
            acknowledged += 1
    with DataDirectory(path) as directory:
        assert directory.verify() == []
        rows = {row.id: row for row in directory.rows()}
        found = {obj_id: int(rows[obj_id].tags[0][1:]) for obj_id in directory.ids()}
        for obj_id, number in found.items():
            assert torch.equal(directory.get(obj_id), value(number)), obj_id
            assert rows[obj_id].allowed == frozenset({str(number)})
        assert len(os.listdir(os.path.join(path, "objects"))) == len(found)
    for obj_id in range(12):
        possible = {known.get(obj_id)}
        if pending is not None and pending[0] == obj_id:
            possible.add(pending[1])
            cut += 1
        assert found.get(obj_id) in possible, (obj_id, found.get(obj_id), possible)
        known[obj_id] = found.get(obj_id)
print(acknowledged, cut)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    done = forked.run(
        "-c",
        KILLER,
        str(tmp_path / "data"),
        "30",
        "1",
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    acknowledged, cut = map(int, done.stdout.split())
    assert acknowledged > 10 and cut > 3  # kills hit the middle of operations, too


# -- a folder of ordinary files ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "ages.npy", np.arange(4, dtype=np.int32))
    (tmp_path / "patients.csv").write_text("age, weight\n31,70.5\n\n44,81\n")
    (tmp_path / "patients.toml").write_text(
        'tags = ["#clinic"]\ndescription = "Two patients."\nallowed = ["ana"]\ndtype = "float64"\n'
    )
    (tmp_path / "plain.csv").write_text("1,2\n3,4\n")
    serde.save(
        tmp_path / "images.safetensors", {"train": torch.ones(2).tag("#mnist"), "test": torch.zeros(1)}
    )  # type: ignore[attr-defined]
    serde.save(tmp_path / "one.safetensors", {"value": torch.tensor(True)})
    (tmp_path / "notes.txt").write_text("not data")
    (tmp_path / ".hidden.npy").write_text("junk")
    return tmp_path


def test_an_ordinary_folder_becomes_tagged_tensors(folder: Path) -> None:
    tensors = {tuple(sorted(t.tags)): t for t in load_folder(folder)}  # type: ignore[attr-defined]
    assert set(tensors) == {
        ("#ages",),
        ("#clinic", "#patients"),
        ("#plain",),
        ("#images", "#mnist", "#train"),
        ("#images", "#test"),
        ("#one",),
    }
    assert tensors[("#ages",)].dtype is torch.int32 and tensors[("#ages",)].tolist() == [0, 1, 2, 3]
    assert tensors[("#plain",)].dtype is torch.float32 and tensors[("#plain",)].tolist() == [[1, 2], [3, 4]]
    assert tensors[("#images", "#mnist", "#train")].tolist() == [1.0, 1.0]


def test_a_worker_serves_it(folder: Path, make_worker: Any) -> None:
    dan = make_worker("dan", data=load_folder(folder))
    (found,) = dan.search(["#clinic", "Two patients"])
    assert found.shape == (2, 2)
    with pytest.raises(PermissionDeniedError):
        found.copy().get(user="eve")
    assert found.get(user="ana").tolist() == [[31.0, 70.5], [44.0, 81.0]]


def test_ids_are_the_same_after_a_restart(folder: Path) -> None:
    first, second = ([t.id for t in load_folder(folder)] for _ in range(2))  # type: ignore[attr-defined]
    assert first == second and len(set(first)) == len(first)
    moved = folder / "other"
    shutil.copytree(folder, moved, ignore=lambda *_: ["other"])
    assert [t.id for t in load_folder(moved)] == first  # type: ignore[attr-defined]


def test_headings_become_the_description(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ufeff"age, in years",weight\n1,2\n')
    (only,) = load_folder(tmp_path)
    assert only.description == "columns: age, in years, weight"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"x,y\n1,\n2,3\n", "no value in 1 of 2 rows"),
        ("a.csv", b"x,y\n1,2,3\n", "line 2 has 3 columns and the first line 2"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"\xff\xfe\x00", "as text with commas"),
        ("a.npy", b"junk", "cannot be served"),
        ("a.npy", b"", "cannot be served"),
        ("a.npy", pickle.dumps([1]), "cannot be served"),
        ("a.safetensors", b"junk", "not a safetensors file"),
        ("b.toml", b"tags = []", "no such file in the folder"),
    ],
)
def test_files_that_cannot_be_served_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFileError, match=words) as caught:
        load_folder(tmp_path)
    assert name in str(caught.value)


def test_arrays_of_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataFileError, match="object, which is no number"):
        load_folder(tmp_path)


@pytest.mark.parametrize("text", ["tag = ['#x']", "tags = 5", "not toml", "dtype = 'float7'"])
def test_a_description_that_is_wrong_is_not_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(DataFileError, match=r"a\.toml"):
        load_folder(tmp_path)
    with pytest.raises(DataFileError, match="no folder"):
        load_folder(tmp_path / "missing")
