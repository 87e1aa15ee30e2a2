# SPDX-License-Identifier: Apache-2.0
"""NF3 in checkpoints of two tiers: eight 3-bit codes in three bytes, an e4m3 scale a group of 32."""

import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread

CODEBOOK = np.array([-1, -0.6047, -0.3563, -0.1275, 0.1275, 0.3563, 0.6047, 1], np.float32).astype(np.float64)
EXPERT = "model.layers.{}.mlp.experts.{}.up_proj"


def pack_triplets(codes):
    """Code 8j + i at bits 3i of the 24-bit word j, low byte first."""
    word = (codes.reshape(*codes.shape[:-1], -1, 8) << (3 * np.arange(8))).sum(-1)
    return np.stack([word & 255, word >> 8 & 255, word >> 16], -1).astype(np.uint8).reshape(*codes.shape[:-1], -1)


assert pack_triplets(np.arange(8)).tolist() == [136, 198, 250]


def nf3(rng, n, k):
    codes = rng.integers(0, 8, (n, k))
    scale = e4m3(np.exp2(rng.uniform(-6, 0, (n, -(-k // 32)))))
    values = CODEBOOK[codes] * spread(scale.astype(np.float64), 1, 32, (n, k))
    return {"weight_packed": pack_triplets(codes), "weight_scale": scale}, values


def mxfp4(rng, n, k):
    codes = rng.integers(0, 16, (n, k))
    byte = rng.integers(115, 124, (n, k // 32)).astype(np.uint8)
    values = E2M1[codes] * spread(np.exp2(byte.astype(np.float64) - 127), 1, 32, (n, k))
    return {"weight_packed": pack_nibbles(codes), "weight_scale": byte}, values


def hybrid(bits, **extra):
    return {"hybrid_bit_map": bits, "kept_format": "mxfp4_e8m0k32", **extra}


def modelopt(bits, **extra):
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, **hybrid(bits), **extra}}


def experts(name, config, tiers=(4, 3, 3, 4), k=64, files=None, layer=0):
    rng = random(name)
    case = Case("nf3-" + name, {"model.norm.weight": bf16(np.ones(8))}, config, files or {})
    for expert, bits in enumerate(tiers):
        module = EXPERT.format(layer, expert)
        parts, values = nf3(rng, 24, k) if bits == 3 else mxfp4(rng, 24, k)
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        # The kept tier is in other producers' names and hands.
        if bits == 3:
            case.values[f"{module}.weight"] = values
            case.schemes[module] = "NF3 (nf3, e4m3 scale a group of 32)"
    return case


def many_experts():
    """Expert numbers past 255."""
    tiers = [3] * 300
    rng = random("many")
    case = Case("nf3-many", {}, modelopt({"0": tiers}))
    for expert in range(len(tiers)):
        module = EXPERT.format(0, expert)
        parts, case.values[f"{module}.weight"] = nf3(rng, 2, 32)
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    case.schemes[EXPERT.format(0, 299)] = "NF3"
    return case


def fault(name, rule, config, text="", **rest):
    case = experts("fault-" + name, config, **rest)
    case.faults = (rule,)
    case.schemes = {module: text for module in case.schemes} if text else {}
    return case


def faults():
    bits = {"0": [4, 3, 3, 4]}
    yield fault("no-config", "module-unreadable", {}, "no config has a hybrid_bit_map")
    without = {"quantization_config": {"quant_method": "modelopt", "kept_format": "mxfp4_e8m0k32"}}
    yield fault("no-map", "module-unreadable", without, "kept_format without hybrid_bit_map")
    yield fault("bad-map", "module-unreadable", modelopt({"0": [4, 3, 2, 4]}), 'entry "0" of hybrid_bit_map')
    yield fault("swapped", "hybrid-bits", modelopt({"0": [3, 4, 3, 4]}))
    yield fault("absent-layer", "hybrid-bits", modelopt({"1": [4, 3, 3, 4]}))
    yield fault("map-size", "hybrid-map-size", modelopt({"0": [4, 3, 3, 4, 4]}))
    case = fault("kept-format", "hybrid-kept-format", modelopt({"0": [4, 3, 3, 3]}), tiers=(4, 3, 3, 3))
    module = EXPERT.format(0, 0)
    del case.tensors[module + ".weight_packed"]
    case.tensors |= {
        module + ".weight": np.full((24, 32), 0x21, np.uint8),
        module + ".weight_scale": e4m3(np.ones((24, 4))),
        module + ".weight_scale_2": np.float32(0.5),
    }
    yield case
    for name in ("nvfp4_e4m3k16", "mxfp4_e8m0k16", "fp8_e4m3"):
        yield fault(f"kept-format-{name}", "hybrid-kept-format", modelopt(bits, kept_format=name))
    case = fault("byte-scales", "module-unreadable", modelopt(bits), "16 times it")
    for name, array in case.tensors.items():
        if name.endswith("weight_scale"):
            case.tensors[name] = array.view(np.uint8)
    yield case


def cases():
    bits = {"0": [3, 3, 3]}
    tiers = (3, 3, 3)
    kept = {"warnings": ("config-producer",)}
    for name, config, files in [
        ("config", modelopt(bits), None),
        ("top-level", hybrid(bits), None),
        ("quantization", {"quantization": hybrid(bits)}, None),
        ("hf-file", {}, {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", **hybrid(bits)}}}),
    ]:
        case = experts(name, config, tiers, files=files)
        case.warnings = kept["warnings"]
        yield case
    ragged = experts("ragged", modelopt(bits), tiers, k=40)
    ragged.warnings = kept["warnings"]
    yield ragged
    for name in ("mxfp4_e8m0k32", "MXFP4", "fp4_e2m1"):
        both = experts(f"kept-format-{name}", modelopt({"0": [4, 3, 3, 4]}, kept_format=name))
        both.warnings = kept["warnings"]
        both.absent = ("hybrid-kept-format",)
        yield both
    many = many_experts()
    many.warnings = kept["warnings"]
    yield many
    yield from faults()
