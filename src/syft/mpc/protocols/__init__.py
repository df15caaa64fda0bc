"""Protocols, one file per family, in the order they import each other: beaver, truncate, scaled, crossed, lookup,
compare, convert, registry, select, divide, derived, softmax, securenn, fss; local and documented beside them.

All files here are imported, for the programs and the comparisons that they register: a new one is found by itself.
"""

from importlib import import_module as _import_module
from pkgutil import iter_modules as _iter_modules

for _module in _iter_modules(__path__):
    _import_module(f"{__name__}.{_module.name}")
