"""Types of Python and numpy as tuples of their contents, and back. `shallow` leaves the contents as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from syft.serde.errors import SerdeError
from syft.serde.msgpack import serde


def _simplify_collection(
    worker: Any, my_collection: Collection[Any], shallow: bool = False
) -> tuple[Any, ...]:
    """The items of a list, tuple or set, each in simple form."""
    return tuple(item if shallow else serde._simplify(worker, item) for item in my_collection)


def _detail_items(worker: Any, items: Any, shallow: bool) -> list[Any]:
    return [item if shallow else serde._detail(worker, item) for item in items]


def _detail_collection_list(worker: Any, my_collection: Any, shallow: bool = False) -> list[Any]:
    return _detail_items(worker, my_collection, shallow)


def _detail_collection_set(worker: Any, my_collection: Any, shallow: bool = False) -> set[Any]:
    return set(_detail_items(worker, my_collection, shallow))


def _detail_collection_tuple(worker: Any, my_tuple: Any, shallow: bool = False) -> tuple[Any, ...]:
    return tuple(_detail_items(worker, my_tuple, shallow))


def _simplify_dictionary(worker: Any, my_dict: dict[Any, Any], shallow: bool = False) -> tuple[Any, ...]:
    """The pairs of a dict, key and value in simple form."""
    return tuple(_simplify_collection(worker, pair, shallow) for pair in my_dict.items())


def _detail_dictionary(worker: Any, my_dict: Any, shallow: bool = False) -> dict[Any, Any]:
    return dict(_detail_items(worker, pair, shallow) for pair in my_dict)


def _simplify_str(worker: Any, obj: str) -> tuple[bytes]:
    return (obj.encode("utf-8"),)


def _detail_str(worker: Any, str_tuple: tuple[bytes]) -> str:
    return str_tuple[0].decode("utf-8")


def _simplify_range(worker: Any, my_range: range) -> tuple[int, int, int]:
    return my_range.start, my_range.stop, my_range.step


def _detail_range(worker: Any, my_range_params: tuple[int, int, int]) -> range:
    return range(*my_range_params)


def _simplify_ellipsis(worker: Any, e: Any) -> tuple[bytes]:
    return (b"",)


def _detail_ellipsis(worker: Any, ellipsis: Any) -> Any:
    return ...


def _simplify_slice(worker: Any, my_slice: slice) -> tuple[Any, Any, Any]:
    return my_slice.start, my_slice.stop, my_slice.step


def _detail_slice(worker: Any, my_slice: tuple[Any, Any, Any]) -> slice:
    return slice(*my_slice)


def _simplify_ndarray(worker: Any, my_array: Any) -> tuple[bytes, Any, Any]:
    """The memory of an array in the order of C, its shape and the name of its dtype."""
    _check_is_plain(my_array.dtype)
    return (
        my_array.tobytes(),
        serde._simplify(worker, my_array.shape),
        serde._simplify(worker, my_array.dtype.name),
    )


def _detail_ndarray(worker: Any, arr_representation: tuple[bytes, Any, Any]) -> Any:
    data, shape, name = arr_representation
    dtype = np.dtype(serde._detail(worker, name))
    _check_is_plain(dtype)
    return np.frombuffer(data, dtype=dtype).reshape(serde._detail(worker, shape)).copy()


def _simplify_numpy_number(worker: Any, numpy_nb: Any) -> tuple[bytes, Any]:
    _check_is_plain(numpy_nb.dtype)
    return numpy_nb.tobytes(), serde._simplify(worker, numpy_nb.dtype.name)


def _detail_numpy_number(worker: Any, nb_representation: tuple[bytes, Any]) -> Any:
    dtype = np.dtype(serde._detail(worker, nb_representation[1]))
    _check_is_plain(dtype)
    return np.frombuffer(nb_representation[0], dtype=dtype)[0]


def _check_is_plain(dtype: Any) -> None:
    if dtype.kind not in "biufc":
        raise SerdeError(f"An array of dtype {dtype} does not travel: it holds other things than numbers.")


#: type -> (function that takes it apart, function that makes it again)
MAP_NATIVE_SIMPLIFIERS_AND_DETAILERS: dict[type, tuple[Any, Any]] = {
    dict: (_simplify_dictionary, _detail_dictionary),
    list: (_simplify_collection, _detail_collection_list),
    range: (_simplify_range, _detail_range),
    set: (_simplify_collection, _detail_collection_set),
    slice: (_simplify_slice, _detail_slice),
    str: (_simplify_str, _detail_str),
    tuple: (_simplify_collection, _detail_collection_tuple),
    type(...): (_simplify_ellipsis, _detail_ellipsis),
    np.ndarray: (_simplify_ndarray, _detail_ndarray),
    np.float32: (_simplify_numpy_number, _detail_numpy_number),
    np.float64: (_simplify_numpy_number, _detail_numpy_number),
    np.int32: (_simplify_numpy_number, _detail_numpy_number),
    np.int64: (_simplify_numpy_number, _detail_numpy_number),
}
