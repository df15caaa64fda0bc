"""The placeholders of a plan, with their tags, as programs of 2020 look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.execution.errors import PlanError
from syft.execution.inputs import Input
from syft.execution.operation import Operation, Slot, map_structure, slots_in
from syft.execution.placeholder import PlaceHolder
from syft.execution.program import Program, checked_program
from syft.execution.state import State


def placeholders_of(program: Program, state: State, owner: Any) -> dict[Any, PlaceHolder]:
    table: dict[Any, PlaceHolder] = {}
    first_constant = len(program.inputs) + program.state
    for index in range(program.slot_count):
        made = table[index] = PlaceHolder(owner, index, [f"#{index + 1}"])
        if index < len(program.inputs):
            made.tags.add(f"#input-{index}")
            given = program.inputs[index]
            made.expected_shape, made.expected_dtype, made.expected_others = (
                given.shape,
                given.dtype,
                given.others,
            )
        elif index < first_constant:
            made.tags.add("#state")
            made.instantiate(state.tensors()[index - len(program.inputs)])
        elif index < program.first_result:
            made.tags.add("#constant")
            made.instantiate(program.constants[index - first_constant])
    for number, slot in enumerate(slots_in(program.outputs)):
        table[slot.index].tags.add(f"#output-{number}")
    return table


def program_of_records(
    operations: Sequence[Operation], placeholders: dict[Any, PlaceHolder], state: int
) -> Program:
    """The program of operations and placeholders that were taken from a plan."""

    def tagged(kind: str) -> list[tuple[int, PlaceHolder]]:
        found = [
            (int(tag.removeprefix(f"#{kind}-")), p)
            for p in placeholders.values()
            for tag in p.tags
            if tag.startswith(f"#{kind}-")
        ]
        return sorted(found, key=lambda pair: pair[0])

    inputs = tuple(
        Input(tuple(p.expected_shape or ()), p.expected_dtype or torch.get_default_dtype(), p.expected_others)
        for _, p in tagged("input")
    )
    outputs = tuple(Slot(p.id) for _, p in tagged("output"))
    constants = tuple(p.child for p in placeholders.values() if "#constant" in p.tags)
    signature = tuple(Slot(index) for index in range(len(inputs)))
    program = Program(
        signature, inputs, state, constants, tuple(operations), outputs[0] if len(outputs) == 1 else outputs
    )
    return checked_program(program)


class HasPlaceholders:
    """The part of a plan that is about placeholders."""

    state: Any
    _owner: Any
    _replay: Any
    _placeholders: dict[Any, PlaceHolder] | None
    _extra_placeholders: dict[Any, PlaceHolder]

    @property
    def placeholders(self) -> dict[Any, PlaceHolder]:
        """The tensors of the plan by the number of their slot, each with its tags."""
        if self._replay is None:
            return self._extra_placeholders
        if self._placeholders is None:
            self._placeholders = placeholders_of(self._replay.program, self.state, self._owner)
        return self._placeholders

    def find_placeholders(self, *search_tags: Any) -> list[PlaceHolder]:
        """The placeholders with a tag that contains at least one of these."""
        return [
            placeholder
            for placeholder in self.placeholders.values()
            if any(str(wanted) in tag for wanted in search_tags for tag in placeholder.tags)
        ]

    def add_placeholder(self, tensor: Any, node_type: str | None = None) -> PlaceHolder:
        """The placeholder of a tensor, made if there is none. `node_type` is "input" or "output"."""
        if node_type not in (None, "input", "output"):
            raise PlanError(
                f'add_placeholder() was called with node_type={node_type!r}; it is "input" or "output".'
            )
        table = self.placeholders
        found = table.get(tensor.id)
        if found is None:
            found = PlaceHolder(self._owner, tensor.id, [f"#{len(table) + 1}"])
            found.expected_shape, found.expected_dtype = tuple(tensor.shape), tensor.dtype
            table[tensor.id] = found
        if node_type is not None:
            count = sum(any(t.startswith(f"#{node_type}-") for t in p.tags) for p in table.values())
            found.tags.add(f"#{node_type}-{count}")
        return found

    def replace_with_placeholders(self, obj: Any, **kw: Any) -> Any:
        """A structure with a placeholder for every tensor in it."""
        return map_structure(
            lambda leaf: self.add_placeholder(leaf, **kw) if isinstance(leaf, torch.Tensor) else leaf, obj
        )

    @property
    def readable_plan(self) -> list[tuple[Any, ...]]:
        """The operations as (name, arguments, named arguments, placeholders of the results)."""
        table = self.placeholders

        def named(leaf: Any) -> Any:
            return table[leaf.index] if type(leaf) is Slot else leaf

        return [
            (
                op.name,
                map_structure(named, op.args),
                map_structure(named, op.kwargs),
                map_structure(named, op.results),
            )
            for op in (self._replay.program.operations if self._replay is not None else ())
        ]
