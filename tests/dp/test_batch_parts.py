"""Batches as models take them: several tensors, dicts, masks of attention; each example's gradient is its own."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import make_private
from syft.dp.per_sample import per_sample_gradients

torch.set_num_threads(1)


class Masked(nn.Module):
    """The mean of the embeddings that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        weights = mask.unsqueeze(-1).float()
        return self.last((self.embedding(words) * weights).sum(1) / weights.sum(1))


def sentences(rows: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 6, (rows, 1), generator=generator)
    words = torch.randint(0, 9, (rows, 5), generator=generator)
    return words, (torch.arange(5) < lengths).long(), torch.randint(0, 2, (rows,), generator=generator)


def one_by_one(model: nn.Module, loss_of: Any, rows: int) -> dict[str, Tensor]:
    """The gradients of a loop over single examples."""
    found: dict[str, list[Tensor]] = {}
    for i in range(rows):
        model.zero_grad()
        loss_of(slice(i, i + 1)).backward()
        for name, p in model.named_parameters():
            found.setdefault(name, []).append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    model.zero_grad()
    return {name: torch.stack(parts) for name, parts in found.items()}


def check(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("way", ["auto", "vmap"])
@pytest.mark.parametrize("form", ["tuple", "list", "dict", "mapping"])
def test_several_inputs_give_the_gradients_of_single_examples(form: str, way: str) -> None:
    torch.manual_seed(0)
    words, mask, y = sentences()
    model = Masked()
    inputs: Any = {
        "tuple": (words, mask),
        "list": [words, mask],
        "dict": {"mask": mask, "words": words},
        "mapping": UserDict(words=words, mask=mask),
    }[form]
    found = per_sample_gradients(model, F.cross_entropy, inputs, y, way)
    check(found, one_by_one(model, lambda r: F.cross_entropy(model(words[r], mask[r]), y[r]), 6))


def test_targets_may_be_a_dict_and_clipping_leaves_out_what_is_not_finite() -> None:
    torch.manual_seed(0)
    words, mask, y = sentences()
    model, weight = Masked(), torch.tensor([1.0, 2.0, torch.inf, 1.0, 0.5, 3.0])

    def loss(output: Tensor, target: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(output, target["y"], reduction="none") * target["weight"]

    sums, _ = clipped_sum(model, loss, (words, mask), {"y": y, "weight": weight}, {"": 1e6})
    kept = weight.isfinite()
    single = one_by_one(model, lambda r: loss(model(words[r], mask[r]), {"y": y[r], "weight": weight[r]}), 6)
    for name, gradients in single.items():
        torch.testing.assert_close(sums[name].float(), gradients[kept].sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bert_with_masks_has_the_gradients_of_single_examples_and_is_trained(attention: str) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("dp_accounting")
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=9,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        problem_type="single_label_classification",
        attn_implementation=attention,
    )
    model = transformers.BertForSequenceClassification(settings).eval()  # without dropout
    words, mask, y = sentences()
    batch = {"input_ids": words, "attention_mask": mask}

    def loss(output: Any, target: Tensor) -> Tensor:
        return F.cross_entropy(output.logits, target)

    expected = one_by_one(
        model, lambda r: loss(model(input_ids=words[r], attention_mask=mask[r]), y[r]), len(y)
    )
    check(per_sample_gradients(model, loss, batch, y), expected)
    # the model's own loss
    own = per_sample_gradients(model, lambda output, _y: output.loss, {**batch, "labels": y}, y)
    check(own, expected)

    model.train()
    items = [
        {"input_ids": w, "attention_mask": m, "labels": label}
        for w, m, label in zip(words, mask, y, strict=True)
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(items, batch_size=3)  # type: ignore[arg-type]
    private = make_private(model, optimizer, loader, loss_fn=loss, noise_multiplier=1.0, physical_batch=2)
    before = model.classifier.weight.clone()
    for given in private.loader:
        private.step(given)
    assert not torch.equal(model.classifier.weight, before) and private.epsilon(1e-5) > 0


def test_wrong_batches_are_named_and_nothing_is_charged() -> None:
    pytest.importorskip("dp_accounting")
    words, mask, y = sentences()
    model = Masked()
    items = list(zip(words, mask, y, strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(items, batch_size=6)  # type: ignore[arg-type]
    private = make_private(model, optimizer, loader, loss_fn=F.cross_entropy, noise_multiplier=1.0)
    (batch,) = private.loader
    for inputs, targets, sentence in (
        ((words, mask[:3]), y, r"6 inputs\[0\] and 3 inputs\[1\] and 6 targets"),
        ((words, [mask]), y, r"inputs\[1\] as one tensor .* got a list"),
        ({"words": words, "mask": None}, y, r"inputs\['mask'\] as one tensor .* got a NoneType"),
        ({1: words}, y, "by strings"),
        ((), y, "no inputs"),
        (words, {}, "no targets"),
        (words, {"y": 3}, r"targets\['y'\] as one tensor .* got a int"),
        ({"words": words, "mask": mask}, None, "has 'words', 'mask'"),
        (words, None, "one Tensor and no targets"),
    ):
        with pytest.raises((TypeError, ValueError), match=sentence):
            private.step(inputs, targets)
    assert not private.accountant.spent
    private.step((batch[0], batch[1]), batch[2])
    assert sum(private.accountant.spent.values()) == 1
