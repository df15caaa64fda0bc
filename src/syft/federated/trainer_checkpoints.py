"""A Trainer to a file between two rounds, and back.

One duty: what of a Trainer a checkpoint has, and whether one fits. The file is `checkpoint`'s. Imports that, `charges`,
`layout`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from syft.federated.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from syft.federated.layout import read_state, state_fault, write_state
from syft.federated.trainer_settings import is_count

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from syft.federated.trainer import Trainer


def save(trainer: Trainer, path: str | os.PathLike[str] | None) -> None:
    """Write a checkpoint now, to `path` or to the trainer's own file, if it has one."""
    path = trainer._path if path is None else path
    if path is not None:
        if trainer._charges is not None:
            trainer._charges.keep_beside(path)
        save_checkpoint(
            path,
            Checkpoint(
                trainer.seed,
                trainer.strategy.name,
                trainer.strategy.settings(),
                read_state(trainer.model),
                trainer.strategy.state(),
                trainer.history,
                None if trainer._buffered is None else trainer._buffered.pending(),
            ),
        )


def resume(trainer: Trainer, path: str | os.PathLike[str] | None, rounds_given_out: int | None) -> bool:
    """See `Trainer.resume`. !! ValueError when the checkpoint does not fit"""
    if rounds_given_out is not None and (trainer.privacy is None or not is_count(rounds_given_out)):
        raise ValueError(
            f"resume() was given rounds_given_out={rounds_given_out!r}: it is a whole number of rounds, for a "
            "trainer with privacy=..."
        )
    if trainer._local is not None:
        raise ValueError(
            "resume() takes up the server's part of a training, and layers named in local=... are with the clients, "
            "in no checkpoint. Train in one process, or without local=..."
        )
    path = trainer._path if path is None else Path(path)
    if path is None:
        raise ValueError("resume() needs a file. Give it one, or make the Trainer with checkpoint=...")
    if not path.exists():
        # NB: also without a checkpoint yet, rounds may have been given out.
        if trainer._charges is not None:
            trainer._charges.take_over(path, trainer._charges.read(path, None, rounds_given_out))
        return False
    if path.is_dir():
        raise ValueError(f"resume() was given {str(path)!r}, a folder. Give it the checkpoint's file.")
    found = load_checkpoint(path)
    mine = (trainer.strategy.name, trainer.strategy.settings())
    if (found.strategy, dict(found.settings)) != mine:
        raise ValueError(
            f"The checkpoint was made with {found.strategy} {dict(found.settings)}, and this trainer has {mine[0]} "
            f"{mine[1]}. Use the same strategy, or begin anew with another file."
        )
    if trainer._seed_was_given and found.seed != trainer.seed:
        raise ValueError(
            f"The checkpoint was made with seed={found.seed}, and this trainer has seed={trainer.seed}. Use the same "
            "seed, or leave it out."
        )
    if fault := state_fault(found.state, {n: tuple(t.shape) for n, t in read_state(trainer.model).items()}):
        raise ValueError(f"The checkpoint is of another model: {fault}.")
    check_pending(trainer, found)
    charges = trainer._charges
    charged = None if charges is None else charges.read(path, len(found.history.rounds), rounds_given_out)
    if charges is not None:
        charges.take_over(path, charged)
    trainer.strategy.load_state(found.memory)
    write_state(trainer.model, found.state)
    trainer.seed, trainer.history, trainer._attempt = found.seed, found.history, 0
    if trainer._compression is not None and trainer._compression.error_feedback:
        logger.warning("What clients held back of their updates is in no checkpoint: they begin without.")
    trainer._buffered = trainer._new_buffered()
    if trainer._buffered is not None and found.pending is not None:
        trainer._buffered.take_up(found.pending, trainer._shared_state(), trainer.clients)
    return True


def check_pending(trainer: Trainer, found: Checkpoint) -> None:
    """!! ValueError for a checkpoint of another schedule"""
    schedule = trainer.schedule
    mine = None if schedule is None else schedule.settings()
    theirs = None if found.pending is None else dict(found.pending.settings)
    if mine != theirs:

        def told(settings: object) -> str:
            return "rounds that wait for all" if settings is None else f"Buffered rounds of {settings}"

        raise ValueError(
            f"The checkpoint was made with {told(theirs)}, and this trainer has {told(mine)}. Use the same schedule."
        )
    shapes = trainer.layout.shapes
    for state in () if found.pending is None else found.pending.states.values():
        if fault := state_fault(state, shapes):
            raise ValueError(f"The checkpoint is of another model: {fault}.")
