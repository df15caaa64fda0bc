"""What a worker does with `fit` and `evaluate` of its users, and who is offered which data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from syft.core.nested import found_in
from syft.data.schema import DataSetInfo
from syft.exceptions import GetNotPermittedError, ObjectNotFoundError
from syft.federated.federated_client import FederatedClient, model_and_loss
from syft.federated.records import PrivateContribution
from syft.federated.train_config import TrainConfig
from syft.messaging.message import EvaluateMessage, FitMessage, TrainConfigMessage
from syft.policy.caller import is_proved, user_of
from syft.policy.owner_policy import OwnerPolicy
from syft.policy.permissions import About, Allowed, AuditRecord, intersect
from syft.policy.quotas import OWNER
from syft.workers import handlers, pipeline

#: What is kept of users' configs: for how many users, and how much of each.
_MOST_CONFIGS = 1000
_MOST_OPTIONS = 100
_LONGEST_OPTIONS = 1000


def keep_config(worker: Any, message: TrainConfigMessage) -> None:
    """Note how a user wants to train. It refers to a model that is here, and does not keep it alive."""
    pipeline.permit(worker, message, (message.model_id, message.loss_fn_id))
    TrainConfig.from_message(message, worker.get_obj)
    _check_small(message.optimizer_args)
    sent = worker.extension(FederatedClient).sent
    sent.pop(user_of(message), None)
    # NB: nobody is charged for it, and users who have no name are new ones each time.
    if len(sent) >= _MOST_CONFIGS:
        del sent[next(iter(sent))]
    sent[user_of(message)] = message


def _check_small(options: Any) -> None:
    """!! ValueError for options that no optimizer takes"""
    values = len(list(found_in(options, (int, float, str, bytes, torch.Tensor))))
    length = sum(map(len, found_in(options, (str, bytes))))
    if (
        values > _MOST_OPTIONS
        or length > _LONGEST_OPTIONS
        or any(True for _ in found_in(options, torch.Tensor))
    ):
        raise ValueError(
            f"The optimizer_args of a TrainConfig have {values} values. They are a few numbers and words, "
            f"{_MOST_OPTIONS} at most, and no tensors."
        )


def fit_here(worker: Any, message: FitMessage) -> torch.Tensor:
    """Train a user's model on an offered data set; the model is then as restricted as the data set, too."""
    client, config = _permitted(worker, message, "train on")
    check_plain(client, message.dataset_key)
    if config.model_id is not None:
        allowed = intersect(worker.allowed_users(config.model_id), client.allowed.get(message.dataset_key))
        worker.restrict(config.model_id, allowed)
    loss: torch.Tensor = pipeline.run_discreetly(
        lambda: client.fit(message.dataset_key, message.device, config),
        "the training",
        worker.policy.allows_by_default,
    )
    return loss


def evaluate_here(worker: Any, message: EvaluateMessage) -> dict[str, Any]:
    client, config = _permitted(worker, message, "evaluate on")
    check_plain(client, message.dataset_key)
    figures: dict[str, Any] = pipeline.run_discreetly(
        lambda: client.evaluate(
            message.dataset_key,
            message.return_histograms,
            message.nr_bins,
            message.return_loss,
            message.return_raw_accuracy,
            message.device,
            config,
        ),
        "the evaluation",
        worker.policy.allows_by_default,
    )
    return figures


def _permitted(worker: Any, message: Any, action: str) -> tuple[FederatedClient, TrainConfig]:
    """What a user may train with and on; !! GetNotPermittedError, and ValueError for what is not there."""
    user = user_of(message)
    client: FederatedClient = worker.extension(FederatedClient)
    settings = client.sent.get(user)
    if settings is None:
        config = None if is_proved() else _owners_config(worker, client)
        if config is None:
            raise ValueError(
                "You have sent no TrainConfig yet, so it is not known what to train. Send one first: "
                "TrainConfig(...).send(worker, user=...)."
            )
        check_offer(worker, user, message.dataset_key, action)
        model, loss_fn = model_and_loss(config, worker.get_obj)
        return client, replace(config, model=model, loss_fn=loss_fn)
    check_offer(worker, user, message.dataset_key, action)
    for obj_id in (settings.model_id, settings.loss_fn_id):
        _check_there(worker, obj_id)  # what is gone is missed, not forbidden
        worker.policy.check_get(user, obj_id, worker.allowed_users(obj_id), action="train with")
    config = TrainConfig.from_message(settings, worker.get_obj)
    model_and_loss(config, worker.get_obj)
    return client, config


def _owners_config(worker: Any, client: FederatedClient) -> TrainConfig | None:
    """The config that the owner put here last: `worker.set_obj(train_config)`. It is for callers in this process."""
    held = worker._objects.values()
    put_here = [obj for obj in held if isinstance(obj, TrainConfig) and not obj.is_from_elsewhere]
    return put_here[-1] if put_here else client.train_config


def _check_there(worker: Any, obj_id: Any) -> None:
    try:
        worker.get_obj(obj_id)
    except ObjectNotFoundError as error:
        error.args = (
            f"The model or the loss of your TrainConfig is no longer on worker {worker.id!r}. They stay there as long "
            "as the config that was sent: keep it, config = TrainConfig(...).send(worker), until its model is fetched "
            "with config.get().",
        )
        raise


def check_offer(
    worker: Any,
    user: str | None,
    key: str,
    action: str,
    is_approved: Callable[[], bool] = lambda: False,
) -> Any:
    """The data set that is offered under a name, if it is to this user. !! GetNotPermittedError, ValueError

    is_approved   uses an approval of the owner's for what is about to be done, where there is one
    """
    client: FederatedClient = worker.extension(FederatedClient)
    check_there(worker, user, key)
    pipeline.permit(worker, None)
    allowed = offered_to(worker, user, key)
    if worker.policy.may_get(user, allowed) or not is_approved():
        try:
            worker.policy.check_get(user, key, allowed, action=action)
        except GetNotPermittedError as error:
            if key not in client.on_request:
                raise
            raise GetNotPermittedError(
                f"{error} It is offered on request: worker.request_training(trainer, rounds=...) asks its owner. What is "
                "approved is rounds of a Trainer with the model, loss and settings that were asked for; fit(), "
                "evaluate() and rounds with others are not."
            ) from None
    else:
        worker.policy.record(AuditRecord(action, key, user, True, "approved by the owner"))
    return client.datasets[key]


def check_there(worker: Any, user: str | None, key: Any) -> None:
    """!! ValueError if no data set has this name; it names those that the user is told of"""
    if key not in worker.extension(FederatedClient).datasets:
        told = ", ".join(map(repr, sorted(told_datasets(worker, user)))) or "none"
        raise ValueError(f"No data set {str(key)[:60]!r} is offered here; these are: {told}.")


def told_datasets(worker: Any, user: str | None) -> list[str]:
    """The data sets that a user is told of: those that they may train on, or ask for."""
    client, policy = worker.extension(FederatedClient), worker.policy
    return [
        key
        for key in list(client.datasets)
        if key in client.on_request or policy.may_get(user, offered_to(worker, user, key))
    ]


def offered_to(worker: Any, user: str | None, key: str) -> Allowed:
    """Who may train on a data set, as far as `user` is concerned.

    What is offered to everybody is so on a guarded worker, too: to offer it is to consent.
    """
    client = worker.extension(FederatedClient)
    allowed: Allowed = client.allowed.get(key)
    info = client.infos.get(key)
    if info is not None and not policy_shows(worker, user, info):
        return frozenset()
    if allowed is None and worker.policy.is_guarded and user is not None:
        return frozenset({user})
    return allowed


def policy_shows(worker: Any, user: str | None, info: DataSetInfo) -> bool:
    """Whether the policy lets a user know of data with the tags of a data set, and compute with it."""
    policy, about = worker.policy, About(None, info.tags, OWNER, is_owners=True)
    if isinstance(policy, OwnerPolicy):
        return policy.may_find(user, about) and policy.may_compute(user, about)
    return bool(policy.may_find(user, about))


def check_plain(client: FederatedClient, key: str) -> None:
    """!! GetNotPermittedError if what is trained on a data set leaves only in sums, or with noise."""
    least = client.least_in_sum.get(key)
    if least is not None:
        raise GetNotPermittedError(
            f"What is computed from the data set {key!r} leaves this worker only in a secure sum of {least} workers or "
            "more, as its owner said. Train with a Trainer and aggregation=MaskedSum()."
        )
    check_enough_noise(client, key, None)


def check_enough_noise(client: FederatedClient, key: str, private: PrivateContribution | None) -> None:
    """!! GetNotPermittedError if the workers of the smallest sum add less noise than the owner of the data asks for

    A worker knows what it adds itself, and that all workers of a sum were told the same (the digest of a round). How
    many there are at least is what `least_in_sum` holds them to; without it a worker counts on itself alone. What the
    trainer's server would add afterwards (`ClientPrivacy`) nobody here can see.
    """
    wanted = client.minimum_noise.get(key)
    if wanted is None:
        return
    workers = client.least_in_sum.get(key, 1)
    added = (
        0.0 if private is None else math.sqrt(workers * private.variance) * private.step / private.clip_norm
    )
    if added < wanted * (1 - 1e-9):
        raise GetNotPermittedError(
            f"What is computed from the data set {key!r} leaves this worker only with noise of {wanted:g} clipping "
            f"bounds or more, as its owner said; here it would be {added:.3g}, added by {workers} "
            f"worker{'s' if workers > 1 else ''}. Train with a Trainer, privacy=DistributedPrivacy(clip_norm, "
            f"noise_multiplier={wanted:g} or more, clients=..., threshold={workers}) and "
            "aggregation=privacy.aggregation()."
        )


handlers.HANDLERS[TrainConfigMessage] = keep_config
handlers.HANDLERS[FitMessage] = fit_here
handlers.HANDLERS[EvaluateMessage] = evaluate_here
