# SPDX-License-Identifier: Apache-2.0
"""Readable matrices with one tensor more beside the codes: nothing may be dropped unsaid."""

from dataclasses import replace

import modelopt_other
import named
import nf3
import numpy as np
import ternary
from case import random

VECTOR = np.full(64, 2, np.float32)
ONE = np.full(1, 2, np.float32)
FACTORS = {name: ONE for name in ("weight_scale_2", "weight_global_scale", "scale", "scales", "weight_scale_inv")}
VECTORS = {
    name: VECTOR for name in ("pre_quant_scale", "weight_zero_point", "qzeros", "g_idx", "weight_g_idx", "meta", "zero")
}


def beside(case, module, suffix, part):
    """`case` with a part that its format does not have."""
    text = f"{suffix} beside"
    return replace(
        case,
        name=f"beside-{case.name}-{suffix}",
        tensors=case.tensors | {f"{module}.{suffix}": part},
        schemes={module: text},
        faults=("module-unreadable",),
    )


def readable():
    bits = {"0": [3, 3, 3]}
    layer = nf3.experts("beside", nf3.modelopt(bits), (3, 3, 3))
    # Beside a second factor the scales are those of NVFP4.
    yield layer, nf3.EXPERT.format(0, 0), FACTORS.keys() - {"weight_scale_2", "weight_global_scale"}
    yield named.nf4("nf4"), named.MODULE, FACTORS.keys()
    yield named.int8("int8"), named.MODULE, FACTORS.keys()
    yield ternary.whole("one", np.float32([0.5])), ternary.MODULE, {"weight_scale_2", "weight_global_scale", "scale"}


def modelopt_factors():
    """A second factor is known of W4A8 alone, and low-rank parts of none of these."""
    rng = random("modelopt companions")
    low_rank = np.ones((4, 64), np.float32)
    for name, made, algorithm, suffix, part in [
        ("int4", modelopt_other.int4(rng), "W4A16_AWQ", "weight_scale_2", ONE),
        ("mxfp4", modelopt_other.mxfp4(rng), "MXFP4", "weight_scale_2", ONE),
        ("int8", modelopt_other.int8(rng), "W8A16", "svdquant_lora_a", low_rank),
    ]:
        case = modelopt_other.one(name, made, "", modelopt_other.block(algorithm))
        yield beside(case, modelopt_other.MODULE, suffix, part)


def cases():
    for case, module, factors in readable():
        for suffix, part in VECTORS.items():
            yield beside(case, module, suffix, part)
        for suffix in sorted(factors):
            yield beside(case, module, suffix, FACTORS[suffix])
    yield from modelopt_factors()
