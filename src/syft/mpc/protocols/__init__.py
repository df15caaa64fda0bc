"""Protocols, one file per family, in the order they import each other: beaver, truncate, compare, convert,
select, divide, securenn, fss, registry.
"""
