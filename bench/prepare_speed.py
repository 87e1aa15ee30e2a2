#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `fewbit prepare` goes from the page cache to the prepared file, backend by backend.

usage: prepare_speed.py FEWBIT [--gigabytes 0.4] [--rounds 5] [--folder /dev/shm] [WORD]
       (standard library only; WORD in "source backend": those alone)

One layer of random experts of 2048 x 2048. GB of source a second: by the clock, and as if both
threads had a core of their own (bytes / (processors' time / threads)), which others on the machine
disturb less. Both with hashing and flushing; medians.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import check_weights as weights
from check_weights import GROUPS, K, N, ZEROS, halves, noise

SHUFFLED = b"".join(struct.pack("<i", j * 5 % K // 128) for j in range(K))


def int4_ordered(prefix):
    for name, dtype, shape, pattern in weights.int4(prefix):
        yield name, dtype, shape, SHUFFLED if pattern is GROUPS else pattern


def awq(prefix):
    groups = K // 128
    yield prefix + "qweight", "I32", [K, N // 8], noise()
    yield prefix + "qzeros", "I32", [groups, N // 8], ZEROS
    yield prefix + "scales", "F16", [groups, N], halves(0x1C)


def int4_g32(prefix):
    yield prefix + "weight_packed", "I32", [N, K // 8], noise()
    yield prefix + "weight_scale", "BF16", [N, K // 32], halves(0x3C)
    yield prefix + "weight_shape", "I64", [2], struct.pack("<2q", N, K)


CT_G32 = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}}},
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
weights.BYTES["I64"] = 8
weights.SCHEMES["int4 act-order"] = (int4_ordered, GPTQ | {"desc_act": True})
weights.SCHEMES["awq"] = (awq, {"quant_method": "awq", "bits": 4, "group_size": 128,
                                "zero_point": True, "version": "gemm"})
weights.SCHEMES["int4 g32"] = (int4_g32, CT_G32)

CASES = [
    ("int4", "marlin", "sm_90"), ("int4", "sglang_marlin", "sm_90"),
    ("int4", "vllm_cpu_int4", "cpu:amx"), ("int4", "xpu_int4", "xpu"),
    ("int4 act-order", "marlin", "sm_90"),
    ("awq", "marlin", "sm_90"), ("awq", "vllm_cpu_int4", "cpu:amx"),
    ("int4 g32", "marlin", "sm_90"), ("int4 g32", "flashinfer_trtllm_mxint4", "sm_100"),
    ("int4 g32", "xpu_int4", "xpu"),
    ("nvfp4", "marlin", "sm_90"), ("nvfp4", "flashinfer_trtllm_nvfp4", "sm_100"),
    ("nvfp4", "flashinfer_cutlass", "sm_120"), ("nvfp4", "vllm_cutlass_fp4", "sm_100"),
    ("nvfp4", "flashinfer_b12x", "sm_121"), ("nvfp4", "b12x", "sm_121"),
    ("mxfp4", "marlin", "sm_90"), ("mxfp4", "flashinfer_trtllm_mxfp4", "sm_100"),
    ("fp8", "marlin", "sm_86"), ("bf16", "flashinfer_cutlass", "sm_90"),
]


def add_config(folder):
    """What a model of one layer says of itself, of a family whose other tensors nobody asks for."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {
        "model_type": "ernie4_5_moe", "num_hidden_layers": 1, "intermediate_size": N, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 256, "rms_norm_eps": 1e-6, "moe_intermediate_size": N, "num_experts_per_tok": 4,
        "hidden_act": "silu", "norm_topk_prob": True, "max_position_embeddings": 4096}
    path.write_text(json.dumps(config))


def prepare(program, source, out, backend, device):
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen(
        [program, "prepare", source, "-o", out, "--backend", backend, "--device", device, "--json"],
        stdout=subprocess.PIPE)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{backend}: {text.decode()}")
    report = json.loads(text)
    return report["seconds"], usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fewbit")
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--gigabytes", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/dev/shm")
    options = parser.parse_args()
    threads = min(2, len(os.sched_getaffinity(0)))
    print(f"{'source':15} {'backend':25} {'GB/s':>6} {'by CPU time':>12} {'peak MB':>8}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        made = None
        for form, backend, device in CASES:
            if options.word not in f"{form} {backend}":
                continue
            if made != form:
                shutil.rmtree(folder / "source", ignore_errors=True)
                (folder / "source").mkdir()
                _, size = weights.write(folder / "source", form, options.gigabytes * 1e9)
                add_config(folder / "source")
                made = form
            runs = [prepare(options.fewbit, folder / "source", folder / "out", backend, device)
                    for _ in range(options.rounds + 1)][1:]
            seconds, cpu, peak = (statistics.median(run[i] for run in runs) for i in range(3))
            print(f"{form:15} {backend:25} {size / seconds / 1e9:6.2f} "
                  f"{size * threads / cpu / 1e9:12.2f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
