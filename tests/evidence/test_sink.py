"""The sink depends on every byte of what it is given."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from armillary.evidence import sink


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(sink, "_total", 0)


def alone(*values) -> int:
    """The checksum of the values in a process that has consumed nothing else."""
    sink._total = 0
    return sink.consume(*values)


arrays = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int16, np.uint8, np.complex64, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
)


@given(array=arrays)
def test_an_array_is_its_bytes(array):
    assert alone(array) == zlib.crc32(np.ascontiguousarray(array).tobytes())


@given(array=arrays.filter(lambda a: a.size > 0), data=st.data())
def test_no_byte_can_change_unseen(array, data):
    changed = bytearray(np.ascontiguousarray(array).tobytes())
    at = data.draw(st.integers(0, len(changed) - 1))
    before = alone(array)
    changed[at] ^= 1
    assert zlib.crc32(bytes(changed)) != before


def test_views_count_by_their_elements_and_not_by_their_memory():
    array = np.arange(12.0).reshape(3, 4)
    assert alone(array.T) == alone(array.T.copy())
    assert alone(array[:, ::2]) == alone(array[:, ::2].copy())


def test_containers_are_walked_in_their_order():
    a, b = np.arange(3), np.arange(4)
    assert alone([a, {"b": b}]) == alone(a, "b", b)
    assert alone([a, b]) != alone([b, a])


def test_what_was_consumed_before_still_counts():
    first = sink.consume(np.arange(3))
    assert sink.consume(np.arange(3)) != first


@pytest.mark.parametrize("value", [None, True, 3, 2.5, 1 + 2j, "text", "\ud800", b"bytes", object])
def test_plain_values_are_used(value):
    assert alone(value) != 0


def test_objects_inside_arrays_are_used():
    assert alone(np.array([1, "a"], dtype=object)) != alone(np.array([1, "b"], dtype=object))


def test_sparse_matrices_are_used_by_their_entries():
    sparse = pytest.importorskip("scipy.sparse")
    one = sparse.csr_matrix(np.diag([1.0, 2.0]))
    assert alone(one) == alone(one.tocoo())
    assert alone(one) != alone(sparse.csr_matrix(np.diag([1.0, 3.0])))


def test_tensors_are_used_and_their_graphs_are_left_alone():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0, requires_grad=True)
    assert alone(x * 2) == alone((np.arange(6, dtype=np.float32)) * 2)
    assert alone(x.bfloat16()) == alone(np.arange(6, dtype=np.float32))
    assert x.grad is None
