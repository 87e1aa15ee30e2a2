#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cross-check with the reference gguf package: fewbit decodes what it wrote, it reads what fewbit
wrote (one file and parts), and for the same values both encode the same bytes.

usage: python_gguf.py GGUF_FILES_PROGRAM
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

ENCODED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]
# Types that the package decodes and does not encode: random blocks, with the f16 scales at these
# byte offsets made finite.
DECODED = {
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "NVFP4": [],
    "IQ1_S": [0],
    "IQ1_M": [],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
}
PAIRS = [
    ("text", "string", "a t\u00e4xt"),
    ("u8", "uint8", 250),
    ("i8", "int8", -7),
    ("u16", "uint16", 65000),
    ("i16", "int16", -3000),
    ("u32", "uint32", 4_000_000_000),
    ("i32", "int32", -2_000_000_000),
    ("u64", "uint64", 2**63),
    ("i64", "int64", -(2**62)),
    ("f32", "float32", 0.25),
    ("f64", "float64", 0.1),
    ("yes", "bool", True),
    ("strings", "array", ["a", "", "\u00e4"]),
    ("numbers", "array", [3, -4, 5]),
]


def check(what, condition):
    if not condition:
        sys.exit(f"differs: {what}")


def values(random, count):
    """Normal values of several sizes, with zeros, ties and equal magnitudes among them."""
    x = (random.standard_normal(count) * np.exp2(random.integers(-12, 4, count // 256).repeat(256))).astype(np.float32)
    x[:256] = 0
    x[256:512] = np.tile(np.array([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -5, -6, 0, -0.0, 4, 1, -1], np.float32), 16)
    x[512:768] = 0.5 * np.sign(random.standard_normal(256))
    return x


def random_blocks(random, name, rows, blocks):
    elements, size = GGML_QUANT_SIZES[Type[name]]
    data = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    if name == "IQ1_M":
        data[:, :, 55] = data[:, :, 55] & 0x0F | 0x30  # the top of its f16: positive, about 0.1
    for at in DECODED[name]:
        scales = random.standard_normal((rows, blocks)).astype(np.float16)
        data[:, :, at : at + 2] = scales.view(np.uint8).reshape(rows, blocks, 2)
    return data.reshape(rows, blocks * size), elements


def new_writer(path):
    writer = GGUFWriter(path, "llama")
    for key, kind, value in PAIRS:
        getattr(writer, f"add_{kind}")(f"test.{key}", value)
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_decoding(program, folder, random):
    path = folder / "theirs.gguf"
    writer = new_writer(path)
    expected = {}
    for name in ENCODED:
        x = values(random, 4096).reshape(2, 4, 512)
        data = quants.quantize(x, Type[name])
        writer.add_tensor(name, data, raw_dtype=Type[name])
        expected[name] = quants.dequantize(data, Type[name])
    for name in DECODED:
        data, elements = random_blocks(random, name, 3, 8)
        writer.add_tensor(name, data, raw_dtype=Type[name])
        expected[name] = quants.dequantize(data, Type[name])
        check(f"{name} elements", expected[name].size == 3 * 8 * elements)
    finish(writer)
    subprocess.run([program, "decode", path, folder / "decoded"], check=True)
    decoded = np.fromfile(folder / "decoded", np.float32)
    for name in sorted(expected):
        want = expected[name].astype(np.float32).ravel()
        found, decoded = decoded[: want.size], decoded[want.size :]
        check(f"decoded {name}", np.array_equal(found.view(np.uint32), want.view(np.uint32)))
    check("number of elements", decoded.size == 0)


def check_encoding(program, folder, random):
    path = folder / "values.gguf"
    writer = new_writer(path)
    given = {}
    for name in ENCODED:
        given[f"{name}.x"] = values(random, 32768).reshape(8, 4096)
        writer.add_tensor(f"{name}.x", given[f"{name}.x"])
    finish(writer)
    for file, limit, parts in [("one.gguf", 2**40, 1), ("many.gguf", 100_000, None)]:
        subprocess.run([program, "encode", path, folder / file, str(limit)], check=True)
        stem = file.removesuffix(".gguf")
        paths = [folder / file] if parts == 1 else sorted(folder.glob(f"{stem}-*.gguf"))
        check("parts", parts == 1 or len(paths) > 2)
        found = {}
        for number, part in enumerate(paths):
            reader = GGUFReader(part)
            if number == 0:
                check_pairs(reader)
            if parts is None:
                check("split.no", reader.get_field("split.no").contents() == number)
                check("split.count", reader.get_field("split.count").contents() == len(paths))
            found |= {tensor.name: tensor for tensor in reader.tensors}
        check("names", sorted(found) == sorted(given))
        for name, x in given.items():
            kind = Type[name.split(".")[0]]
            check(f"type of {name}", found[name].tensor_type == kind)
            check(f"shape of {name}", list(found[name].shape) == [4096, 8])
            want = quants.quantize(x, kind).view(np.uint8).ravel()
            check(f"bytes of {name}", np.array_equal(found[name].data.view(np.uint8).ravel(), want))


def check_pairs(reader):
    for key, _, value in PAIRS:
        field = reader.get_field(f"test.{key}")
        check(f"pair {key}", field is not None and field.contents() == value)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        check_decoding(program, Path(scratch), np.random.default_rng(1))
        check_encoding(program, Path(scratch), np.random.default_rng(2))
    print(f"{len(ENCODED) + len(DECODED)} types decoded alike, {len(ENCODED)} encoded alike")


if __name__ == "__main__":
    main()
