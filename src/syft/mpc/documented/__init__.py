"""The functions on shared tensors that programs of 2019 and 2020 call by name, in the order they import each other.

    arguments     what they take: nodes or chains, checked
    odd_shares    `OddSharingTensor`: a secret in Z_(2^64 - 1), what share_convert gives
    beaver        request_triple
    spdz          spdz_mul
    securenn      the functions of the SecureNN paper

New programs write `x * y`, `x.relu()`, `x > y`, which run on any number of holders and have gradients.
"""
