"""The version of this library, at its historical path."""

__version__ = "0.1.0"
