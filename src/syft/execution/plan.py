"""`Plan`: a function of torch operations that can be sent, called with one message, fetched and saved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from syft.core import html
from syft.core.chain import Wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.execution import protobuf
from syft.execution.build import (
    example,
    inputs_of_shapes,
    program_of_examples,
    program_of_shapes,
    tensors_of,
)
from syft.execution.errors import PlanError
from syft.execution.operation import Operation
from syft.execution.placeholder import PlaceHolder
from syft.execution.placeholder import tag_sort as tag_sort
from syft.execution.plan_placeholders import HasPlaceholders, program_of_records
from syft.execution.plan_places import HasPlaces
from syft.execution.plan_role import HasRole
from syft.execution.pointer_plan import PointerPlan, location_of
from syft.execution.program import Program
from syft.execution.replay import Replay
from syft.execution.state import CAPTURED, State
from syft.execution.structures import Build, plain_of, take_apart
from syft.execution.training import Trainer, TrainingStep
from syft.execution.views import HasViews, listing
from syft.workers.store import ObjectStorage

if TYPE_CHECKING:  # Programs import them from here. They stand on Plan, so `syft.execution` puts them here.
    from syft.execution.func2plan import func2plan as func2plan
    from syft.execution.func2plan import method2plan as method2plan

#: Attributes of a Plan that are its own and no state.
_OWN = frozenset(
    {"child", "owner", "_owner", "state", "forward", "forward_func", "torchscript", "_torchscript"}
)


class Plan(HasPlaces, HasPlaceholders, HasViews, HasRole, AbstractObject, ObjectStorage):
    """Stores a sequence of torch operations, just like a function.

    Made by `@sy.func2plan(...)`, or by a subclass with a `forward`: tensors and modules that are set as attributes become
    its state. All arguments are optional.

    name           how the plan is called
    state          the tensors that belong to it
    include_state  the function takes the state as its last argument
    is_built       whether it has operations already
    operations     what it does, with `placeholders` for the tensors (those of another plan)
    forward_func   the function to be made into a plan
    state_tensors  tensors to make a state of
    """

    #: Gives the class TrainingPlan, which stands on this one. Put here by `syft.execution`.
    _training_plan: ClassVar[Callable[[], Callable[..., Any]]]

    def __init__(
        self,
        name: str | None = None,
        state: State | None = None,
        include_state: bool = False,
        is_built: bool = False,
        operations: Sequence[Operation] | None = None,
        placeholders: dict[Any, PlaceHolder] | None = None,
        forward_func: Callable[..., Any] | None = None,
        state_tensors: Iterable[torch.Tensor] | None = None,
        id: Any = None,
        owner: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> None:
        ObjectStorage.__init__(self)
        AbstractObject.__init__(self, id=id, owner=owner, tags=tags, description=description)
        self.name = name or type(self).__name__
        self.include_state = include_state
        self.pointers: dict[Any, PointerPlan] = {}
        self._attributes: dict[str, Any] = {}
        self._declared = state if state is not None else State.of(tuple(state_tensors or ()), owner=owner)
        self._state: State | None = None
        self._replay: Replay | None = None
        self._extra_placeholders: dict[Any, PlaceHolder] = dict(placeholders or {})
        self._placeholders: dict[Any, PlaceHolder] | None = None
        self._training: TrainingStep | None = None
        self._trainer: Trainer | None = None
        self._torchscript: Any = None
        #: Whether the last argument that was traced is a dict of keyword arguments.
        self._has_keywords = False
        #: Make the arguments and the results of the function of their plain forms; see syft.execution.structures.
        self._build_args: Build | None = None
        self._build_results: Build | None = None
        if forward_func is None and type(self).forward is not Plan.forward:
            forward_func = self.forward
        self.forward_func = forward_func
        if isinstance(forward_func, torch.nn.Module):
            self._attributes[""] = forward_func  # its parameters and buffers, under their own names
        if is_built:
            if operations is None or placeholders is None:
                raise PlanError(
                    "A plan that is built already is made from operations and their placeholders."
                )
            self._settle(program_of_records(operations, placeholders, len(self._declared)), self._declared)

    @classmethod
    def of_program(
        cls, program: Program, state: State, training: TrainingStep | None = None, **identity: Any
    ) -> Plan:
        """A built plan without a function: it replays its operations."""
        made = Plan(state=state, **identity)
        made._settle(program, state)
        made._train_with(training)
        return made

    @staticmethod
    def training(
        model: torch.nn.Module,
        loss_fn: Callable[..., Any],
        optimizer: torch.optim.Optimizer,
        args_shape: Any = None,
        args_dtype: Any = None,
        name: str | None = None,
    ) -> Any:
        """A plan whose call is a whole training step: `loss_fn(model(data), *rest)`, backward and update.

        See `syft.execution.training_plan`.
        """
        return Plan._training_plan()(model, loss_fn, optimizer, args_shape, args_dtype, name)

    # -- what it is ----------------------------------------------------------------------------------

    @property
    def forward(self) -> Any:
        """The function that the plan was made of; None if it has only its operations. Subclasses write a method here."""
        return self.forward_func

    @property
    def is_built(self) -> bool:
        return self._replay is not None

    @property
    def program(self) -> Program:
        """All of a built plan but its state, as data; !! PlanError for one that is not built."""
        return self._ready().program

    def _ready(self) -> Replay:
        if self._replay is None:
            raise PlanError(
                f"The plan {self.name!r} is not built. Call plan.build(*examples), or give it args_shape."
            )
        return self._replay

    @property
    def operations(self) -> list[Operation]:
        return [] if self._replay is None else list(self._replay.program.operations)

    @property
    def state(self) -> State:
        """The tensors that belong to the plan, in order."""
        return self._state if self._state is not None else self._declared_state()

    def parameters(self) -> list[Any]:
        """The tensors of the state that are not buffers, as a module would name them."""
        return self.state.parameters()

    @property
    def _known_workers(self) -> Any:
        return self.owner._known_workers

    @property
    def location(self) -> Any:
        raise AttributeError(
            "A plan has no location: it can be at many workers. plan.get_pointers() tells where it was sent."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward":
            self.forward_func = value
            if type(self).forward is Plan.forward:
                return
        is_held = isinstance(value, (torch.Tensor, torch.nn.Module))
        if is_held and name not in _OWN and "_attributes" in self.__dict__:
            old = self._attributes.get(name)
            self._attributes[name] = value
            if self._state is not None:
                self._replace_state(name, old, value)
            if isinstance(value, torch.Tensor) and self.owner is not None:
                self.owner.register_obj(value)
        object.__setattr__(self, name, value)

    def _replace_state(self, name: str, old: Any, value: Any) -> None:
        """A built plan is given another tensor for an attribute."""
        state = self.state
        is_known = isinstance(old, torch.Tensor) and any(t is old for t in state.tensors())
        if (
            not is_known
            or not isinstance(value, torch.Tensor)
            or old.shape != value.shape
            or old.dtype != value.dtype
        ):
            raise PlanError(
                f"`.{name}` of the plan {self.name!r} was set after it was built. Only a tensor can be replaced then, by "
                "one of the same shape and dtype; make a new plan for anything else."
            )
        state.replace(old, value)

    def _declared_state(self) -> State:
        """The state as far as it is known without a trace: what was given, then what attributes hold."""
        tensors, names, buffers = (
            self._declared.tensors(),
            list(self._declared.names),
            set(self._declared.buffers),
        )
        for name, value in self._attributes.items():
            if isinstance(value, torch.Tensor):
                found: list[tuple[str, Any, bool]] = [(name, value, False)]
            else:
                prefix = f"{name}." if name else ""
                found = [(prefix + n, t, False) for n, t in value.named_parameters()]
                found += [(prefix + n, t, True) for n, t in value.named_buffers()]
            for label, tensor, is_buffer in found:
                if not any(t is tensor for t in tensors):
                    if is_buffer:
                        buffers.add(len(tensors))
                    tensors.append(tensor)
                    names.append(label)
        return State.of(tensors, names, buffers, self._owner)

    # -- building ------------------------------------------------------------------------------------

    def build(self, *args: Any, trace_autograd: bool = False, **kwargs: Any) -> Plan:
        """Trace the function with arguments like these (tensors, also nested, and objects that hold them); returns self.

        What is passed by name is passed by name in calls, too.

        The first dimension of tensors is any size, unless the function can only have the size it has here.
        """
        if trace_autograd:
            raise PlanError(
                f"build(trace_autograd=True) was called on the plan {self.name!r}. A plan does not hold a backward "
                "pass that its function runs: let it return the loss, or use Plan.training(model, loss_fn, ...)."
            )
        declared = self._declared_state()
        plain, self._build_args = take_apart((*args, kwargs) if kwargs else args)
        self._has_keywords = bool(kwargs)
        self._finish(program_of_examples(self._traced, plain, declared.tensors()), declared)
        return self

    def build_from_shapes(self, args_shape: Any, args_dtype: Any = None) -> Plan:
        """Trace the function with tensors of these shapes, where -1 is any size; returns self."""
        declared = self._declared_state()
        self._build_args, self._has_keywords = None, False
        inputs = inputs_of_shapes(args_shape, args_dtype)
        self._finish(program_of_shapes(self._traced, inputs, declared.tensors()), declared)
        return self

    @staticmethod
    def _create_placeholders(args_shape: Any) -> list[torch.Tensor]:
        """Tensors of these shapes to build with; a size of -1 becomes 1."""
        inputs = inputs_of_shapes(args_shape)
        return [example([1 if n == -1 else n for n in i.shape], i.dtype) for i in inputs]

    def _traced(self, *plain: Any) -> Any:
        """What is traced: the function, between plain arguments and plain results."""
        args = plain if self._build_args is None else self._build_args(plain)
        args, kwargs = (args[:-1], args[-1]) if self._has_keywords else (args, {})
        results, self._build_results = take_apart(self._run_function(args, kwargs))
        return results

    def _run_function(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if self.forward_func is None:
            raise PlanError(
                f"The plan {self.name!r} has no function: give it forward_func, or write `forward`."
            )
        own = (self.state,) if self.include_state else ()
        return self.forward_func(*args, *own, **kwargs)

    def _finish(self, built: tuple[Program, list[torch.Tensor]], declared: State) -> None:
        program, tensors = built
        names, buffers = list(declared.names), set(declared.buffers)
        for tensor in tensors[len(declared) :]:
            is_trained = isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad
            if self.include_state or not is_trained:  # a plan with `state=` has said what its parameters are
                buffers.add(len(names))
            names.append(f"{CAPTURED}{len(names)}")
        self._settle(program, State.of(tensors, names, buffers, self._owner))

    def _settle(self, program: Program, state: State) -> None:
        if len(state) != program.state:
            raise PlanError(
                f"The plan has {program.state} tensors of state, and {len(state)} were given. Give as many, in order."
            )
        self._replay, self._state, self._placeholders = Replay(program), state, None
        self.pointers = {}

    def _train_with(self, training: TrainingStep | None) -> None:
        self._training = training
        self._trainer = None if training is None or self._replay is None else Trainer(self._replay, training)

    # -- calling -------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plan.

        On tensors that are here the function is run, if the plan has one; a plan that was fetched replays its operations.
        On tensors that are at a worker the plan is sent there, once, and every call is one message.
        """
        if kwargs and not self._takes_names():
            args, kwargs = self._positional(args, kwargs), {}
        location = location_of(plain_of((*args, kwargs) if kwargs else args), self.name)
        if location is not None:
            if not self.is_built:
                self.build(*args, **kwargs)
            return self._sent_to(location)(*args, **kwargs)
        if self.forward_func is not None:
            return self._run_function(args, kwargs)
        called = f"The plan {self.name!r}"
        inputs = self.program.flatten(
            self.program.with_names(plain_of(args), plain_of(kwargs), called), called
        )
        if not any(type(tensor) is Wrapper for tensor in (*inputs, *self.state.tensors())):
            self._ready().check_fit(inputs, self.state.tensors(), called)
        replay = self._ready() if self._trainer is None else self._trainer
        results = replay.run(inputs, self.state.tensors())
        return results if self._build_results is None else self._build_results(results)

    def run(self, args: tuple[Any, ...], result_ids: Sequence[Any] = ()) -> Any:
        """Run the plan, here or where its arguments are; it is built first if it has to be.

        Results that stay here are registered with the owner under `result_ids`.
        """
        if not self.is_built:
            self.build(*args)
        result = self(*args)
        for obj_id, tensor in zip(result_ids, tensors_of(result), strict=False):
            self.owner.register_obj(tensor, obj_id)
        return result

    def _takes_names(self) -> bool:
        """Whether arguments by name stay so: the plan was built with such, or its function takes them in no other way."""
        if self.is_built:
            return self.program.takes_names
        if self.forward_func is None:
            return False
        parameters = inspect.signature(self.forward_func).parameters.values()
        return any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if self.forward_func is None:
            raise PlanError(
                f"The plan {self.name!r} was called with {', '.join(kwargs)} by name. A plan without its function "
                "knows no names: pass the arguments in order."
            )
        bound = inspect.signature(self.forward_func).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        given = bound.args
        return given[:-1] if self.include_state and given and given[-1] is None else given

    # -- the state, in place -------------------------------------------------------------------------

    def fix_precision_(self, *args: Any, **kwargs: Any) -> Plan:
        self.state.fix_precision_(*args, **kwargs)
        return self

    fix_precision = fix_prec_ = fix_precision_

    def float_precision_(self) -> Plan:
        self.state.float_precision_()
        return self

    float_precision = float_prec_ = float_precision_

    def share_(self, *args: Any, **kwargs: Any) -> Plan:
        """Share the state: the plan is an encrypted model, to be called with shared tensors."""
        self.state.share_(*args, **kwargs)
        return self

    share = share_

    # -- a store of its own, as documented -----------------------------------------------------------

    def send_msg(self, *args: Any, **kwargs: Any) -> Any:
        return self.owner.send_msg(*args, **kwargs)

    def request_obj(self, *args: Any, **kwargs: Any) -> Any:
        return self.owner.request_obj(*args, **kwargs)

    def respond_to_obj_req(self, obj_id: Any) -> Any:
        """The object of that id of the plan's own store, which does not have it any more."""
        found = self.get_obj(obj_id)
        self.rm_obj(obj_id)
        return found

    # -- copies --------------------------------------------------------------------------------------

    def copy(self) -> Plan:
        """Another plan with the same operations and its own state; it replays them."""
        if not self.is_built:
            return Plan(
                self.name,
                self.state.copy(),
                self.include_state,
                forward_func=self.forward_func if self.include_state else None,
                owner=self._owner,
                tags=self.tags,
                description=self.description,
            )
        made = Plan.of_program(
            self.program,
            self.state.copy(),
            self._training,
            name=self.name,
            id=ID_PROVIDER.pop(),
            owner=self._owner,
            tags=self.tags,
            description=self.description,
        )
        made._build_results = self._build_results
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        made = self.copy()
        made._id = self._id
        return made

    def __repr__(self) -> str:
        built = "built" if self.is_built else "not built"
        return f"<{type(self).__name__} {self.name} id:{self.id} owner:{getattr(self.owner, 'id', None)} {built}>"

    def _repr_html_(self) -> str:
        lines = [line.strip() for line in listing(self.program, self.state)] if self.is_built else []
        return html.table(repr(self), (), [(line,) for line in lines])

    def __str__(self) -> str:
        """`repr` and, of a built plan, every operation on a line of its own."""
        lines = [repr(self)]
        if self.is_built:
            lines += listing(self.program, self.state)
        return "\n".join(lines)

    # -- as documented for serialisation ---------------------------------------------------------------

    @staticmethod
    def simplify(worker: Any, plan: Plan) -> tuple[Any, ...]:
        """The attributes of a built plan as a tuple."""
        return (
            plan.id,
            plan.name,
            plan.program,
            plan.state,
            plan._training,
            frozenset(plan.tags),
            plan.description,
        )

    @staticmethod
    def detail(worker: Any, plan_tuple: tuple[Any, ...]) -> Plan:
        """A plan from its attributes; every operation is checked."""
        id, name, program, state, training, tags, description = plan_tuple
        return Plan.of_program(
            program, state, training, name=name, id=id, owner=worker, tags=tags, description=description
        )

    @staticmethod
    def bufferize(worker: Any, plan: Plan) -> Any:
        """The attributes of a built plan as a Protocol Buffer (`PlanPB`)."""
        return protobuf.bufferize(worker, plan)

    @staticmethod
    def unbufferize(worker: Any, protobuf_plan: Any) -> Plan:
        """The plan of a `PlanPB`; every operation is checked."""
        made: Plan = protobuf.unbufferize(worker, protobuf_plan, Plan)
        return made
