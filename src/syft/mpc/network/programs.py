"""The party programs that can be asked for over a network: those of `syft.mpc.programs`, with all protocols imported."""

from syft.mpc import protocols
from syft.mpc.programs import OPENING, OUTLINES, PROGRAMS, PartyProgram, name_of, program_named

__all__ = ["OPENING", "OUTLINES", "PROGRAMS", "PartyProgram", "name_of", "program_named", "protocols"]
