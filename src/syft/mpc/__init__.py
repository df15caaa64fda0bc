"""Secret sharing and multi-party computation.

Modules, in the order they import each other:

    randomness      AES-CTR streams keyed by the operating system
    ring            Z_2^64 in int64 tensors: shares, bits packed into words
    kernels         int64 products and convolutions, fast
    correlations    the kinds of correlated randomness, as data
    party           a protocol as one party sees it: rounds, `open`, `together`
    provider        the dealer: each correlation once, to each holder its part
    drivers         what runs party programs and counts their cost: `Lockstep`
    programs        which party programs there are, by name: `@party_program`
    protocols       one file per family of programs
    network         the same programs among workers on a network
    encoding        reals as integers
    taken, ahead     which correlations a call takes, and dealing them before: `sy.mpc.provide(...)`
    supplies, supplied_calls   the same on the disks of the holders, used once over restarts: `sy.mpc.supplied(...)`
    metering, checking   what operations cost, and where they overflow: `sy.mpc.measure()`, `sy.mpc.checked()`
    shared_node, node_methods, precision, sharing   tensors in fixed precision and in shares
    rules           what operations mean on them; `rules.all_rules` stands on all of them
    ..._methods     what users call
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.mpc import chain_methods  # imported for what it adds
from syft.mpc import device_methods as _device_methods  # noqa: F401  (the same)
from syft.mpc import plain_targets as _plain_targets  # noqa: F401  (the same)
from syft.mpc.checking import SecretDomainError, SecretOverflowError, checked
from syft.mpc.metering import LAN, WAN, Bill, Network, measure
from syft.mpc.rules import all_rules  # imported for what it registers

if _TYPE_CHECKING:  # what is below is imported when it is first named: see `_LATER`
    from syft.mpc.ahead import Provided, provide
    from syft.mpc.supplied_calls import Supplied, supplied
    from syft.mpc.supplies import (
        SupplyDirectory,
        SupplyError,
        SupplyMismatchError,
        SupplyUsedUpError,
        keep_supplies,
    )

#: Public name -> its module. These stand on plans and networks, which fixed precision alone does without.
_LATER = {
    "Provided": "ahead",
    "provide": "ahead",
    "Supplied": "supplied_calls",
    "supplied": "supplied_calls",
    "SupplyDirectory": "supplies",
    "SupplyError": "supplies",
    "SupplyMismatchError": "supplies",
    "SupplyUsedUpError": "supplies",
    "keep_supplies": "supplies",
}
_submodule = _on_demand("syft.mpc")


def __getattr__(name: str) -> _Any:
    """A public name, or a module of this package, imported when it is first asked for."""
    module = _LATER.get(name)
    if module is None:
        return _submodule(name)
    found = globals()[name] = getattr(_importlib.import_module(f"syft.mpc.{module}"), name)
    return found


__all__ = [
    "LAN",
    "WAN",
    "Bill",
    "Network",
    "Provided",
    "SecretDomainError",
    "SecretOverflowError",
    "Supplied",
    "SupplyDirectory",
    "SupplyError",
    "SupplyMismatchError",
    "SupplyUsedUpError",
    "all_rules",
    "chain_methods",
    "checked",
    "keep_supplies",
    "measure",
    "provide",
    "supplied",
]
