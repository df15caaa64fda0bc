"""The command guard: which operations a worker runs, by name.

The vocabulary is closed. A name is looked up in tables made from torch's own lists; it is never
evaluated, and never reaches `getattr` before it has been found there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from syft.core.public_names import known_functions
from syft.exceptions import UnknownCommandError

#: Namespaces of torch's own operators.
NAMESPACES = ("aten", "torch_nn")

#: aten operations that read files, print, talk to a profiler, hand out raw memory or storages, trust
#: indices without checking them, or end the process even where there is only metadata (`range` divides by zero).
#: (On data that their users may not see, workers run the operations of syft.operations only.)
REFUSED_ATEN = frozenset(
    """from_file save _print _assert_scalar _functional_assert_scalar set_ set_data data_ptr record_stream
    _cuda_getCurrentRawStream _local_scalar_dense item is_nonzero _test_check_tensor _pin_memory pin_memory
    is_pinned _version retains_grad retain_grad requires_grad_ _backward output_nr rename rename_ align_as
    _share_memory resize_storage_bytes_ _resize_output_ storage_offset resize_as_sparse_ _nnpack_available
    _unsafe_index_put_ _sparse_coo_tensor_unsafe _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe
    _sparse_csc_tensor_unsafe _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe range _foreach_copy""".split()
)

#: Beginnings of names that belong to other devices and to packed numbers. Ordinary programs do not send them, and they
#: take memory that another operation has packed for what it says it is: a pointer in a tensor is followed. The
#: convolutions that `convolution` is made of are told the size of a kernel, and believe it.
_REFUSED_FAMILIES = ("fbgemm_", "quantize", "q_", "mkldnn_", "cudnn_", "miopen_", "mps_")
_REFUSED_OF_FAMILIES = frozenset(
    """choose_qparams_optimized fused_moving_avg_obs_fake_quant empty_quantized int_repr qscheme
    convolution_overrideable convolution_backward_overrideable lstm_mps_backward max_pool2d_backward
    thnn_conv2d slow_conv3d slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d
    slow_conv_transpose3d conv_depthwise3d""".split()
)


def _is_packed_or_elsewhere(name: str) -> bool:
    return name.startswith(_REFUSED_FAMILIES) or name in _REFUSED_OF_FAMILIES


#: Of the operations that torch keeps to itself (`_name`), those that ordinary programs reach. No others are run.
INTERNAL_ATEN = frozenset(
    """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _batch_norm_impl_index _batch_norm_no_update _batch_norm_with_update _cdist_backward _cdist_forward
    _chunk_cat _conj _conj_physical _convolution_double_backward _ctc_loss _ctc_loss_backward
    _dirichlet_grad _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward
    _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward _euclidean_dist _fft_c2c _fft_c2r
    _fft_r2c _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors
    _linalg_check_errors _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex
    _linalg_svd _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_no_training _neg_view _pack_padded_sequence _pack_padded_sequence_backward
    _pad_packed_sequence _pdist_backward _pdist_forward _prelu_kernel _prelu_kernel_backward _safe_softmax
    _sample_dirichlet _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _segment_reduce_backward _softmax
    _softmax_backward_data _standard_gamma _standard_gamma_grad _to_copy _trilinear _unique _unique2
    _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa
    _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward
    _upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d
    _upsample_nearest_exact2d_backward _upsample_nearest_exact3d _upsample_nearest_exact3d_backward
    _weight_norm_differentiable_backward _weight_norm_interface _weight_norm_interface_backward
    _unsafe_index _unsafe_index_put _native_batch_norm_legit_functional _batch_norm_with_update_functional
    _fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_""".split()
)

#: Public names that leave the tensor world (Python values, callbacks, storages, autograd, files).
REFUSED_PUBLIC = frozenset(
    """apply_ map_ map2_ numpy tolist item data_ptr const_data_ptr storage untyped_storage storage_type share_memory_
    backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ module_load set_
    record_stream to_dense_backward pin_memory resize_ resize_as_ torch.from_file torch.save torch.load
    torch.set_printoptions torch.nn.functional.handle_torch_function""".split()
)

_OPERATOR_DUNDERS = frozenset(
    f"__{prefix}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    for prefix in ("", "r", "i")
) | frozenset(
    "__neg__ __abs__ __invert__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getitem__ __setitem__".split()
)

#: Operations whose result is uninitialised memory, which may have held somebody else's data.
UNINITIALISED = frozenset(
    """empty empty_like empty_strided empty_permuted new_empty new_empty_strided _empty_affine_quantized
    torch.empty torch.empty_like torch.empty_strided torch.empty_permuted""".split()
)


@cache
def aten_operations() -> frozenset[str]:
    """Names such as 'aten.add.Tensor' of all aten overloads a worker may run."""
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, signature = full.partition("::")
        name, _, overload = signature.partition(".")
        if namespace in NAMESPACES and _is_allowed_aten(namespace, name):
            names.add(f"{namespace}.{name}.{overload or 'default'}")
    return frozenset(names)


def _is_allowed_aten(namespace: str, name: str) -> bool:
    if name in REFUSED_ATEN or _makes_other_layouts(name) or _is_packed_or_elsewhere(name):
        return False
    if namespace != "aten" or not name.startswith("_"):
        return True
    return name in INTERNAL_ATEN or name in _OPERATOR_DUNDERS or name.startswith("_foreach_")


@cache
def public_operations() -> frozenset[str]:
    """Names such as 'torch.add', 'add' and 'torch.nn.functional.relu' that a worker may run."""
    return frozenset(name for name in known_functions() if _is_allowed_public(name))


def _makes_other_layouts(name: str) -> bool:
    """Workers hold dense tensors only; see syft.workers.results."""
    return "sparse" in name or "to_mkldnn" in name or "nested" in name


def _is_allowed_public(name: str) -> bool:
    if name in REFUSED_PUBLIC or _makes_other_layouts(name):
        return False
    last = name.rpartition(".")[2]
    if _is_packed_or_elsewhere(last):
        return False
    if last.startswith("__"):
        return name in _OPERATOR_DUNDERS
    return not last.startswith("_") and not any(part.startswith("_") for part in name.split("."))


class KnownCommand:
    """A command that passed the guard.

    kinds   the (position, name) of arguments that are dtypes, layouts or memory formats
    """

    __slots__ = ("function", "kinds", "leaves_memory_uninitialised", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        parts = name.split(".")
        self.leaves_memory_uninitialised = (parts[1] if parts[0] in NAMESPACES else name) in UNINITIALISED
        self.kinds = kinds_of(function)


def kinds_of(function: Any) -> tuple[tuple[int, str], ...]:
    """The (position, name) of the arguments of an operation that are dtypes, layouts or memory formats."""
    schema: Any = getattr(function, "_schema", None)
    arguments: Any = schema.arguments if schema is not None else ()
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(arguments)
        if any(kind in str(argument.real_type) for kind in ("ScalarType", "Layout", "MemoryFormat"))
    )


def refuse_numbers_for_kinds(
    operation: str, kinds: tuple[tuple[int, str], ...], args: Any, kwargs: dict[str, Any]
) -> None:
    """!! TypeError for a number where a dtype, layout or memory format stands.

    torch keeps those as numbers inside, takes any number for one, and reads past its tables.
    """
    for position, name in kinds:
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, int):
            raise TypeError(f"{operation} was called with {name}={value}, a number. Pass e.g. torch.float32.")


_known: dict[str, KnownCommand] = {}


def command_named(name: str) -> KnownCommand:
    """The torch operation of that name; anything else !! UnknownCommandError naming it."""
    try:
        return _known[name]
    except (KeyError, TypeError):
        pass
    if not isinstance(name, str):
        raise UnknownCommandError(repr(name))
    if name in aten_operations():
        namespace, packet, overload = name.split(".")
        known = KnownCommand(name, getattr(getattr(getattr(torch.ops, namespace), packet), overload))
    elif name in public_operations():
        known = KnownCommand(name, known_functions()[name])
    else:
        raise UnknownCommandError(name)
    _known[name] = known
    return known
