"""Data sets of folders that are offered: what users are told, mock data, and what they may do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import syft as sy
from syft.data.folder import read_folder
from syft.data.offers import with_offers
from syft.data.schema import ColumnInfo, DataSetInfo, PartInfo, mock_data, told_rows
from syft.exceptions import GetNotPermittedError
from syft.federated.dataset import BaseDataset
from syft.federated.records import FitInstructions
from syft.messaging.message import AskMessage, RoundMessage
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules

PATIENTS = "age,weight,sex,sick\n" + "".join(
    f"{20 + i},{60 + i}.5,{'fm'[i % 2]},{i % 3 > 0}\n" for i in range(12)
)
ABOUT = """
[offer]
target = "sick"
{offer}
[columns.sex]
kind = "category"
categories = ["f", "m"]
show_categories = "names"
[columns.sick]
kind = "category"
categories = ["False", "True"]
show_categories = "count"
"""


def write(folder: Path, offer: str = "", more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "patients.csv").write_text(PATIENTS)
    (folder / "patients.toml").write_text(more + ABOUT.format(offer=offer))
    return folder


def offered(folder: Path, *given: str) -> Any:
    contents, offers = with_offers(read_folder(folder), folder, given)
    assert contents.problems == (), contents.problems
    return contents, offers


def problem(folder: Path, *given: str) -> str:
    contents, _ = with_offers(read_folder(folder), folder, given)
    (one,) = contents.problems
    return str(one)


def test_a_table_is_offered_as_inputs_and_a_target_with_tags(tmp_path: Path) -> None:
    contents, (one,) = offered(write(tmp_path))
    assert [str(part) for part in one.info.parts] == [
        "inputs float32 (3,) (age, weight, sex (f, m))",
        "target int64 () (sick)",
    ]
    assert (
        one.info.rows == "12"
        and one.info.uses == ("rounds", "noise")
        and one.info.parts[1].columns[0].count == 2
    )
    inputs, target = one.tensors
    assert inputs[1].tolist() == [21.0, 61.5, 1.0] and target.tolist() == [0, 1, 1] * 4
    tags = {frozenset(each.tensor.tags) for each in contents.served}
    assert {frozenset({"#patients", "#inputs"}), frozenset({"#patients", "#target"})} <= tags
    assert len({each.tensor.id for each in contents.served}) == 3


def test_arrays_and_folders_of_images_are_offered_by_file_and_by_option(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((4, 2), np.float32), y=np.arange(4))
    np.save(tmp_path / "labels.npy", np.arange(4))
    for name in ("scans/a/1.png", "scans/b/2.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("L", (2, 2)).save(tmp_path / name)
    (tmp_path / "offers.toml").write_text(
        '[trial]\ninputs = ["all.npz:x"]\ntarget = "labels.npy"\nleast_in_sum = 3\n'
    )
    contents, offers = offered(tmp_path, "scans=scans", "pair=all.npz:x,all.npz:y")
    by_name = {one.info.name: one for one in offers}
    assert by_name["trial"].least_in_sum == 3 and by_name["trial"].tensors[1].tolist() == [0, 1, 2, 3]
    assert str(by_name["scans"].info) == "scans: 2 rows: inputs uint8 (1, 2, 2) -> target int64 () (class)"
    assert len(by_name["pair"].tensors) == 2
    assert len(contents.served) == 5  # what is offered whole is served once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=labels.npy,nothing.npy", "'nothing.npy' is not served"),
        ("a=all.npz,labels.npy", "Say which: all.npz:x, all.npz:y"),
        ("a=all.npz:z,labels.npy", "no 'z'. It has x, y"),
        ("a=all.npz:x,short.npy", "equally many rows"),
        ("a=patients.csv:height,patients.csv:sick", "no 'height'. It has age, weight"),
        ("a=labels.npy", "no 'images'"),
        ("patients=all.npz:x,labels.npy", "a second data set 'patients'"),
    ],
)
def test_an_offer_that_cannot_be_made_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path)
    np.savez(tmp_path / "all.npz", x=np.zeros((4, 2), np.float32), y=np.arange(4))
    np.save(tmp_path / "labels.npy", np.arange(4))
    np.save(tmp_path / "short.npy", np.arange(3))
    assert said in problem(tmp_path, text)


@pytest.mark.parametrize("text", ["", "x", "=a.npy,b.npy", "x=", "x=,"])
def test_an_option_that_is_no_offer_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="NAME=INPUTS,TARGET"):
        with_offers(read_folder(tmp_path), tmp_path, [text])


@pytest.mark.parametrize(
    ("offer", "more", "said"),
    [
        ("least_in_sum = 1", "", "2 or more"),
        ("minimum_noise = 0.0", "", "above 0"),
        ("minimum_noise = 'much'", "", "cannot be understood"),
        ("rows = 'some'", "", "cannot be understood"),
        ("rows = 'hidden'", "released_only = true\n", "Leave out rows"),
        ("inputs = ['name']", "", "no 'name'"),
    ],
)
def test_a_wrong_offer_in_a_side_file_is_a_sentence(tmp_path: Path, offer: str, more: str, said: str) -> None:
    assert said in problem(write(tmp_path, offer, more))


def test_offers_toml_that_is_wrong_leaves_the_files_served(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    for text, said in (
        ("[a]\ninput = []", "cannot be understood"),
        ("[a]\ntarget = 'x.npy'", "needs inputs"),
    ):
        (tmp_path / "offers.toml").write_text(text)
        assert said in problem(tmp_path)
    assert len(read_folder(tmp_path).served) == 1


def test_two_offers_of_one_file_tell_its_rows_alike(tmp_path: Path) -> None:
    write(tmp_path, "rows = 'hidden'")
    text = "[again]\ninputs = ['patients.csv:age']\ntarget = 'patients.csv:sick'\n"
    (tmp_path / "offers.toml").write_text(text)
    assert "Say the same rows" in problem(tmp_path)
    (tmp_path / "offers.toml").write_text(text + "rows = 'hidden'\n")
    assert [one.info.name for one in offered(tmp_path)[1]] == ["patients", "again"]


def test_rows_are_told_as_the_owner_says_and_pointers_do_not_tell_more(tmp_path: Path) -> None:
    for how, told in (("rounded", "about 10"), ("hidden", None)):
        contents, (one,) = offered(write(tmp_path, f"rows = '{how}'"))
        assert one.info.rows == told and one.info.uses == ("rounds",)
        assert contents.served == () and "how many rows" in contents.notes[-1]
    assert told_rows(1499, "rounded") == "about 1000" and told_rows(10, "rounded") == "about 10"
    assert {told_rows(few, "rounded") for few in range(10)} == {"fewer than 10"}
    # Also where an offer cannot be made: this one, or another of the folder.
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "a.toml").write_text("[offer]\n")
    for offer in ("rows = 'hidden'", "rows = 'hidden'\nleast_in_sum = 1"):
        contents, _ = with_offers(read_folder(write(tmp_path, offer)), tmp_path)
        assert "what is to be predicted" in str(contents.problems[0])
        assert {one.file.name for one in contents.served} == {"a.csv"}


# -- mock data -------------------------------------------------------------------------------------------

DTYPES = st.sampled_from(["float32", "int64"])
KINDS = st.sampled_from("number boolean category days seconds missing".split())


@st.composite
def infos(draw: Any) -> DataSetInfo:
    parts = []
    for role in ("inputs", "target"):
        count = draw(st.integers(0, 3))
        columns = tuple(
            ColumnInfo(f"c{i}", draw(KINDS), draw(DTYPES), None, draw(st.none() | st.integers(1, 5)))
            for i in range(count)
        )
        shape = (
            (count,)
            if count > 1
            else draw(st.sampled_from([(1,), ()]))
            if count
            else draw(st.sampled_from([(), (2, 3)]))
        )
        parts.append(
            PartInfo(role, shape, draw(st.sampled_from(["float32", "int64", "uint8", "bool"])), columns)
        )
    return DataSetInfo(
        draw(st.text(max_size=4)), tuple(parts), draw(st.none() | st.just("7")), draw(st.text(max_size=3))
    )


@settings(max_examples=60, deadline=None)
@given(infos(), st.integers(1, 20))
def test_mock_data_has_the_form_and_is_made_of_it_alone(info: DataSetInfo, rows: int) -> None:
    made = mock_data(info, rows).tensors
    assert [(tuple(t.shape), str(t.dtype)) for t in made] == [
        ((rows, *part.shape), f"torch.{part.dtype}") for part in info.parts
    ]
    same_form = DataSetInfo("other", info.parts, "9999", "another", ("#x",))
    assert all(map(torch.equal, made, mock_data(same_form, rows).tensors))


def test_two_folders_of_one_form_have_the_same_mock_data_whatever_is_in_them(tmp_path: Path) -> None:
    _, (first,) = offered(write(tmp_path / "a"))
    write(tmp_path / "b")
    (tmp_path / "b" / "patients.csv").write_text("age,weight,sex,sick\n1,0.5,m,True\n2,3.5,m,True\n")
    _, (second,) = offered(tmp_path / "b")
    pairs = zip(mock_data(first.info).tensors, mock_data(second.info).tensors, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert mock_data(first.info).tensors[1].max() <= 1
    for rows in (0, -1, 10**9, 2.5):
        with pytest.raises(ValueError, match="rows"):
            mock_data(first.info, rows)  # type: ignore[arg-type]


# -- on a worker -----------------------------------------------------------------------------------------


def test_a_worker_lists_and_mocks_and_the_policy_counts(tmp_path: Path, make_worker: Any) -> None:
    _, (one,) = offered(write(tmp_path))
    rules = '[[data]]\ntags = ["#patients"]\nmay_compute = ["ana"]\nmay_find = ["ana"]\n'
    guarded = make_worker("guarded", policy=OwnerPolicy(read_rules(rules)))
    guarded.offer(one)
    guarded.add_dataset(torch.utils.data.TensorDataset(torch.ones(3, 2), torch.ones(3)), "plain")
    with speaking_for("ana"):
        assert [info.name for info in guarded.datasets()] == ["patients", "plain"]
        assert guarded.datasets()[0] == one.info and guarded.datasets()[1].rows is None
        assert guarded.mock("patients", 5).tensors[0].shape == (5, 3)
        assert guarded.mock("plain").tensors[0].shape == (100, 2)
    with speaking_for("bob"):
        assert [info.name for info in guarded.datasets()] == ["plain"]
        with pytest.raises(ValueError, match="offers you no data set 'patients'"):
            guarded.mock("patients")
        from syft.federated.fit_handlers import check_offer

        with pytest.raises(GetNotPermittedError):
            check_offer(guarded, "bob", "patients", "train on")
    assert set(guarded.datasets) == {"patients", "plain"}  # the owner's, as in 2020


def test_what_may_only_be_released_is_told_and_not_trained_on_in_rounds(
    tmp_path: Path, make_worker: Any
) -> None:
    contents, (one,) = offered(write(tmp_path, more="released_only = true\n"))
    worker = make_worker("w", data=[each.tensor for each in contents.served])
    worker.offer(one)
    (info,) = worker.datasets()
    assert info.uses == ("noise",) and "patients" not in worker.datasets
    assert worker.entry_of(worker.search(["#patients", "#target"])[0].id_at_location).is_released_only


def test_names_of_data_sets_are_told_to_those_who_may_use_them(hook: Any, me: Any) -> None:
    """Also where somebody asks for one that there is not."""
    worker = sy.VirtualWorker(hook, id="discreet", policy=OwnerPolicy(), auto_add=False)
    for key, allowed, on_request in (
        ("merger", ["ann"], False),
        ("mine", ["eve"], False),
        ("asked", [], True),
    ):
        data = BaseDataset(torch.zeros(2, 1), torch.zeros(2))
        worker.add_dataset(data, key, allowed_users=allowed, on_request=on_request)
    round_ = RoundMessage(1, 2, {}, "nothing", FitInstructions(0, 0, {}))
    with speaking_for("eve"):
        for message in (round_, AskMessage(round_, "", 1)):
            with pytest.raises(ValueError, match="these are: 'asked', 'mine'"):
                worker.recv_msg(message)


def test_a_minimum_of_noise_in_a_side_file_holds_for_the_offer(tmp_path: Path, make_worker: Any) -> None:
    from syft.federated.federated_client import FederatedClient

    worker = make_worker("clinic")
    worker.serve_folder(write(tmp_path, "minimum_noise = 1.5"))
    client = worker.extension(FederatedClient)
    assert client.minimum_noise == {"patients": 1.5} and client.infos["patients"].minimum_noise == 1.5
