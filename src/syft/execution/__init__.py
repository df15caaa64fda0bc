"""Plans: functions that travel.

Modules, in the order they import each other:

    errors           what is raised
    operation        the records of a plan: `Slot`, `Size`, `Operation`
    vocabulary       which functions a plan may name
    program          `Program`: all of a built plan but its state, and the check that strangers' programs pass
    replay           a program as a list of prepared calls; what it would return, from metadata
    sizes            numbers that remember of which sizes they were computed
    trace, merge     the function is run twice, what it did becomes a program
    placeholder, state
    optimizers, training   the update of a training plan
    held, remote     a plan at a worker: how it is kept, called and differentiated
    pointer_plan, plan, func2plan
    codec            how all this travels
"""

from syft.execution import codec, remote

__all__ = ["codec", "remote"]  # imported for what they register
