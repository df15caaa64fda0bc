"""A call of a plan whose result goes to the caller at once. Adds itself to the table of handlers.

NOTE [Computed and handed out]
`plan(x).get()` comes as two commands in one frame: a call, and a request that removes what the call stored. Nothing can
come in between, so the result need not be stored, charged for and removed again. Everything else is as if it were: what
the call needs is permitted, the result has to fit into the quota, the policy is asked whether it may be fetched, and
writes that down. Whatever is out of the ordinary is stored, and the request is answered as any other.
tests/network/test_fetched_calls.py runs programs both ways.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.identity import TensorIdentity, give_identity
from syft.core.interfaces import Worker
from syft.execution.remote import keep_results, run_again, run_plan
from syft.messaging.internal import STORED, FetchedCall
from syft.policy.quota_of_names import LARGEST_ID, bytes_of_allowed
from syft.policy.quotas import OWNER
from syft.workers import handlers, pipeline


def run_fetched(worker: Worker, message: FetchedCall) -> Any:
    """Run a plan, and answer with its result if nobody else will see it; else it is `STORED`."""
    known = run_again(worker, message.call)
    if known is None:
        run_plan(worker, message.call)
        return STORED
    call, results, failure = known
    if failure is None and len(results) == 1 and _may_go(call, message, results[0]):
        obj_id, _user, reason = message.request.request
        worker.policy.check_get(call.user, obj_id, call.allowed, reason, has_budgets=worker.has_budgets)
        result = results[0]
        give_identity(result, TensorIdentity(obj_id))
        return result
    keep_results(call, results, message.call.return_ids, failure)
    return STORED


def _may_go(call: pipeline.Call, message: FetchedCall, result: Any) -> bool:
    """Whether a result may be handed out without being stored. !! QuotaExceededError if it could not be stored"""
    worker, request = call.worker, message.request
    obj_id = request.request[0]
    if (
        message.call.return_ids != (obj_id,)
        or type(obj_id) is not int
        or not -LARGEST_ID <= obj_id < LARGEST_ID
        or obj_id in worker._entries
        or obj_id in worker.elsewhere
        or request.keep
        or request.is_random
        or worker.device is not None
        or type(result) is not torch.Tensor
        or result.layout is not torch.strided
        or result.requires_grad
        or result.nbytes > message.most_bytes
        or result.__dict__
        or not worker.policy.may_get(call.user, call.allowed)
    ):
        return False
    storage = result.untyped_storage()
    if not worker.guards:
        # NB: a result that is an input, or a part of one, is copied before it leaves.
        return not any(entry.value is result for entry in call.entries) and _users(storage) <= _OWN_USERS
    quota = worker.guards.usual
    if quota is None or len(worker.guards) > len(_USUAL) or call.user == OWNER:
        return False
    holdings = quota.holdings
    if storage._cdata in holdings._blocks or _users(storage) > _OWN_USERS:
        return False
    holdings.quotas.check(call.user, storage.nbytes() + bytes_of_allowed(call.allowed, is_chosen=False))
    return True


def _users(storage: torch.UntypedStorage) -> int:
    return int(torch._C._storage_Use_Count(storage._cdata))


#: The tensor and `storage`.
_OWN_USERS = 2
#: The guards of a worker that denies by default; others mind what is stored.
_USUAL = ("Permission", "Ownership", "Quota")

handlers.HANDLERS[FetchedCall] = run_fetched
