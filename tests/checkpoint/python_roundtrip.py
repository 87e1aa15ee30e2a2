#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cross-check with the reference safetensors library: it reads what our writer wrote, we read what
it wrote, and for the same tensors both files are equal byte for byte.

usage: python_roundtrip.py WRITE_FIXED_SET_PROGRAM
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with numpy)
import numpy as np
from safetensors import TensorSpec, deserialize, safe_open, serialize_file

# name, type in the header, name for the reference writer, shape; as in write_fixed_set.cpp
TENSORS = [
    ("layer.f64", "F64", "float64", [2, 3]),
    ("layer.f32", "F32", "float32", [3, 5]),
    ("layer.f16", "F16", "float16", [7]),
    ("layer.bf16", "BF16", "bfloat16", [2, 2, 3]),
    ("layer.f8_e4m3", "F8_E4M3", "float8_e4m3fn", [4, 4]),
    ("layer.f8_e5m2", "F8_E5M2", "float8_e5m2", [5]),
    ("layer.f8_e8m0", "F8_E8M0", "float8_e8m0fnu", [3]),
    ("layer.f4", "F4", "float4_e2m1fn_x2", [4, 6]),
    ("layer.bool", "BOOL", "bool", [9]),
    ("layer.i64", "I64", "int64", [2]),
    ("layer.u64", "U64", "uint64", [2]),
    ("layer.i32", "I32", "int32", [2, 2]),
    ("layer.u32", "U32", "uint32", [3]),
    ("layer.i16", "I16", "int16", [3]),
    ("layer.u16", "U16", "uint16", [5]),
    ("layer.i8", "I8", "int8", [3]),
    ("layer.u8", "U8", "uint8", [11]),
    ("scalar", "F32", "float32", []),
    ("empty", "BF16", "bfloat16", [0, 4]),
    ('n\u00e4me "x"\t', "U8", "uint8", [2]),
]
BITS = {"F4": 4, "BOOL": 8, "U8": 8, "I8": 8, "F64": 64, "I64": 64, "U64": 64}


def bits(dtype):
    if dtype.startswith("F8"):
        return 8
    return BITS.get(dtype) or int(dtype.lstrip("BFIU"))


def expected_data(number, dtype, shape):
    size = int(np.prod(shape, dtype=np.int64)) * bits(dtype) // 8
    if dtype == "BOOL":
        return bytes((i + number) % 2 for i in range(size))
    return bytes((7 * i + number) % 256 for i in range(size))


def check_equal(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


def check_file(path, expected_names):
    entries = dict(deserialize(path.read_bytes()))
    check_equal(f"{path.name} names", sorted(entries), sorted(expected_names))
    for number, (name, dtype, _, shape) in enumerate(TENSORS):
        if name not in entries:
            continue
        check_equal(f"{name} dtype", entries[name]["dtype"], dtype)
        check_equal(f"{name} shape", list(entries[name]["shape"]), shape)
        check_equal(f"{name} data", bytes(entries[name]["data"]), expected_data(number, dtype, shape))


def check_our_files(folder):
    check_file(folder / "single" / "model.safetensors", [t[0] for t in TENSORS])
    with safe_open(folder / "single" / "model.safetensors", framework="np") as file:
        check_equal("metadata", file.metadata(), {"format": "pt"})
        expected = np.frombuffer(expected_data(1, "F32", [3, 5]), np.float32).reshape(3, 5)
        np.testing.assert_array_equal(file.get_tensor("layer.f32"), expected)

    index = json.loads((folder / "sharded" / "model.safetensors.index.json").read_text())
    total = sum(len(expected_data(0, dtype, shape)) for _, dtype, _, shape in TENSORS)
    check_equal("total_size", index["metadata"]["total_size"], total)
    check_equal("weight_map", sorted(index["weight_map"]), sorted(t[0] for t in TENSORS))
    files = sorted(set(index["weight_map"].values()))
    check_equal("more than one shard", len(files) > 1, True)
    for file in files:
        names = [name for name, shard in index["weight_map"].items() if shard == file]
        check_file(folder / "sharded" / file, names)


def write_with_reference(path):
    buffers = []
    specs = {}
    for number, (name, dtype, reference_name, shape) in enumerate(TENSORS):
        data = np.frombuffer(expected_data(number, dtype, shape), np.uint8)
        buffers.append(data)
        # The reference takes packed FP4 as two codes an element and doubles the last dimension.
        stored = shape[:-1] + [shape[-1] // 2] if dtype == "F4" else shape
        specs[name] = TensorSpec(
            dtype=reference_name, shape=stored, data_ptr=data.ctypes.data, data_len=data.nbytes
        )
    serialize_file(specs, path, metadata={"format": "pt"})


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([program, folder], check=True)
        check_our_files(folder)
        reference = folder / "reference.safetensors"
        write_with_reference(reference)
        read = subprocess.run([program, folder, reference], check=True, capture_output=True, text=True)
        check_equal("tensors we read from the reference's file", read.stdout.split(), [str(len(TENSORS))])
        ours = (folder / "single" / "model.safetensors").read_bytes()
        check_equal("both writers give the same bytes", ours == reference.read_bytes(), True)


main()
