"""safetensors files and the number formats in them, with numpy alone.

A tensor is a pair (dtype, array): dtype as the file spells it, and the stored elements; those that numpy has no type for are
held as unsigned integers of their width.
"""
import json

import numpy as np

STORED = {"F32": np.dtype("<f4"), "I32": np.dtype("<i4"), "BF16": np.dtype("<u2"), "U8": np.dtype("u1"), "F8_E4M3": np.dtype("u1")}
BLOCK = 16                                              # elements that share an e4m3 scale in NVFP4

_magnitude = np.arange(127)                             # code 127 is NaN; there is no infinity
_exponent, _mantissa = _magnitude >> 3, _magnitude & 7
# e4m3: bias 7, subnormals mantissa / 8 · 2^-6
E4M3 = np.where(_exponent == 0, _mantissa / 8.0 * 2.0**-6, (1 + _mantissa / 8.0) * 2.0 ** (_exponent - 7.0))
# e2m1: bias 1; bit 3 of a code is the sign
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _nearest(values, x):
    """Index of the element of ascending `values` nearest to x >= 0; ties to the even index; saturates."""
    upper = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    low, high = x - values[upper - 1], values[upper] - x
    even_is_upper = upper % 2 == 0
    return np.where((high < low) | ((high == low) & even_is_upper), upper, upper - 1)


def encode_e4m3(x):
    """Codes of non-negative x."""
    return _nearest(E4M3, np.asarray(x)).astype(np.uint8)


def decode_e4m3(code):
    assert not np.any((code & 127) == 127), "NaN among e4m3 elements"
    return E4M3[code & 127] * np.where(code & 128, -1.0, 1.0)


def encode_e2m1(x):
    """Codes of x. What is negative stays negative when it becomes zero: the code is 8 then, -0."""
    return (_nearest(E2M1, np.abs(x)) | np.where(np.signbit(x), 8, 0)).astype(np.uint8)


def decode_e2m1(code):
    return E2M1[code & 7] * np.where(code & 8, -1.0, 1.0)


def encode_bf16(x):
    """Upper halves of the nearest float32, rounded to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def decode(tensor):
    """Elements in float64 (integers as they are)."""
    dtype, stored = tensor
    if dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "F8_E4M3":
        return decode_e4m3(stored)
    return stored.astype(np.float64) if dtype == "F32" else stored


def f32(x):
    return "F32", np.ascontiguousarray(x, dtype=np.float32)


def i32(x):
    return "I32", np.ascontiguousarray(x, dtype=np.int32)


def bf16(x):
    return "BF16", encode_bf16(x)


def quantise_nvfp4(w, divisor):
    """NVFP4 of w [out, in]: (elements two a byte, the first in the low nibble; e4m3 scales), where w ≈ e2m1 · e4m3 / divisor."""
    blocks = w.reshape(w.shape[0], -1, BLOCK)
    scales = encode_e4m3(np.abs(blocks).max(-1) / E2M1[-1] * divisor)
    step = decode_e4m3(scales)[..., None] / divisor
    codes = encode_e2m1(np.divide(blocks, step, out=np.copysign(np.zeros_like(blocks), blocks), where=step > 0)).reshape(w.shape)
    return ("U8", codes[:, 0::2] | codes[:, 1::2] << 4), ("F8_E4M3", scales)


def dequantise_nvfp4(packed, scales):
    """e2m1 · e4m3 in float64, exactly; the global scale remains to be applied."""
    (_, packed), (_, scales) = packed, scales
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, BLOCK)
    return (decode_e2m1(codes) * decode_e4m3(scales)[..., None]).reshape(packed.shape[0], -1)


def read(path):
    """All tensors of a file by name."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            stored = np.frombuffer(data[start + begin:start + end], STORED[entry["dtype"]])
            tensors[name] = entry["dtype"], stored.reshape(entry["shape"])
    return tensors


def to_bytes(tensors):
    """The file of these tensors: wider elements first, so that all are aligned, then by name."""
    header, parts, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, (dtype, stored) in sorted(tensors.items(), key=lambda item: (-STORED[item[1][0]].itemsize, item[0])):
        part = np.ascontiguousarray(stored, STORED[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(stored.shape), "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
