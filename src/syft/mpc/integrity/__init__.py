"""Authenticated shares: what `share(protocol="spdz2k")` is made of.

    wide      integers mod 2^110 in limbs
    sealed    correlations with MACs, and the holders' parts of the MAC key
    shares    a holder's part of an authenticated tensor, and of authenticated bits
    ledger    what was opened and not checked yet; the check

The programs are `syft.mpc.protocols.spdz2k` and `syft.mpc.protocols.spdz2k_bits`, the argument is in the former's head.
"""
