#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The experts of a trained model rounded to nearest in several producers' formats: what fewbit decodes
from each file must give the perplexity that independent code gives for the same rounding.

usage: quantized_models.py FEWBIT SOURCE_MODEL PRODUCERS_FOLDER
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

EXPERT = re.compile(r"\.experts\.\d+\.(gate|up|down)_proj\.weight$")
KEPT = ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"]
# No producer's config speaks of NF3 codes alone.
EXPECTED_RULES = {"nf3_g32": {"config-missing"}}
# A perplexity follows the order of sums in the fourth digit.
TOLERANCE = 0.05


def read_safetensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "BF16", name
        yield name, np.frombuffer(raw[begin:end], ml_dtypes.bfloat16).reshape(entry["shape"])


def groups(weight, size):
    """f32 [n, k/size, size]"""
    return weight.astype(np.float32).reshape(weight.shape[0], -1, size)


def int4_symmetric(weight, size):
    """Codes 0..15 around 8, f16 scales."""
    w = groups(weight, size)
    scale = np.maximum(w.max(-1) / 7, -w.min(-1) / 8).astype(np.float16)
    steps = np.rint(w / scale.astype(np.float32)[..., None])
    return (np.clip(steps, -8, 7) + 8).reshape(weight.shape).astype(np.uint32), scale


def pack_words(codes, axis):
    """Eight 4-bit codes along `axis` in an i32, low bits first."""
    codes = np.moveaxis(codes, axis, -1)
    words = np.zeros((*codes.shape[:-1], codes.shape[-1] // 8), np.uint32)
    for i in range(8):
        words |= codes[..., i::8].astype(np.uint32) << np.uint32(4 * i)
    return np.moveaxis(words, -1, axis).view(np.int32)


def gptq(weight):
    codes, scale = int4_symmetric(weight, 128)
    n, k = weight.shape
    return {
        "qweight": np.ascontiguousarray(pack_words(codes.T, 0)),
        "qzeros": np.full((k // 128, n // 8), 0x77777777, np.int32),
        "scales": np.ascontiguousarray(scale.T),
        "g_idx": (np.arange(k) // 128).astype(np.int32),
    }


def compressed_tensors(weight):
    codes, scale = int4_symmetric(weight, 32)
    return {
        "weight_packed": pack_words(codes, 1),
        "weight_scale": scale,
        "weight_shape": np.array(weight.shape, np.int64),
    }


def mxfp4(weight):
    """The floor rule: exponent of the largest value, minus that of 6."""
    w = groups(weight, 32)
    largest = np.abs(w).max(-1)
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1))) - 2
    scaled = (w / np.exp2(exponent)[..., None]).astype(ml_dtypes.float4_e2m1fn)
    codes = scaled.view(np.uint8).reshape(weight.shape)
    return {
        "weight_packed": codes[:, 0::2] | (codes[:, 1::2] << 4),
        "weight_scale": (exponent + 127).astype(np.uint8),
    }


NF3 = np.array([-1, -0.6047, -0.3563, -0.1275, 0.1275, 0.3563, 0.6047, 1], np.float32)


def nf3(weight):
    """The largest of 32 as e4m3 scale, eight codes in three bytes."""
    w = groups(weight, 32)
    scale = np.abs(w).max(-1).astype(ml_dtypes.float8_e4m3fn)
    divisor = np.where(scale > 0, scale, 1).astype(np.float32)
    codes = np.abs((w / divisor[..., None])[..., None] - NF3).argmin(-1).reshape(weight.shape[0], -1, 8)
    bits = (codes[..., None] >> np.arange(3) & 1).reshape(weight.shape[0], -1)
    return {"weight_packed": np.packbits(bits.astype(np.uint8), axis=-1, bitorder="little"), "weight_scale": scale}


def ternary(weight):
    """BitNet: rounded by the mean magnitude; four rows a byte."""
    w = weight.astype(np.float32)
    factor = 1 / np.abs(w).mean()
    codes = (np.clip(np.rint(w * factor), -1, 1) + 1).astype(np.uint8)
    quarters = codes.reshape(4, weight.shape[0] // 4, -1)
    packed = sum(quarters[i] << (2 * i) for i in range(4)).astype(np.uint8)
    return {"weight": packed, "weight_scale": np.array([factor], np.float32)}


def fp8_rows(weight):
    w = weight.astype(np.float32)
    scale = np.abs(w).max(-1, keepdims=True) / 448
    return {"weight": (w / scale).astype(ml_dtypes.float8_e4m3fn), "weight_scale": scale}


def fp8_blocks(weight):
    n, k = weight.shape
    w = weight.astype(np.float32).reshape(n // 128, 128, k // 128, 128)
    scale = np.abs(w).max((1, 3), keepdims=True) / 448
    codes = (w / scale).astype(ml_dtypes.float8_e4m3fn).reshape(n, k)
    return {"weight": codes, "weight_scale_inv": scale.reshape(n // 128, k // 128)}


def compressed(kind, weights, packing):
    group = {"targets": ["Linear"], "weights": weights, "format": packing}
    return {
        "quant_method": kind,
        "format": packing,
        "ignore": KEPT,
        "config_groups": {"group_0": group},
    }


FORMATS = {
    "int4_g128_sym": (
        gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "dynamic": {"-:.*self_attn.*": {}}},
    ),
    "int4_g32_sym": (
        compressed_tensors,
        compressed(
            "compressed-tensors",
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
            "pack-quantized",
        ),
    ),
    "mxfp4": (
        mxfp4,
        compressed(
            "compressed-tensors",
            {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True},
            "mxfp4-pack-quantized",
        ),
    ),
    "nf3_g32": (nf3, {"hybrid_bit_map": {str(layer): [3] * 16 for layer in range(6)}}),
    # No perplexity of independent code: rounding to three values leaves little of a model.
    "ternary": (ternary, {"quant_method": "bitnet", "linear_class": "bitlinear", "modules_to_not_convert": ["lm_head", "self_attn", "mlp.gate"]}),
    "fp8_row": (
        fp8_rows,
        compressed(
            "compressed-tensors",
            {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "float-quantized",
        ),
    ),
    "fp8_block128": (
        fp8_blocks,
        {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["self_attn", "lm_head", "mlp.gate"]},
    ),
}


def write_model(source, folder, quantize, block, write_safetensors):
    folder.mkdir()
    tensors = {}
    for file in sorted(source.glob("*.safetensors")):
        if file.name == "reference.safetensors":
            continue
        for name, weight in read_safetensors(file):
            if not EXPERT.search(name):
                tensors[name] = weight
                continue
            module = name.removesuffix("weight")
            tensors |= {module + suffix: part for suffix, part in quantize(weight).items()}
    write_safetensors(folder / "model.safetensors", tensors)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": block}))
    shutil.copy(source / "tokenizer.json", folder)


def call(program, *arguments, codes=(0,)):
    run = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True)
    if run.returncode not in codes:
        sys.exit(f"{arguments}: {run.stdout}{run.stderr}")
    return json.loads(run.stdout)


def perplexity(program, model, text, *options):
    return call(program, "eval", model, "--text", text, "--activation-dtype", "f32", *options)["perplexity"]


def check_format(name, program, source, scratch, write_safetensors, want):
    quantize, block = FORMATS[name]
    model, decoded = scratch / name, scratch / f"{name}-decoded"
    write_model(source, model, quantize, block, write_safetensors)
    rules = {f["rule"] for f in call(program, "check", model, codes=(0, 1))["findings"] if f["level"] != "info"}
    call(program, "convert", model, "-o", decoded, "--to", "f32")
    found = perplexity(program, decoded, source / "val.txt")
    # On a short text, by the backend that runs every scheme and by the one that is chosen: the same
    # without decoding first.
    short = scratch / "short.txt"
    short.write_text((source / "val.txt").read_text()[:1500])
    options = ("--window", "64", "--backend", "reference")
    direct, plain = (perplexity(program, one, short, *options) for one in (model, decoded))
    chosen = perplexity(program, model, short, "--window", "64")
    # Prepared once, and mapped: the same bits.
    call(program, "prepare", model, "-o", scratch / f"{name}-prepared", "--verify")
    prepared = perplexity(program, scratch / f"{name}-prepared", short, "--window", "64")
    print(f"{name}: perplexity {found:.4f}, independent code {want or found:.4f}; "
          f"direct {direct:.5f} and {chosen:.5f}, decoded {plain:.5f}")
    same = all(abs(one - plain) <= 1e-4 * plain for one in (direct, chosen))
    return abs(found - (want or found)) <= TOLERANCE and same and prepared == chosen and rules == EXPECTED_RULES.get(name, set())


def main():
    program, source, producers = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    sys.path.insert(0, producers)
    from case import write_safetensors

    reference = json.loads((source / "rtn_reference.json").read_text())["results"]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in FORMATS:
            if not check_format(name, program, source, Path(scratch), write_safetensors, reference.get(name, {}).get("perplexity")):
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
