"""What is read in place, what is copied, and tensors of other libraries."""

import ctypes
import functools
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab import _arrays


class Tensor:
    """A CPU tensor of another library: exports DLPack and is no NumPy array."""

    def __init__(self, array, code=None):
        self.array, self.code = array, code

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        # A code of the type replaces NumPy's, which has none for bfloat16 and FP8. NumPy's
        # own versioned capsules have more in front of the tensor; old ones are asked for.
        capsule = self.array.__dlpack__()
        if self.code is not None:
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            # DLTensor: data (8 bytes), device (8), ndim (4), then the type code.
            ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = self.code
        return capsule


def peak_allocation(function):
    """Bytes that NumPy and Python held at most while `function` ran."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_floats_are_read_in_place():
    x = np.ones((64, 64), np.float32)
    assert np.shares_memory(_arrays.as_float32("x", x), x)
    assert np.shares_memory(_arrays.as_matrix("x", x.reshape(4, 16, 64)), x)
    assert not np.shares_memory(_arrays.as_float32("x", x.T), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_encode_allocates_its_result_alone(dtype):
    x = np.ones(1 << 22, dtype)
    assert peak_allocation(lambda: fp8lab.encode(x)) < x.size + 100_000


def test_decode_allocates_its_result_alone():
    codes = np.ones(1 << 20, ml_dtypes.float8_e4m3fn)
    assert peak_allocation(lambda: fp8lab.decode(codes)) < 4 * codes.size + 100_000


def test_gemm_reads_any_strides_in_place():
    codes = np.full((4096, 1024), 0x38, np.uint8)
    one = codes[:1]
    for a in (codes, codes.view(ml_dtypes.float8_e4m3fn), codes[::-1, ::2], codes.T[:, :1024]):
        b = one[:, : a.shape[1]]
        run = functools.partial(
            fp8lab.gemm, a, b, model="exact", a_format="e4m3fn", b_format="e4m3fn"
        )
        assert np.shares_memory(_arrays.codes_of("a", a, "e4m3fn")[0], codes)
        assert peak_allocation(run) < 200_000


def test_quantized_tensors_bring_the_librarys_memory():
    x = np.ones((1024, 1024), np.float32)
    q = fp8lab.quantize(x)
    assert not q.codes.flags.owndata
    assert peak_allocation(lambda: fp8lab.quantize(x)) < 100_000


def test_read_only_arrays_are_read():
    x = np.array([1.0, 3.0], np.float32)
    x.flags.writeable = False
    codes = fp8lab.encode(x)
    codes.flags.writeable = False
    assert fp8lab.decode(codes).tolist() == [1.0, 3.0]
    assert fp8lab.gemm(codes[None], codes[None], model="exact").tolist() == [[10.0]]


@pytest.mark.parametrize(
    ("array", "code", "dtype"),
    [
        (np.array([[1.0, -2.0]], np.float32), None, np.float32),
        (np.array([[1.0, -2.0]], np.float16), None, np.float16),
        (np.array([[0x38, 0xC0]], np.uint8), None, np.uint8),
        (np.array([[0x3F80, 0xC000]], np.uint16), 4, ml_dtypes.bfloat16),
        (np.array([[0x38, 0xC0]], np.uint8), 10, ml_dtypes.float8_e4m3fn),
        (np.array([[0x3C, 0xC0]], np.uint8), 12, ml_dtypes.float8_e5m2),
        (np.array([[0x40, 0xC8]], np.uint8), 11, ml_dtypes.float8_e4m3fnuz),
        (np.array([[0x40, 0xC4]], np.uint8), 13, ml_dtypes.float8_e5m2fnuz),
        (np.array([[1.0, -2.0]], np.float64), None, np.float64),
        *((np.array([[1, -2]], dtype), None, dtype) for dtype in (np.int8, np.int16, np.int32, np.int64)),
        *((np.array([[1, 2]], dtype), None, dtype) for dtype in (np.uint16, np.uint32, np.uint64)),
        (np.array([[127, 128]], np.uint8), 14, ml_dtypes.float8_e8m0fnu),
    ],
)
def test_dlpack_tensors_are_read_in_place(array, code, dtype):
    seen = _arrays.as_array("x", Tensor(array, code))
    assert seen.dtype == dtype
    assert np.shares_memory(seen, array)
    if dtype != np.uint8:
        second = 2.0 if np.dtype(dtype).kind == "u" or dtype == ml_dtypes.float8_e8m0fnu else -2.0
        assert seen.astype(np.float32).tolist() == [[1.0, second]]


def test_dlpack_strides_and_lifetime():
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    seen = _arrays.as_array("x", Tensor(base[:, ::2].copy().T))
    expected = base[:, ::2].T.copy()
    del base
    np.testing.assert_array_equal(seen, expected)


def test_dlpack_tensors_in_every_place():
    x = np.array([[1.0, 2.0]], np.float32)
    codes = fp8lab.encode(x, dtype=np.uint8)
    np.testing.assert_array_equal(fp8lab.encode(Tensor(x), dtype=np.uint8), codes)
    assert fp8lab.decode(Tensor(codes), "e4m3fn").tolist() == [[1.0, 2.0]]
    d = fp8lab.gemm(
        Tensor(codes),
        Tensor(codes),
        a_format="e4m3fn",
        b_format="e4m3fn",
        model="exact",
        c=Tensor(x[:, :1]),
    )
    assert d.tolist() == [[6.0]]
    assert fp8lab.compare(Tensor(x), Tensor(x)).mismatches == 0
    np.testing.assert_array_equal(fp8lab.quantize(Tensor(x)).codes, fp8lab.quantize(x).codes)


def test_a_tensor_that_does_not_export_says_what_to_do():
    class OnDevice:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **options):
            raise BufferError("not exportable")

    with pytest.raises(ValueError, match="x: expected a detached CPU tensor .*, got OnDevice"):
        fp8lab.encode(OnDevice())
    with pytest.raises(
        ValueError,
        match="x: expected a DLPack tensor of floats .*, got type code 5 of 64 bits in 1 lanes",
    ):
        fp8lab.encode(Tensor(np.zeros(3, np.complex64)))


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.array([[1.0, -2.0, 448.0]])
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        tensor = x.astype(dtype)
        seen = _arrays.as_array("x", tensor)
        assert seen.__array_interface__["data"][0] == tensor.unsafe_buffer_pointer()
        np.testing.assert_array_equal(seen, np.asarray(tensor))


def dlpack_type(array, code, bits=8, lanes=1):
    """A capsule of `array` whose elements are of this type."""
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor") + 20
    ctypes.c_uint8.from_address(at).value = code
    ctypes.c_uint8.from_address(at + 1).value = bits
    ctypes.c_uint16.from_address(at + 2).value = lanes
    return capsule


class Typed(Tensor):
    def __init__(self, array, *kind):
        self.array, self.kind = array, kind

    def __dlpack__(self, **options):
        return dlpack_type(self.array, *self.kind)


@pytest.mark.parametrize(
    ("code", "name"),
    [(10, "float8_e4m3fn"), (11, "float8_e4m3fnuz"), (12, "float8_e5m2"), (13, "float8_e5m2fnuz"), (14, "float8_e8m0fnu")],
)
def test_dlpack_types_of_eight_bits(code, name):
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    seen = _arrays.as_array("x", Typed(codes, code))
    assert seen.dtype.name == name and np.shares_memory(seen, codes)
    assert fp8lab.decode(Typed(codes, code)).tobytes() == fp8lab.decode(codes.view(name)).tobytes()


def test_dlpack_pairs_of_four_bits():
    words = np.random.default_rng(1).integers(0, 256, (4, 8), dtype=np.uint8)
    seen = _arrays.as_array("x", Typed(words, 17, 4, 2))
    assert seen.dtype.name == "float4_e2m1fn" and seen.shape == (4, 16)
    assert seen.view(np.uint8)[:, ::2].tolist() == (words & 15).tolist()
    assert seen.view(np.uint8)[:, 1::2].tolist() == (words >> 4).tolist()
    assert fp8lab.decode(Typed(words, 17, 4, 2)).tobytes() == fp8lab.decode(words, "e2m1x2").tobytes()
    for shape in ((32,), (2, 2, 8)):
        other = _arrays.as_array("x", Typed(words.reshape(shape), 17, 4, 2))
        assert other.shape == (*shape[:-1], 2 * shape[-1]) and other.tobytes() == seen.tobytes()


@pytest.mark.parametrize("dtype", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)])
def test_dlpack_integers_are_numbers(dtype):
    x = np.array([[1, 2], [100, 3]], dtype)
    seen = _arrays.as_array("x", Tensor(x))
    assert seen.dtype == x.dtype and np.shares_memory(seen, x)
    assert fp8lab.encode(Tensor(x)).tobytes() == fp8lab.encode(x.astype(np.float32)).tobytes()


@pytest.mark.parametrize("kind", [(5, 64, 1), (6, 8, 1), (3, 64, 1), (2, 32, 2), (17, 4, 1), (17, 8, 2), (10, 8, 2), (15, 6, 1), (1, 4, 1)])
def test_dlpack_types_that_are_not_known_are_refused(kind):
    x = Typed(np.zeros((2, 8), np.uint8), *kind)
    code, bits, lanes = kind
    with pytest.raises(ValueError, match=f"^x: expected (a DLPack tensor of .*, got type code {code} of {bits} bits in {lanes} lanes|a detached CPU tensor)"):
        fp8lab.encode(x)


def test_arrays_for_the_library_are_in_the_order_of_c():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[:, ::2], x[::-1], np.asfortranarray(x), x[:, 1:]):
        seen = _arrays.as_float32("x", view)
        assert seen.flags.c_contiguous and np.array_equal(seen, view)
    for dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64, np.int32):
        seen = _arrays.as_float32("x", (x % 8).astype(dtype).T)
        assert seen.flags.c_contiguous and np.array_equal(seen, (x % 8).T) and seen.dtype == np.float32
    for view in (x.T, x[:, ::2]):
        c = fp8lab.compare(view, view.copy())
        assert (c.mismatches, c.count) == (0, view.size)
        assert fp8lab.compare(view, view.T.copy().T).mismatches == 0
