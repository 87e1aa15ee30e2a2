# SPDX-License-Identifier: Apache-2.0
"""Scales of fused 16-bit experts under names that nothing applies: they are told all the same."""

import copy

import gguf_files
import numpy as np
from case import Case, bf16

EXPERTS = "model.layers.0.mlp.experts."
SCALE = np.full((2, 64, 1), 0.5, np.float32)


def beside(weight, scale, rule="scale-unread"):
    tensors = {weight: bf16(np.full((2, 64, 32), 0.5)), scale: SCALE, "model.norm.weight": bf16(np.ones(8))}
    name = f"stray-{weight.removeprefix(EXPERTS)}-{scale.removeprefix(EXPERTS)}"
    return Case(name, tensors, {"model_type": "foo", "hidden_size": 32}, faults=(rule,))


def cases():
    for weight, scale in [
        ("w13_weight", "w13_weight_scale"),
        ("w13_weight", "w13_scale"),
        ("w13_weight", "w13_weight_scale_inv"),
        ("w13", "w13_weight_scale"),
        ("w13", "w13_absmax"),
        ("gate_up_proj", "gate_up_scale"),
        ("gate_up_proj", "weight_scale_3"),
        ("gate_up_proj", "dequant_scale"),
        ("experts_w13", "experts_w13_scale"),
    ]:
        yield beside(EXPERTS + weight, EXPERTS + scale)
    yield beside(EXPERTS + "gate_up_proj", EXPERTS + "scale", "scale-without-weight")
    yield beside(EXPERTS + "gate_up_proj", "weight_scale")
    yield beside(EXPERTS + "gate_up_proj", "model.norm.weight_scale_3")
    yield gguf()


def gguf():
    case = copy.deepcopy(next(case for case in gguf_files.cases() if case.name == "gguf-nvfp4"))
    case.name = "stray-gguf-factor"
    case.tensors["ffn_up_exps.scale"] = ("F32", np.ones(2, np.float32))
    case.faults = ("scale-without-weight",)
    return case
