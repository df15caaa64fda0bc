"""Data that its owner lets only be released: nothing else is done with it, whoever asks and in whatever way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from calls import decoded, recorded_calls
from guarded_worlds import COMMANDS, ROWS, GuardedWorld, compare

import syft as sy
from syft.data.data_directory import DataDirectory
from syft.data.errors import DataFileError
from syft.data.folder import load_folder
from syft.dp.release_training import train_privately
from syft.exceptions import ComputeNotPermittedError, GetNotPermittedError, SendNotPermittedError
from syft.messaging.message import Operation, Ref
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy
from syft.tensors.private import PrivateTensor
from syft.workers import guards

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS_OF_PEOPLE = torch.arange(200.0).reshape(100, 2) / 100


def held_back(rows: torch.Tensor, tag: str = "#ages") -> Any:
    return rows.clone().tag(tag).private_tensor(released_only=True)  # type: ignore[attr-defined]


@pytest.fixture(params=["open", "guarded"])
def hospital(request: pytest.FixtureRequest, hook: Any, me: Any) -> Any:
    policy = OwnerPolicy() if request.param == "guarded" else None
    worker = sy.VirtualWorker(hook, id="hospital", policy=policy, auto_add=False)
    worker.load_data([held_back(ROWS_OF_PEOPLE)])
    worker.set_budget(dataset="#ages", epsilon=8.0, delta=1e-5)
    return worker


def ages_of(worker: Any) -> Any:
    with speaking_for("eve"):
        return worker.search("#ages")[0]


def test_every_operation_of_the_table_refuses_it_by_a_sentence(hook: Any, me: Any) -> None:
    refused = 0
    world = GuardedWorld(hook, "recorded", 5)
    ref = Ref(world.put(PrivateTensor(released_only=True).on(torch.ones(3, 3))))
    for name in ROWS:
        found: list[Ref] = []

        def tensor(_record: dict[str, Any], found: list[Ref] = found) -> Ref:
            found.append(ref)
            return ref

        _, args, kwargs = recorded_calls()[name][0]
        given, named = decoded(args, tensor), {k: decoded(v, tensor) for k, v in kwargs.items()}
        if found:
            before = set(world.worker._entries)
            world.say(Operation(name, None, given, named, (world.new_id(),)))
            heard = str(world.log[-1][0])
            is_refused = heard.startswith("ComputeNotPermittedError") and "only be released" in heard
            assert is_refused or heard.startswith("UnknownCommandError"), (name, heard)
            assert set(world.worker._entries) == before, name
            refused += is_refused
    assert refused > 300


def test_a_user_hears_the_same_whatever_its_values_are(hook: Any, me: Any) -> None:
    only = tuple((command, weight) for command, weight in COMMANDS if command.__name__ == "released_only")
    assert compare(hook, 60, 11, only) > 400


def test_a_worker_that_forgets_the_rule_is_found(hook: Any, me: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards.ReleasedOnly, "permit", lambda self, call: None)
    with pytest.raises(AssertionError):
        test_every_operation_of_the_table_refuses_it_by_a_sentence(hook, me)


def test_it_is_released_and_nothing_else(hospital: Any) -> None:
    ages = ages_of(hospital)
    with speaking_for("eve"):
        mean = hospital.release(ages, "mean", epsilon=4.0, bounds=(0, 2))
        assert torch.allclose(mean, ROWS_OF_PEOPLE.double().mean(0), atol=0.3)
        assert hospital.budget("#ages").left == 4.0
        for attempt in (
            lambda: ages * 2,
            lambda: ages[:, 0],
            lambda: ages.clone(),
            lambda: torch.nn.functional.relu(ages),
            lambda: ages.fix_precision(),
        ):
            with pytest.raises(ComputeNotPermittedError, match="only be released, with noise"):
                attempt()
        for attempt in (ages.get, ages.copy):
            with pytest.raises((GetNotPermittedError, ComputeNotPermittedError)):
                attempt()
        with pytest.raises((SendNotPermittedError, ComputeNotPermittedError)):
            ages.add_(1)
    refusals = [line for line in hospital.policy.audit_log if line.reason == "released only"]
    assert refusals and all(not line.granted and line.action == "compute" for line in refusals)
    assert torch.equal(hospital._entries[ages.child.id_at_location].value, ROWS_OF_PEOPLE)


def test_a_plan_does_not_use_it_either(hospital: Any) -> None:
    plan = sy.func2plan(args_shape=[(100, 2)])(lambda x: x.sum())
    ages = ages_of(hospital)
    with speaking_for("eve"):
        there = plan.send(hospital)
        with pytest.raises(ComputeNotPermittedError, match="only be released"):
            there(ages)


def test_a_model_is_trained_on_it_with_noise(hook: Any, me: Any) -> None:
    worker = sy.VirtualWorker(hook, id="hospital", auto_add=False)
    worker.load_data([held_back(ROWS_OF_PEOPLE), held_back((ROWS_OF_PEOPLE[:, 0] > 1).long(), "#old")])
    for tag in ("#ages", "#old"):
        worker.set_budget(dataset=tag, epsilon=8.0, delta=1e-5)
    inputs, targets = worker.search("#ages")[0], worker.search("#old")[0]
    model = torch.nn.Linear(2, 2)
    settings: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "epochs": 1, "batch_size": 100, "lr": 0.1}
    trained = train_privately(inputs, targets, model, loss="cross_entropy", user="eve", **settings)
    assert not torch.equal(trained.weight, model.weight)
    assert worker.budget("eve", "#ages").left == pytest.approx(4.0)


def test_who_replaces_it_does_not_lift_the_rule(hospital: Any) -> None:
    obj_id = ages_of(hospital).child.id_at_location
    hospital.register_obj(ROWS_OF_PEOPLE.clone().tag("#ages"), obj_id)  # type: ignore[attr-defined]
    with speaking_for("eve"), pytest.raises((ComputeNotPermittedError, GetNotPermittedError)):
        (ages_of(hospital) + 1).get()
    assert hospital._entries[obj_id].is_released_only


def test_it_is_so_after_a_restart(hook: Any, me: Any, tmp_path: Path) -> None:
    for _ in range(2):
        worker = sy.VirtualWorker(hook, id="hospital", policy=OwnerPolicy(), auto_add=False)
        with DataDirectory(tmp_path / "kept") as kept:
            if not kept.ids():
                worker.load_data([held_back(ROWS_OF_PEOPLE)])
                kept.keep(worker, next(iter(worker._entries)))
            else:
                assert kept.load_into(worker) == []
        (entry,) = worker._entries.values()
        assert entry.is_released_only and sorted(entry.value.tags) == ["#ages"]
        with speaking_for("eve"), pytest.raises(ComputeNotPermittedError, match="only be released"):
            worker.search("#ages")[0] + 1


def test_a_directory_of_the_version_before_is_read(tmp_path: Path, hook: Any, me: Any) -> None:
    import sqlite3

    with DataDirectory(tmp_path) as kept:
        kept.put(7, torch.ones(2).tag("#a"))  # type: ignore[attr-defined]
    index = sqlite3.connect(tmp_path / "index.sqlite")
    index.execute("ALTER TABLE objects DROP COLUMN released_only")
    index.execute("PRAGMA user_version = 1")
    index.commit()
    index.close()
    with DataDirectory(tmp_path) as kept:
        assert [(row.id, row.released_only) for row in kept.rows()] == [(7, False)]


def test_a_folder_says_it_in_the_file_beside_the_data(hook: Any, me: Any, tmp_path: Path) -> None:
    (tmp_path / "ages.csv").write_text("31\n44\n")
    (tmp_path / "ages.toml").write_text("released_only = true\n")
    worker = sy.VirtualWorker(hook, id="hospital", policy=OwnerPolicy(), auto_add=False)
    worker.load_data(load_folder(tmp_path))
    with speaking_for("eve"), pytest.raises(ComputeNotPermittedError, match="only be released"):
        worker.search("#ages")[0] + 1
    (tmp_path / "ages.toml").write_text('released_only = true\nallowed = ["ann"]\n')
    with pytest.raises(DataFileError, match="fetched by nobody"):
        load_folder(tmp_path)
    (tmp_path / "ages.toml").write_text('released_only = "yes"\n')
    with pytest.raises(DataFileError, match="released_only"):
        load_folder(tmp_path)


def test_what_contradicts_it_is_refused(hook: Any, me: Any) -> None:
    with pytest.raises(ValueError, match="Nobody may fetch"):
        torch.ones(2).private_tensor(allowed_users=("ann",), released_only=True)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="True or False"):
        torch.ones(2).private_tensor(released_only="yes")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no allowed users"):
        held_back(torch.ones(2)).child.register_credentials(["ann"])
    with pytest.raises(ValueError, match="may only be released"):
        sy.VirtualWorker(hook, id="x", auto_add=False).add_dataset(
            sy.BaseDataset(held_back(torch.ones(2, 2)), torch.ones(2)), "rows"
        )
    local = held_back(torch.ones(2)) * 2 + torch.ones(2)
    assert local.child.released_only


def test_it_travels_as_what_it_is() -> None:
    sent = sy.serde.deserialize(sy.serde.serialize(held_back(torch.ones(2))))
    assert sent.child.released_only and sent.child.allowed_users == ()
