#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `fewbit check --weights` goes through a checkpoint in the page cache, scheme by scheme,
beside `dd` on the same file.

usage: check_weights.py FEWBIT [--gigabytes 1] [--rounds 5] [--folder DIR] [SCHEME…]
       (standard library only; SCHEME: fp8 bf16 nvfp4 mxfp4 int4)
"""
import argparse
import functools
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time

N, K = 2048, 2048
MATRICES = ("gate_proj", "up_proj", "down_proj")


@functools.cache
def noise(table=None, length=1 << 20):
    data = random.Random(7).randbytes(length)
    return data.translate(table) if table else data


FINITE_E4M3 = bytes(b if b & 0x7F != 0x7F else 0 for b in range(256))
SCALE_E4M3 = bytes(8 + b % 64 for b in range(256))
ZEROS = b"\x77" * 4096
GROUPS = b"".join(struct.pack("<i", j // 128) for j in range(K))
SCALE_E8M0 = bytes(100 + b % 16 for b in range(256))


@functools.cache
def halves(high):
    """16-bit numbers of one sign and exponent, so that none is NaN."""
    data = bytearray(noise())
    data[1::2] = bytes([high]) * (len(data) // 2)
    return bytes(data)


@functools.cache
def floats(value):
    return struct.pack("<f", value) * 4096


def fp8(prefix):
    yield prefix + "weight", "F8_E4M3", [N, K], noise(FINITE_E4M3)
    yield prefix + "weight_scale_inv", "F32", [N // 128, K // 128], floats(0.01)


def bf16(prefix):
    yield prefix + "weight", "BF16", [N, K], halves(0x3C)


def nvfp4(prefix):
    yield prefix + "weight", "U8", [N, K // 2], noise()
    yield prefix + "weight_scale", "F8_E4M3", [N, K // 16], noise(SCALE_E4M3)
    yield prefix + "weight_scale_2", "F32", [], floats(1e-3)
    yield prefix + "input_scale", "F32", [], floats(1e-2)


def mxfp4(prefix):
    yield prefix + "weight_packed", "U8", [N, K // 2], noise()
    yield prefix + "weight_scale", "U8", [N, K // 32], noise(SCALE_E8M0)


def int4(prefix):
    groups = K // 128
    yield prefix + "qweight", "I32", [K // 8, N], noise()
    yield prefix + "qzeros", "I32", [groups, N // 8], ZEROS
    yield prefix + "scales", "F16", [groups, N], halves(0x1C)
    yield prefix + "g_idx", "I32", [K], GROUPS


MXFP4_CONFIG = {
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
        "scale_dtype": "torch.uint8"}}},
}
SCHEMES = {
    "fp8": (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "bf16": (bf16, None),
    "nvfp4": (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}),
    "mxfp4": (mxfp4, MXFP4_CONFIG),
    "int4": (int4, {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}),
}
BYTES = {"F8_E4M3": 1, "F32": 4, "BF16": 2, "U8": 1, "I32": 4, "F16": 2}


def write(folder, scheme, target):
    """One layer of as many experts as fill `target` bytes, in eights."""
    make, config = SCHEMES[scheme]
    parts, header, size, expert = [], {}, 0, 0
    while size < target or expert % 8:
        for matrix in MATRICES:
            prefix = f"model.layers.0.mlp.experts.{expert}.{matrix}."
            for name, dtype, shape, pattern in make(prefix):
                length = BYTES[dtype]
                for extent in shape:
                    length *= extent
                header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [size, size + length]}
                size += length
                parts.append((length, pattern))
        expert += 1
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for length, pattern in parts:
            for _ in range(length // len(pattern)):
                out.write(pattern)
            out.write(pattern[: length % len(pattern)])
    model = {"model_type": "qwen3_moe", "num_experts": expert, "hidden_size": K}
    if config:
        model["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(model))
    return path, size


def read_back(path):
    """Seconds of one `dd`."""
    start = time.perf_counter()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M"], stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def check(program, folder):
    start = time.perf_counter()
    process = subprocess.Popen([program, "check", folder, "--weights", "--json"], stdout=subprocess.PIPE)
    report = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, report


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fewbit")
    parser.add_argument("schemes", nargs="*", default=list(SCHEMES))
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    print(f"{'scheme':8} {'GB':>6} {'dd GB/s':>8} {'check GB/s':>11} {'CPU s':>6} {'peak MB':>8}")
    for scheme in options.schemes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            folder = pathlib.Path(folder)
            path, size = write(folder, scheme, options.gigabytes * 1e9)
            read_back(path)
            copies, runs = [], []
            for _ in range(options.rounds):
                copies.append(read_back(path))
                runs.append(check(options.fewbit, folder))
            bad = {f["rule"] for f in runs[0][3]["findings"] if f["level"] == "error"} - {"config-unreadable"}
            if bad:
                raise SystemExit(f"{scheme}: {sorted(bad)}")
            seconds, cpu, peak = (statistics.median(run[i] for run in runs) for i in range(3))
            print(f"{scheme:8} {size / 1e9:6.2f} {size / statistics.median(copies) / 1e9:8.1f} "
                  f"{size / seconds / 1e9:11.1f} {cpu:6.2f} {peak:8.0f}")


if __name__ == "__main__":
    main()
