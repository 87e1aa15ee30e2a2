#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`fewbit convert X.gguf -o Y.gguf`: what the reference gguf package reads of Y is what it decodes of
X, with X's metadata; in one file and in parts; what can't be written leaves nothing behind.

usage: python_gguf_convert.py FEWBIT
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter, quants
from python_gguf import DECODED, ENCODED, PAIRS, check, finish, random_blocks, values

FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}
# Numbers of each that hold the decoded ones, half the distance to the next.
ROUNDED = {"f32": 0, "f16": 2.0**-11, "bf16": 2.0**-8}


def write_model(path, random):
    """A tensor of every type; those of numbers stay as they are."""
    writer = GGUFWriter(path, "llama")
    for key, kind, value in PAIRS:
        getattr(writer, f"add_{kind}")(f"test.{key}", value)
    writer.add_file_type(2)
    writer.add_quantization_version(2)
    writer.add_custom_alignment(64)
    expected, kept = {}, {}
    for number, name in enumerate([*ENCODED, *(name for name in DECODED if not name.startswith("NV"))]):
        tensor = f"blk.{number}.ffn_up.weight"
        if name in ENCODED:
            data = quants.quantize(values(random, 4096).reshape(2, 4, 512)[0], Type[name])
        else:
            data, _ = random_blocks(random, name, 3, 8)
        writer.add_tensor(tensor, data, raw_dtype=Type[name])
        expected[tensor] = quants.dequantize(data, Type[name]).astype(np.float64)
        if name in ("F32", "F16", "BF16"):
            kept[tensor] = name
    large = quants.quantize(values(random, 1 << 19).reshape(512, 1024), Type.Q8_0)
    for tensor in ("token_embd.weight", "output.weight"):
        writer.add_tensor(tensor, large, raw_dtype=Type.Q8_0)
        expected[tensor] = quants.dequantize(large, Type.Q8_0).astype(np.float64)
    finish(writer)
    return expected, kept


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


def field(reader, key):
    found = reader.fields.get(key)
    return None if found is None else found.contents()


def check_tensors(files, expected, kept, target):
    seen = {}
    for file in files:
        for tensor in GGUFReader(file).tensors:
            check(f"{tensor.name} twice", tensor.name not in seen)
            seen[tensor.name] = tensor
    check("names", sorted(seen) == sorted(expected))
    for name, want in expected.items():
        tensor = seen[name]
        type_name = kept.get(name, target.upper())
        check(f"type of {name}", tensor.tensor_type.name == type_name)
        got = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(want.shape)
        bound = 0 if name in kept else ROUNDED[target] * np.abs(want) + (2.0**-25 if target == "f16" else 0)
        check(f"values of {name} as {target}", (np.abs(got - want) <= bound).all())


def check_metadata(reader, target):
    for key, _, value in PAIRS:
        got = field(reader, f"test.{key}")
        check(f"pair {key}", np.float32(got) == np.float32(value) if isinstance(value, float) else got == value)
    check("architecture", field(reader, "general.architecture") == "llama")
    check("file type", field(reader, "general.file_type") == FILE_TYPES[target])
    check("quantization version", field(reader, "general.quantization_version") is None)
    check("alignment", field(reader, "general.alignment") == 64)


def refused(program, folder, said, *arguments):
    before = sorted(folder.iterdir())
    result = run(program, "convert", *arguments)
    check(f"exit code of {arguments}", result.returncode == 1)
    check(f"message {said!r} in {result.stderr}", said in result.stderr)
    check(f"files after {arguments}", sorted(folder.iterdir()) == before)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = folder / "model.gguf"
        expected, kept = write_model(source, np.random.default_rng(7))
        for target in FILE_TYPES:
            out = folder / f"{target}.gguf"
            result = run(program, "convert", source, "-o", out, "--to", target)
            check(f"convert to {target}: {result.stderr}", result.returncode == 0)
            check_tensors([out], expected, kept, target)
            check_metadata(GGUFReader(out), target)
        to_parts = ("--to", "f16", "--max-shard-mb", 1)
        result = run(program, "convert", source, "-o", folder / "parts.gguf", *to_parts)
        check(f"parts: {result.stderr}", result.returncode == 0)
        parts = sorted(folder.glob("parts-*-of-*.gguf"))
        check(f"names of parts: {result.stdout}", result.stdout.startswith(f"wrote {parts[0]} and {len(parts) - 1} part"))
        report = json.loads(run(program, "convert", source, "-o", folder / "told.gguf", *to_parts, "--json").stdout)
        told = sorted(str(part) for part in folder.glob("told-*-of-*.gguf"))
        check(f"parts in JSON: {report}", report["output"] == told[0] and report["files"] == told)
        check("several parts", len(parts) > 1 and not (folder / "parts.gguf").exists())
        check_tensors(parts, expected, kept, "f16")
        check_metadata(GGUFReader(parts[0]), "f16")
        # The parts are read as one model.
        result = run(program, "convert", parts[0], "-o", folder / "again.gguf", "--to", "f32")
        check("plain parts are no quantized model", result.returncode == 1 and "nothing is quantized" in result.stderr)
        refused(program, folder, "exists already", source, "-o", folder / "f32.gguf", "--to", "f32")
        plain = run(program, "convert", source, "-o", folder / "plain", "--to", "f32")
        check("folder of a GGUF source", plain.returncode == 0)
        check("no temporary files", not list(folder.glob("*.partial.*")))
    print("python_gguf_convert: fine")


if __name__ == "__main__":
    main()
