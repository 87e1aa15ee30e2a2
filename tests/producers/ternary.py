# SPDX-License-Identifier: Apache-2.0
"""BitNet: four rows a byte, codes 0 to 2 less one, divided by the scale."""

import numpy as np
from case import Case, bf16, random

MODULE = "model.layers.0.mlp.up_proj"


def config(**extra):
    return {"quantization_config": {"quant_method": "bitnet", **extra}}


def whole(name, scale, config=config(), n=24, k=30, text="ternary INT2 (u2, f32 scale a tensor", **rest):
    codes = random(name).integers(0, 3, (n, k))
    quarters = codes.reshape(4, n // 4, k)
    packed = sum(quarters[q] << (2 * q) for q in range(4)).astype(np.uint8)
    tensors = {f"{MODULE}.weight": packed, f"{MODULE}.weight_scale": scale, "model.norm.weight": bf16(np.ones(8))}
    values = {f"{MODULE}.weight": (codes - 1) / np.asarray(scale).astype(np.float64).reshape(())}
    return Case("ternary-" + name, tensors, config, schemes={MODULE: text}, values=values, **rest)


def cases():
    yield whole("bitnet", bf16([2.5]))
    yield whole("bitnet-f32", np.float32(0.3), config(linear_class="bitlinear"))
    fault = {"faults": ("module-unreadable",)}
    yield whole("fault-class", bf16([2.5]), config(linear_class="autobitlinear"), text="whether its scale divides", **fault)
    yield two_scales()
    plain = Case("ternary-fault-online", {f"{MODULE}.weight": bf16(np.ones((8, 8)))}, config(), faults=("module-unreadable",))
    plain.schemes = {MODULE: "made ternary while loading"}
    yield plain


def two_scales():
    case = whole("fault-scales", bf16([2.5]), faults=("module-unreadable",), text="weight_scale is bf16 [2]")
    case.tensors[f"{MODULE}.weight_scale"] = bf16([2.5, 2.5])
    return case
