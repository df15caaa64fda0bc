"""`func2plan` and `method2plan`: decorators that turn a function, or a method, into a plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from syft.execution.errors import PlanError
from syft.execution.plan import Plan


class func2plan:
    """Decorator which converts a function of torch operations to a plan; an nn.Module is such a function, too.

    args_shape  shapes of the tensors it takes, -1 for any size; the plan is built at once. None or () : it is not
    state       tensors that travel with the plan; the function takes them as a last argument, `state.read()`
    args_dtype  dtypes of the tensors, where they are not the default one
    """

    def __init__(self, args_shape: Any = None, state: Any = None, args_dtype: Any = None) -> None:
        if callable(args_shape):
            raise TypeError(
                "func2plan is called before it decorates: write @sy.func2plan() with parentheses."
            )
        self.args_shape, self.state, self.args_dtype = args_shape, state, args_dtype

    def __call__(self, plan_function: Callable[..., Any]) -> Plan:
        state = self.state
        if isinstance(state, torch.Tensor):
            raise PlanError(
                "func2plan was given a tensor as state; state is a tuple of tensors: state=(tensor,)."
            )
        plan = Plan(
            name=getattr(plan_function, "__name__", type(plan_function).__name__),
            include_state=state is not None,
            forward_func=plan_function,
            state_tensors=state,
        )
        if self.args_shape:
            plan.build_from_shapes(self.args_shape, self.args_dtype)
        return plan


class method2plan:
    """Decorator which makes a method a plan: one per object, whose state is what the method uses of the object.

    Takes what `func2plan` takes, but `state`, which is `self`. `@method2plan` without parentheses works, too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._method: Callable[..., Any] | None = None
        self._plans: weakref.WeakKeyDictionary[Any, Plan] = weakref.WeakKeyDictionary()
        if len(args) == 1 and callable(args[0]) and not kwargs:
            self._method, args = args[0], ()
        self._decorator = func2plan(*args, **kwargs)
        if self._decorator.state is not None:
            raise PlanError("method2plan takes no state: the state of a method is what it uses of `self`.")

    def __call__(self, method: Callable[..., Any]) -> method2plan:
        self._method = method
        return self

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or self._method is None:
            return self
        plan = self._plans.get(instance)
        if plan is None:
            # NB: held by the object weakly, or the object would keep itself alive through the table.
            plan = self._plans[instance] = self._decorator(_WeakMethod(self._method, instance))
        return plan


class _WeakMethod:
    """A bound method that does not keep its object alive."""

    def __init__(self, function: Callable[..., Any], instance: Any) -> None:
        self.__name__ = function.__name__
        self._function, self._instance = function, weakref.ref(instance)

    def __call__(self, *args: Any) -> Any:
        if (instance := self._instance()) is None:
            raise ReferenceError(
                f"The plan {self.__name__!r} is a method of an object that is gone. Keep a reference to the object: "
                "one = MyClass(); one.method(x)."
            )
        return self._function(instance, *args)
