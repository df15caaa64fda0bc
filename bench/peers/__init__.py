"""Other people's systems, each in an environment of its own: `make peers`. Nothing here is imported by the library."""
