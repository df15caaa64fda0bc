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
    supplies, supplied   the same on the disks of the holders, used once over restarts: `sy.mpc.supplied(...)`
    metering, checking   what operations cost, and where they overflow: `sy.mpc.measure()`, `sy.mpc.checked()`
    shared_node, node_methods, precision, sharing   tensors in fixed precision and in shares
    rules           what operations mean on them; `rules.all_rules` stands on all of them
    ..._methods     what users call
"""

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.mpc import chain_methods  # imported for what it adds
from syft.mpc import device_methods as _device_methods  # noqa: F401  (the same)
from syft.mpc import plain_targets as _plain_targets  # noqa: F401  (the same)
from syft.mpc.ahead import Provided, provide
from syft.mpc.checking import SecretDomainError, SecretOverflowError, checked
from syft.mpc.metering import LAN, WAN, Bill, Network, measure
from syft.mpc.rules import all_rules  # imported for what it registers
from syft.mpc.supplied import Supplied, supplied
from syft.mpc.supplies import (
    SupplyDirectory,
    SupplyError,
    SupplyMismatchError,
    SupplyUsedUpError,
    keep_supplies,
)

__getattr__ = _on_demand("syft.mpc")

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
