"""Entries of torch's operator database of which a worker that denies by default refuses something, by why.

`tests/gate/test_coverage.py` runs all others there, bit for bit; the list only shrinks. Imports nothing.
"""

from __future__ import annotations

#: Why -> names of entries, with white space between them.
REFUSED = {
    "hands out a value": "item allclose equal corrcoef cov nn.functional.gaussian_nll_loss narrow tensor_split",
    "shape depends on values": """masked_select nonzero argwhere unique unique_consecutive combinations index_put
        repeat_interleave histogram histogramdd index_fill""",
    "lengths are values": "nn.functional.ctc_loss _segment_reduce.lengths _segment_reduce.offsets",
    "steps depend on values": " ".join(
        f"special.{name}_polynomial_{kind}"
        for name, kinds in (
            ("chebyshev", "tuvw"),
            ("shifted_chebyshev", "tuvw"),
            ("laguerre", "l"),
            ("legendre", "p"),
        )
        for kind in kinds
    )
    + " special.hermite_polynomial_h special.hermite_polynomial_he",
    "trusts pivots, or torch cannot tell its shapes": "geqrf linalg.ldl_solve linalg.lstsq linalg.lstsq.grad_oriented",
    "sparse": "sparse.sampled_addmm sparse.mm.reduce to_sparse",
    "reaches beyond a part of a tensor": "as_strided.partial_views",
    "of nothing, or of one number": """nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
        nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss""",
    "not thought through": "hash_tensor",
}
