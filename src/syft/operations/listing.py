"""The page of admitted operations, `docs/admitted_operations.md`, made from the table. Imports `core`.

python -m syft.operations.listing > docs/admitted_operations.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

from syft.operations.decomposition import is_decomposable
from syft.operations.refused_entries import REFUSED
from syft.operations.table import all_rows

_HEAD = """# Operations on data that you may not fetch

A worker that denies by default lets others compute on its private tensors, and tells them nothing of the values. It
runs only the operations listed here. Each is known to write all of its result, to make a result whose shape does not
depend on values, and to take time and memory that its arguments' shapes bound. This page is made from the table in
`src/syft/operations/rows/`; a test keeps it current.

What you hear (shapes, errors, refusals) is told from metadata before the operation runs. If it then fails because of
a value (an index out of range, a matrix that is not positive definite), its result is zeros, and only the owner of
the data can see that it failed.

In the lists, **native** operations run as torch's own kernels, **checked** ones after a look at values that the
kernel trusts (indices, pivots, divisors), and **decomposed** ones as several others. A name without an overload
stands for `.default`; `name_` is in place, and runs as a copy that is written back. `out=...`, `set_` and `resize_`
are not among them.

Operations that are not listed are run as others by your own side, where torch has a decomposition, or are refused by
a sentence that names them (`OperationNotAdmittedError`).
"""

#: Operations that people ask for -> what to use instead.
_INSTEAD = {
    "nonzero, argwhere, masked_select, x[mask], unique": "results have as many elements as values say: use "
    "`torch.where`, `masked_fill`, weights of 0 and 1, or `nonzero_static` with a size",
    "item, tolist, equal, allclose": "they hand out values: ask for a release",
    "set_, resize_, as_strided beyond the tensor": "they reach memory of others: use `reshape`, `contiguous`",
    "out=...": "leave it away; your side writes it as `out.copy_(...)` where the shapes agree",
    "bincount, histogram, histogramdd": "sizes or bins depend on values: use `histc`, or `one_hot(x, classes).sum(0)`",
    "repeat_interleave with a tensor, one_hot": "pass `output_size` and `num_classes`",
    "packed sequences in recurrent layers": "their sizes are values: pad the sequences",
    "linalg.ldl_solve, geqrf, linalg.lstsq": "use `linalg.solve`, `linalg.qr`",
    "Chebyshev, Hermite, Laguerre, Legendre polynomials": "steps grow with a value: write them out for one "
    "degree",
    "mvlgamma": "decomposed on your side",
    "sparse, nested, quantized tensors": "workers hold dense tensors: call `to_dense()` first",
}


def page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    families: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in all_rows().values():
        if not row.inner:
            families[row.family][row.way].append(_short(row.name))
    for family, ways in families.items():
        count = sum(map(len, ways.values()))
        parts.append(f"## {family[0].upper()}{family[1:]} ({count})\n")
        parts.extend(
            f"**{way}:** {_several(ways[way])}\n" for way in ("native", "checked", "decomposed") if ways[way]
        )
    parts.append("## Refused, and what to use instead\n\n| operation | instead |\n|---|---|")
    parts.append("".join(f"| {what} | {cure} |\n" for what, cure in _INSTEAD.items()))
    refused = sum(len(names.split()) for names in REFUSED.values())
    parts.append(
        "## torch's operator database\n\nAll of its entries for float32 run there, forward and backward, bit for bit, "
        f"but for these {refused}, of which some samples are refused:\n\n| because | entries |\n|---|---|"
    )
    parts.append(
        "".join(
            f"| {why} | {', '.join(f'`{n}`' for n in names.split())} |\n" for why, names in REFUSED.items()
        )
    )
    left = sorted(set(_recordable()) - set(all_rows()))
    decomposed = [_short(n) for n in left if is_decomposable(_overload(n))]
    parts.append(f"## Decomposed on your side ({len(decomposed)})\n")
    parts.append(f"As far as what they are made of is listed above:\n\n{_several(decomposed)}")
    return "\n".join(parts).rstrip() + "\n"


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".default")


def _several(names: Iterable[str]) -> str:
    """Names, the overloads of one operation together: `add.Tensor`, `add.Scalar` are `add` (Tensor, Scalar)."""
    overloads: dict[str, list[str]] = defaultdict(list)
    for name in names:
        packet, _, overload = name.partition(".")
        overloads[packet].append(overload)
    return ", ".join(
        f"`{packet}`" + (f" ({', '.join(o or 'default' for o in several)})" if several != [""] else "")
        for packet, several in sorted(overloads.items())
    )


def _overload(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)  # type: ignore[no-any-return]


def _recordable() -> list[str]:
    """Functional operations of torch that are not its own business."""
    from syft.core.commands import aten_operations

    found = []
    for name in aten_operations():
        namespace, packet, _ = name.split(".")
        if namespace == "aten" and not packet.startswith("_") and not packet.endswith(("_backward", "_copy")):
            func = _overload(name)
            returns = [str(r.type) for r in func._schema.returns]
            if not func._schema.is_mutable and returns and all("Tensor" in r for r in returns):
                if torch.Tag.dynamic_output_shape not in func.tags:
                    found.append(name)
    return found


if __name__ == "__main__":
    print(page(), end="")
