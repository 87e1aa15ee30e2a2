#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small checkpoints in mlx-VERSION/ with MLX itself, on a CPU.

usage: write_mlx.py       in an environment with numpy, mlx and mlx-cpu (0.32.4)

Codes, scales, biases and files are MLX's; decoded.safetensors is what its own dequantize gives, in
f32. The configs are as mlx-lm writes them: "quantization", and a copy of it.
"""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np

OUT = Path(__file__).parent / f"mlx-{mx.__version__}"
LAYER = "model.layers.0."
DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def settings(mode="affine", bits=None, group_size=None):
    group, width = DEFAULTS[mode]
    return {"group_size": group_size or group, "bits": bits or width, "mode": mode}


def write(name, whole, modules, dtype, plain):
    """modules: name -> (shape, settings or None for those of all)."""
    rng = np.random.default_rng(list(name.encode()))
    tensors = {plain: mx.array(np.ones(128, np.float32)).astype(dtype)}
    decoded, block = {}, dict(whole)
    for module, (shape, own) in modules.items():
        used = own or whole
        weight = mx.array(rng.normal(0, 0.05, shape).astype(np.float32)).astype(dtype)
        codes, scales, *biases = mx.quantize(weight, **used)
        tensors |= {f"{module}.weight": codes, f"{module}.scales": scales}
        exact = [scales.astype(mx.float32) if biases else scales, *(part.astype(mx.float32) for part in biases)]
        if biases:
            tensors[f"{module}.biases"] = biases[0]
        values = mx.dequantize(codes, *exact, **used)
        decoded[f"{module}.weight"] = values.astype(mx.float32)
        if own:
            block[module] = own
    folder = OUT / name
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    mx.save_safetensors(str(folder / "decoded.safetensors"), decoded)
    config = {"model_type": "qwen3_moe", "hidden_size": 128, "quantization": block, "quantization_config": block}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main():
    mx.set_default_device(mx.cpu)
    shutil.rmtree(OUT, ignore_errors=True)
    widths = [(1, 64), (2, 32), (3, 128), (4, 32), (5, 64), (6, 64), (8, 32)]
    experts = [f"{LAYER}mlp.experts.{number}.up_proj" for number in range(len(widths))]
    own = {module: ((16, 128), settings(bits=bits, group_size=group)) for module, (bits, group) in zip(experts, widths)}
    for dtype in (mx.float16, mx.bfloat16, mx.float32):
        write(f"widths-{str(dtype).rpartition('.')[2]}", settings(), own, dtype, "model.norm.weight")
    modes = {f"{LAYER}mlp.experts.{i}.up_proj": ((16, 128), settings(mode)) for i, mode in enumerate(DEFAULTS)}
    write("modes", settings("mxfp4"), modes, mx.bfloat16, "model.norm.weight")
    stacked = {f"{LAYER}mlp.switch_mlp.{part}_proj": (shape, None) for part, shape in [("gate", (2, 32, 128)), ("up", (2, 32, 128)), ("down", (2, 128, 32))]}
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        write(f"experts-{mode}", settings(mode), stacked, mx.bfloat16, "model.norm.weight")
    write("experts-affine", settings(group_size=32), stacked, mx.bfloat16, "model.norm.weight")


if __name__ == "__main__":
    main()
