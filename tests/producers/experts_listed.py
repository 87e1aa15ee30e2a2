# SPDX-License-Identifier: Apache-2.0
"""Experts that one tensor holds, against lists that name them one by one."""

import numpy as np
from case import Case, bf16, random
from fp8 import BLOCK, codes, scales

EXPERTS = 12  # so that the first digit of one is another
PARENT = "model.layers.{}.mlp.experts"
KINDS = {
    "fp8": ("modules_to_not_convert", BLOCK["quantization_config"]),
    "modelopt": ("ignore", {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}),
}


def model(name, kind, entries, plain):
    """Two layers; the experts of the second are plain, or not."""
    rng = random(name)
    key, block = KINDS[kind]
    case = Case(name, {"model.norm.weight": bf16(np.ones(64))}, {"hidden_size": 64})
    case.config["quantization_config"] = block | {key: ["lm_head", *entries]}
    for layer in range(2):
        for part, n, k in [("gate_up_proj", 256, 64), ("down_proj", 64, 128)]:
            module = f"{PARENT.format(layer)}.{part}"
            if plain and layer == 1:
                case.tensors[module] = bf16(rng.normal(0, 0.05, (EXPERTS, n, k)))
                continue
            case.tensors[module] = codes(rng, (EXPERTS, n, k))
            case.tensors[f"{module}_scale_inv"] = scales(rng, (EXPERTS, -(-n // 128), -(-k // 128)))
    case.absent = ("config-expects-quantized", "config-excludes-quantized", "fused-partly-excluded", "pattern-unmatched")
    case.warnings = ("experts-mixed", "layers-mixed", "layer-not-runnable")
    return case


def children(experts=range(EXPERTS), parts=("gate", "up", "down")):
    return [f"{PARENT.format(1)}.{expert}.{part}_proj" for expert in experts for part in parts]


def wrong(case, rule, *said):
    case.faults, case.said, case.absent = (rule,), said, ()
    return case


def cases():
    for kind in KINDS:
        yield model(f"experts-listed-{kind}", kind, children(), True)
        yield wrong(model(f"experts-listed-{kind}-quantized", kind, children(), False), "config-excludes-quantized", "gate_up_proj", "down_proj")
        yield wrong(model(f"experts-listed-{kind}-none", kind, [], True), "config-expects-quantized", "gate_up_proj", "down_proj")
        some = model(f"experts-listed-{kind}-some", kind, children(range(5)), False)
        yield wrong(some, "fused-partly-excluded", "5 of 12 experts")
        gates = model(f"experts-listed-{kind}-gates", kind, children(parts=("gate",)), False)
        yield wrong(gates, "fused-partly-excluded", "gate_proj listed")
