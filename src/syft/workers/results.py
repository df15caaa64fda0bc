"""Storing what an operation returned, and saying what was stored."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from syft.core import shapes
from syft.core.commands import KnownCommand
from syft.core.ids import ID_PROVIDER
from syft.core.interfaces import Worker
from syft.core.ops import OpFacts, facts_of
from syft.core.spec import TensorSpec
from syft.exceptions import ResponseSignatureError, UnsupportedOperationError
from syft.messaging.message import Operation
from syft.policy.permissions import Allowed
from syft.workers.entry import Entry
from syft.workers.store import AS_IT_IS


@cache
def facts_of_command(command: KnownCommand) -> OpFacts | None:
    """What is known of an aten operation; None for a public function, of which less is known."""
    func = command.function
    return facts_of(func) if isinstance(func, OpOverload) else None


def fresh_results(result: Any, facts: Any) -> list[Any]:
    """The tensors of a response that are new, in order (arguments that were written into are not)."""
    aliases = facts.aliases if facts is not None and facts.mutates else ()
    if type(result) is torch.Tensor and not aliases:
        return [result]
    found: list[Any] = []
    several = isinstance(result, (tuple, list))
    for index, value in enumerate(result if several else (result,)):
        if index < len(aliases) and aliases[index] is not None:
            continue
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(fresh_results(value, None))
    return found


def refuse_other_layouts(value: Any) -> None:
    """Workers hold dense tensors only: what shares the memory of others cannot be followed."""
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        raise UnsupportedOperationError(
            f"a tensor of layout {value.layout}",
            torch.Tensor,
            "Workers hold dense tensors: call `.to_dense()` first.",
        )


def keep_results(
    worker: Worker, message: Operation, fresh: list[Any], answer: shapes.Answer | None, allowed: Allowed
) -> Any:
    """Store what is new under the ids of the message, restricted before it can be seen.

    Replies (ids, metadata) if the message asks for it. If there are too few ids the rest are stored under
    ids of their own, and !! ResponseSignatureError carries them all, in order.
    """
    if not fresh and not message.return_ids and not message.wants_specs:
        return None
    given = list(message.return_ids)
    used = [given.pop() if given else ID_PROVIDER.pop() for _ in fresh]
    for obj_id, value in zip(used, fresh, strict=True):
        refuse_other_layouts(value)
        if allowed is None and value.requires_grad:
            worker.store_entry(Entry(obj_id, value.detach(), tracked=value))
        else:
            worker.store_entry(Entry(obj_id, value, AS_IT_IS if allowed is None else allowed))
    if message.wants_specs and answer is not None:
        return tuple(used), _without_values(answer)
    if len(used) != len(message.return_ids):
        raise ResponseSignatureError(used)
    return None


def _without_values(answer: shapes.Answer) -> shapes.Answer:
    """An answer that carries metadata only: Python values that came from data are left out."""
    parts = tuple(
        _without_values(part)
        if isinstance(part, shapes.Answer)
        else part
        if isinstance(part, TensorSpec) or part is shapes.ALIAS
        else None
        for part in answer.parts
    )
    return shapes.Answer(spec=answer.spec, parts=parts, kind=answer.kind)
