"""Whatever models and plans take and return: records, model outputs, nested tuples, caches, None, names."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import ValueNotHereError
from syft.execution.errors import PlanArgumentsError, PlanError, TraceError
from syft.execution.structures import plain_of, take_apart


@dataclasses.dataclass
class Report:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] | None = None
    name: str = "report"
    inner: Any = None


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


class Cache:
    """An object like the caches of keys and values: no record, layers in a list, and settings that are no tensors."""

    def __init__(self, layers: list[Any], settings: Any) -> None:
        self.layers, self.settings = layers, settings
        self.steps = 3


def outputs(x: torch.Tensor) -> dict[str, Any]:
    """One of everything."""
    return {
        "record": Report(x + 1, (x, x * 2), inner=Pair(x - 1, [x, None, {"deep": x * 3}])),
        "cache": Cache([Report(x), Report(x * 4)], settings={"a": str}),
        "ordered": OrderedDict(b=x, a=None),
        "nothing": None,
        "number": 7,
    }


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, *, x: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        return outputs(x * self.weight * scale)


def fetched(value: Any) -> Any:
    """A plain value with its pointers fetched."""
    plain = plain_of(value)
    if isinstance(plain, dict):
        return {key: fetched(item) for key, item in plain.items()}
    if isinstance(plain, (tuple, list)):
        return type(plain)(fetched(item) for item in plain)
    return plain.detach().clone().get().tolist() if type(plain) is sy.Wrapper else _listed(plain)


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def assert_kinds(found: Any) -> None:
    record = found["record"]
    assert type(record) is Report and record.name == "report" and type(record.inner) is Pair
    assert type(record.hidden) is tuple and record.inner.right[1] is None
    assert (
        type(found["cache"]) is Cache and found["cache"].settings == {"a": str} and found["cache"].steps == 3
    )
    assert type(found["cache"].layers[1]) is Report and type(found["ordered"]) is OrderedDict
    assert found["nothing"] is None and found["number"] == 7


def test_an_object_that_holds_tensors_is_taken_apart_and_put_together() -> None:
    value = outputs(torch.ones(2))
    plain, build = take_apart(value)
    assert set(plain["cache"]) == {"layers", "steps"} and set(plain["record"]) == {
        "logits",
        "hidden",
        "inner",
    }
    made = build(plain)
    assert_kinds(made)
    assert made["record"] is not value["record"] and fetched(made) == fetched(value)
    loop = Cache([torch.ones(1)], None)
    loop.layers.append(loop)
    with pytest.raises(PlanError, match="holds itself"):
        take_apart(loop)


def test_a_sent_model_returns_whatever_it_returns(bob: Any) -> None:
    model = Everything()
    wanted = fetched(model(x=torch.ones(2)))
    found = model.send(bob)(x=torch.ones(2).send(bob))
    assert_kinds(found)
    assert fetched(found) == wanted


def test_a_plan_returns_the_objects_of_its_function_and_is_called_by_name(bob: Any, alice: Any) -> None:
    model, x = Everything(), torch.tensor([[1.0, 2.0]])
    plan = sy.func2plan()(model).build(x=x, scale=2.0)
    wanted = fetched(model(x=x, scale=2.0))
    there = plan.send(bob)
    for found in (plan(x=x, scale=2.0), plan.copy()(x=x, scale=2.0), there(x=x.send(bob), scale=2.0)):
        assert_kinds(found)
        assert fetched(found) == wanted
    found = plan(scale=2.0, x=x.send(alice))  # sent by itself; in any order
    assert_kinds(found)
    found["record"].logits.sum().backward()
    both = plan.send(bob, alice)
    assert fetched(both(x=x.send(alice), scale=2.0)) == wanted
    with pytest.raises(PlanArgumentsError, match="scale"):
        there(x=x.send(bob))
    with pytest.raises(PlanArgumentsError, match=r"2\.0"):
        there(x=x.send(bob), scale=3.0)


def test_a_plan_that_travelled_returns_dicts_and_knows_its_names(bob: Any) -> None:
    model, x = Everything(), torch.tensor([[1.0, 2.0]])
    plan = sy.func2plan()(model).build(x=x)
    wanted = fetched(model(x=x))
    again = sy.serde.deserialize(sy.serde.serialize(plan))
    brought = sy.local_worker.fetch_plan(plan.send(bob).id_at_location, bob)
    for travelled in (again, brought):
        found = travelled(x=x)
        assert type(found["record"]) is dict and fetched(found) == wanted
    with pytest.raises(PlanArgumentsError, match="y by name"):
        again(y=x)
    positional = sy.func2plan(args_shape=[(2,)])(lambda t: t * 2)
    travelled = sy.serde.deserialize(sy.serde.serialize(positional))
    with pytest.raises((PlanArgumentsError, PlanError), match="by name"):
        travelled(t=x)
    bob.clear_objects()


def test_an_object_goes_into_a_plan_too(bob: Any) -> None:
    def step(x: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, Any]:
        layers = [Report(torch.cat([layer.logits, x])) for layer in cache.layers]
        return layers[0].logits.sum(), Cache(layers, cache.settings)

    def cache(send: Any = lambda t: t) -> Any:
        return Cache([Report(send(torch.ones(2)))], "settings")

    plan = sy.func2plan()(step).build(torch.ones(3), cache())
    total, kept = plan(torch.ones(3), cache())
    assert total == 5 and type(kept) is Cache
    total, kept = plan(torch.ones(3).send(bob), cache(lambda t: t.send(bob)))
    assert total.get() == 5 and type(kept) is Cache and kept.settings == "settings"
    total, kept = plan(torch.ones(3).send(bob), kept)  # what came out goes in again
    assert total.get() == 8 and kept.layers[0].logits.shape == (8,)


def test_a_number_of_an_object_that_depends_on_sizes_is_never_a_wrong_one(bob: Any) -> None:
    def grown(x: torch.Tensor, count: Any = None) -> Any:
        kept = Cache([x * 2], None)
        kept.steps = x.shape[0] if count is None else count(x)
        return kept

    plan = sy.func2plan(args_shape=[(-1, 2)])(grown)
    assert plan(torch.ones(5, 2)).steps == 5  # here the function runs
    for found in (plan.copy()(torch.ones(5, 2)), plan.send(bob)(torch.ones(5, 2).send(bob))):
        assert type(found) is Cache and len(found.layers[0]) == 5
        assert "Cache.steps" in repr(found.steps)
        with pytest.raises(TypeError, match="NotCarried"):
            found.steps + 1
    with pytest.raises(TraceError, match="size"):  # a number that nobody can tell from others
        sy.func2plan(args_shape=[(-1, 2)])(lambda x: grown(x, len))


def test_a_training_plan_takes_a_dict_for_a_model_of_names(bob: Any) -> None:
    torch.manual_seed(0)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, *, x: torch.Tensor, bias: torch.Tensor) -> Report:
            return Report(self.linear(x) + bias)

    def loss_fn(report: Report, target: torch.Tensor) -> torch.Tensor:
        return (report.logits - target).square().mean()

    model = Named()
    plan = sy.Plan.training(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1))
    data, target = {"x": torch.randn(4, 2), "bias": torch.ones(4, 1)}, torch.zeros(4, 1)
    remote = plan.build(data, target).send(bob)
    losses = [
        remote({k: v.clone().send(bob) for k, v in data.items()}, target.clone().send(bob)) for _ in range(4)
    ]
    assert losses[-1].get() < losses[0].get()
    with pytest.raises(PlanError, match="dict"):
        plan(x=data["x"])


# -- generation ---------------------------------------------------------------------------------------------


@pytest.fixture
def gpt2() -> Any:
    pytest.importorskip("transformers")
    import zoo

    return next(entry for entry in zoo.ALL if entry.name == "GPT-2").make()


def greedy(model: Any, tokens: int) -> Any:
    def decode(ids: torch.Tensor) -> torch.Tensor:
        found = model(input_ids=ids, use_cache=True)
        for _ in range(tokens - 1):
            new = found.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, new], 1)
            found = model(input_ids=new, past_key_values=found.past_key_values, use_cache=True)
        return torch.cat([ids, found.logits[:, -1:].argmax(-1)], 1)

    return decode


def test_a_plan_decodes_greedily_in_one_message(gpt2: Any, make_worker: Any) -> None:
    ids = torch.tensor([[5, 9, 3, 7], [8, 8, 2, 4]])
    mask = torch.ones_like(ids)
    wanted = gpt2.generate(
        ids, attention_mask=mask, max_new_tokens=3, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    dan = make_worker("dan", log_msgs=True)
    with torch.no_grad():
        there = sy.func2plan()(greedy(gpt2, 3)).build(ids).send(dan)
        given = ids.send(dan)
        dan.msg_history.clear()
        found = there(given)
        assert len(dan.msg_history) == 1
        assert torch.equal(found.get(), wanted)
        # And op by op, with the loop here: nothing is waited for on the way.
        gpt2.send(dan)
        assert torch.equal(greedy(gpt2, 3)(ids.send(dan)).get(), wanted)


def test_generate_says_where_it_looks_at_values(gpt2: Any, bob: Any) -> None:
    ids = torch.tensor([[5, 9, 3, 7], [8, 8, 2, 4]])
    gpt2.send(bob)
    with pytest.raises(ValueNotHereError, match=r"asked for by `generate` \(utils.py, line \d+\)"):
        gpt2.generate(
            ids.send(bob), attention_mask=torch.ones_like(ids).send(bob), max_new_tokens=3, pad_token_id=0
        )
