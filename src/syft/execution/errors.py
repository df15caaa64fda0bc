"""What goes wrong with plans.

PlanError (ValueError)
├── TraceError (RuntimeError)     a function cannot be made into a plan; the sentence names its line
├── PlanArgumentsError (TypeError)  a plan was called with other arguments than it was built for
├── PlanProtocolError (RuntimeError)  a protocol is not where it has to be, or was given something that is not
└── InvalidProgramError           the operations of a plan make no sense, or are too many
"""

from __future__ import annotations

from syft.exceptions import SyftError


class PlanError(SyftError, ValueError):
    """Base of the errors of plans."""


class TraceError(PlanError, RuntimeError):
    """A function does something that a list of torch operations cannot express."""


class PlanArgumentsError(PlanError, TypeError):
    """A plan was called with other arguments than it was built for."""


class PlanProtocolError(PlanError, RuntimeError):
    """A protocol is not deployed, or was called or deployed with what does not fit it."""


class InvalidProgramError(PlanError):
    """A program that nobody traced: its operations refer to what is not there, or are no operations."""
