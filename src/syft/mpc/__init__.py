"""Secret sharing and multi-party computation.

Modules, in the order they import each other:

    randomness      AES-CTR streams keyed by the operating system
    ring            Z_2^64 in int64 tensors: shares, bits packed into words
    kernels         int64 products and convolutions, fast
    correlations    the kinds of correlated randomness, as data
    party           a protocol as one party sees it: rounds, `open`, `together`
    provider        the dealer: each correlation once, to each holder its part
    drivers         what runs party programs and counts their cost: `Lockstep`
    protocols       beaver, truncate, compare, convert, select, divide, securenn, fss, registry
    network         the same programs among workers on a network
"""
