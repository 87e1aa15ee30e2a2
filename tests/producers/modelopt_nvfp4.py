# SPDX-License-Identifier: Apache-2.0
"""ModelOpt NVFP4: two codes a byte, an e4m3 scale a group of 16 and an f32 factor."""

import json
from dataclasses import dataclass

import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread

PROJECTION = "model.layers.0.mlp.{}_proj"
CONFIG = {
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "W4A16_NVFP4",
        "ignore": ["lm_head"],
    }
}


def matrix(rng, n, k, factor=None):
    codes = rng.integers(0, 16, (n, k))
    scales = e4m3(np.exp2(rng.uniform(-5, 5, (n, k // 16))))
    factor = np.float32(rng.uniform(0.001, 0.1) if factor is None else factor)
    # The product of scale and factor is rounded to f32 before the code comes in.
    scale = (scales.astype(np.float32) * factor).astype(np.float64)
    values = E2M1[codes] * spread(scale, 1, 16, (n, k))
    return {"weight": pack_nibbles(codes), "weight_scale": scales, "weight_scale_2": factor}, values


def whole(name, config=CONFIG, files=None):
    rng = random(name)
    tensors, values, schemes = {}, {}, {}
    for projection, n, k in [("gate", 48, 32), ("up", 48, 32), ("down", 32, 48)]:
        module = PROJECTION.format(projection)
        parts, values[f"{module}.weight"] = matrix(rng, n, k, 0.0123 if projection != "down" else None)
        tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        schemes[module] = "ModelOpt NVFP4"
    tensors["model.norm.weight"] = bf16(np.ones(32))
    values["model.norm.weight"] = np.ones(32)
    schemes["model.norm"] = "bf16"
    return Case(name, tensors, config, files or {}, schemes, values)


def stacked(name, each_factor, suffix, joint):
    """All experts in one tensor [E, out, in], with a factor for all or one an expert."""
    rng = random(name)
    case = Case(name, {}, CONFIG | {"model_type": "qwen3_5_moe", "hidden_size": 32})
    for projection, n, k in [("gate_up", 96, 32), ("down", 32, 48)]:
        module = f"model.layers.0.mlp.experts.{projection}_proj"
        codes = rng.integers(0, 16, (3, n, k))
        scales = e4m3(np.exp2(rng.uniform(-5, 5, (3, n, k // 16))))
        factor = rng.uniform(0.001, 0.1, 3 if each_factor else ()).astype(np.float32)
        scale = (scales.astype(np.float32) * factor.reshape(-1, 1, 1)).astype(np.float64)
        case.tensors[module + suffix] = pack_nibbles(codes)
        case.tensors[f"{module}{joint}weight_scale"] = scales
        case.tensors[f"{module}{joint}weight_scale_2"] = factor
        case.values[module] = E2M1[codes] * spread(scale, 1, 16, codes.shape)
        case.schemes[module] = "ModelOpt NVFP4"
    return case


def without_scale():
    case = whole("modelopt-nvfp4-without-scale")
    case.tensors.pop("model.layers.0.mlp.up_proj.weight_scale")
    case.faults = ("scale-missing",)
    return case


def activations(name, rule="", scales=False, **changes):
    """NVFP4 by name has a scale of activations at each matrix; W4A16_NVFP4 and settings without them do not."""
    config = {"quantization_config": CONFIG["quantization_config"] | {"quant_algo": "NVFP4"} | changes}
    case = whole(f"modelopt-nvfp4-activations-{name}", config)
    for module in [module for module in case.schemes if scales and "proj" in module]:
        case.tensors[f"{module}.input_scale"] = np.float32(0.002)
    case.faults = (rule,) if rule else ()
    return case


def activation_cases():
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    fixed = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    yield activations("scales", scales=True)
    yield activations("no-scales", "input-scale-missing")
    yield activations("no-scales-lower-case", "input-scale-missing", quant_algo="nvfp4")
    yield activations("none", config_groups={"group_0": group | {"input_activations": None}})
    yield activations("group", "input-scale-missing", config_groups={"group_0": group | {"input_activations": fixed}})
    case = activations("hf-file", "input-scale-missing")
    case.config = {}
    case.files["hf_quant_config.json"] = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    yield case
    for projection in ("up", "down"):
        case = whole(f"modelopt-nvfp4-globals-{projection}")
        module = PROJECTION.format(projection)
        case.tensors[f"{module}.weight_scale_2"] = np.float32(0.0246)
        case.faults, case.values = (("gate-up-global",) if projection == "up" else ()), {}
        yield case


def masks():
    """Buffers of attention beside quantized weights are carried as they are."""
    case = whole("modelopt-nvfp4-masks")
    causal = np.tril(np.ones((1, 1, 8, 8)))
    for name, mask in [
        ("0.self_attn.bias", causal.astype(np.uint8)),
        ("1.attn.bias", causal.astype(np.bool_)),
        ("0.attn.masked_bias", np.uint8(1)),
        ("1.attn.masked_bias", np.float32(-1e4)),
        ("2.attn.mask", causal.astype(np.uint8)),
    ]:
        case.tensors[f"model.layers.{name}"] = mask
        case.values[f"model.layers.{name}"] = np.asarray(mask).astype(np.float64)
    return case


def empty(n, k):
    """Codes of no row or no column: refused by check and convert alike."""
    case = whole(f"modelopt-nvfp4-empty-{n}x{k}")
    case.tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((n, k // 2), np.uint8)
    case.tensors["model.layers.0.mlp.up_proj.weight_scale"] = e4m3(np.zeros((n, k // 16)))
    case.schemes = {"model.layers.0.mlp.up_proj": "hold no matrix"}
    case.faults = ("module-unreadable",)
    return case


@dataclass
class InF4(Case):
    """Codes in a type of their own, whose shape counts them and not bytes."""

    def write(self, folder):
        super().write(folder)
        file = folder / "model.safetensors"
        raw = file.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        for entry in header.values():
            if entry["dtype"] == "U8":
                entry["dtype"] = "F4"
                entry["shape"][-1] *= 2
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])


def f4():
    case = whole("modelopt-nvfp4-f4")
    yield InF4(case.name, case.tensors, case.config, case.files, case.schemes, case.values)
    case = whole("modelopt-nvfp4-f4-scale-shape")
    module = PROJECTION.format("up")
    case.tensors[module + ".weight_scale"] = e4m3(np.ones((48, 4)))
    yield InF4(case.name, case.tensors, case.config, faults=("scale-shape",))


def cases():
    yield whole("modelopt-nvfp4")
    yield from f4()
    yield whole(
        "modelopt-nvfp4-hf-quant-config",
        config={},
        files={
            "hf_quant_config.json": {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "W4A16_NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
            }
        },
    )
    yield stacked("modelopt-nvfp4-stacked", False, "", "_")
    yield stacked("modelopt-nvfp4-stacked-factors", True, "", "_")
    yield stacked("modelopt-nvfp4-stacked-dots", True, ".weight", ".")
    yield without_scale()
    yield from activation_cases()
    yield masks()
    yield empty(0, 32)
    yield empty(48, 0)
