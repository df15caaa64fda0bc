"""Batches of a private training are made row by row, whatever the collate_fn would make of them together."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import DataLoader, TensorDataset, default_collate

from syft.dp.batch_rows import collated, emptied
from syft.dp.dpsgd import make_private

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

Pair = namedtuple("Pair", "x y")


def loader_of(rows: Any, collate_fn: Any) -> Any:
    model: Any = nn.Linear(3, 1)
    loader: Any = DataLoader(rows, batch_size=len(rows), collate_fn=collate_fn)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return make_private(model, optimizer, loader, loss_fn=nn.MSELoss(), noise_multiplier=1.0).loader


def padded(rows: list[Any]) -> Any:
    return pad_sequence([x for x, _ in rows], batch_first=True), torch.tensor([y for _, y in rows])


def test_padding_to_the_longest_row_of_a_batch_is_refused() -> None:
    rows = [(torch.ones(4), 0)] * 9 + [(torch.ones(400), 0)]
    with pytest.raises(ValueError, match=r"\(1, 4\) and \(1, 400\).*pad or cut all rows to one length"):
        next(iter(loader_of(rows, padded)))
    x, y = next(iter(loader_of(rows[:9], padded)))
    assert x.shape == (9, 4) and y.shape == (9,)


@pytest.mark.parametrize("taken", [TensorDataset, list])
def test_rows_that_a_collate_fn_mixes_are_not_mixed(taken: Any) -> None:
    def mixed(rows: list[Any]) -> tuple[Tensor, Tensor]:
        x, y = default_collate(rows)
        return x - x.mean(0) + 0.5 * x.flip(0) + x.amax(), y

    x, y = torch.randn(8, 3), torch.randn(8, 1)
    data = TensorDataset(x, y) if taken is TensorDataset else list(zip(x, y, strict=True))
    found, targets = next(iter(loader_of(data, mixed)))
    alone = torch.cat([mixed([(x[i], y[i])])[0] for i in range(8)])
    torch.testing.assert_close(found, alone, rtol=0, atol=0)
    assert torch.equal(targets, y)


def test_batches_of_every_make() -> None:
    def make(rows: list[Any]) -> Any:
        x = torch.stack([torch.full((2,), float(row)) for row in rows])
        names, lengths = [f"row {row}" for row in rows], tuple(rows)
        return {"x": x, "pair": Pair(x, names), "more": [x, (x, lengths)], "classes": 10, "nothing": None}

    batch = collated([1, 2, 3], make)
    assert batch["x"].tolist() == [[1, 1], [2, 2], [3, 3]] and type(batch["pair"]) is Pair
    assert batch["pair"].y == ["row 1", "row 2", "row 3"] and batch["more"][1][1] == (1, 2, 3)
    assert batch["classes"] == 10 and batch["nothing"] is None
    empty = emptied(make([1]))
    assert empty["x"].shape == (0, 2) and empty["pair"].y == [] and empty["more"][1][1] == ()
    assert empty["classes"] == 10 and batch.keys() == empty.keys()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda rows: torch.ones(5, len(rows)), r"shape \(5, 1\) of one row.*batch first"),
        (lambda rows: torch.tensor(1.0), r"shape \(\) of one row"),
        (lambda rows: torch.ones(2 * len(rows)), r"shape \(2,\) of one row"),
        (lambda rows: max(rows), "not the same for all rows.*tensor of one row"),
        (lambda rows: {"x": 1} if rows[0] > 1 else {"y": 1}, "the same keys of every row"),
        (lambda rows: torch.ones(1) if rows[0] > 1 else [1], "Tensor and list of rows"),
        (lambda rows: [torch.ones(1)] * rows[0], "sequences of several lengths"),
        (lambda rows: [1, 2], "other than one value of one row"),
        (lambda rows: {1, 2}, "makes a set: let it make tensors"),
        (lambda rows: torch.ones(1, dtype=torch.float64 if rows[0] > 1 else torch.float32), "float32 and"),
        (lambda rows: pack_sequence([torch.ones(row) for row in rows]), r"shape \(2,\) of one row"),
    ],
)
def test_what_does_not_fit_together_is_told(make: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        collated([1, 2, 3], make)


def test_the_usual_collate_fn_takes_the_type_of_no_row_for_another() -> None:
    alike = [(torch.ones(2), 1, {"name": "a"}), (torch.zeros(2), 2, {"name": "b"})]
    assert str(collated(alike, default_collate)) == str(default_collate(alike))
    for one, other in (((torch.ones(2), 1), (torch.ones(2), 1.5)), (torch.ones(2), torch.ones(2).double())):
        with pytest.raises(ValueError, match="the same type of every row"):
            collated([one, other], default_collate)
    with pytest.raises(ValueError, match="the same keys"):
        collated([{"x": 1}, {"x": 1, "y": 2}], default_collate)
