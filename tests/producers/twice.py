# SPDX-License-Identifier: Apache-2.0
"""Codes with a plain weight of the same module beside them, of every reader."""

from dataclasses import replace

import awq
import compressed_matrices
import compressed_tensors
import compressed_tensors_library
import fp8
import fp8_experts
import fp8_faults
import gptq
import modelopt_nvfp4
import modelopt_other
import mxfp4
import named
import nf3
import numpy as np
import quark
import ternary
from case import bf16

CODES = ("weight_packed", "qweight", "weight", "_blocks", "_packed")


def twice(case):
    """The first matrix of codes, and bf16 values of its module under the name that is free."""
    codes = next(name for name, part in case.tensors.items() if is_codes(name, part))
    suffix = next((suffix for suffix in CODES if codes.endswith(suffix)), "")
    module = codes[: len(codes) - len(suffix)].rstrip(".")
    plain = module if codes.endswith(".weight") else module + ".weight"
    shape = next((v.shape for name, v in case.values.items() if name.startswith(module)), (8, 8))
    tensors = case.tensors | {plain: bf16(np.full(shape, 3))}
    return replace(case, name="twice-" + case.name, tensors=tensors, schemes={}, notes=(), faults=("matrix-twice",))


def is_codes(name, part):
    kind = np.asarray(part).dtype
    codes = kind in (np.uint8, np.int8, np.int32, np.int16) or kind.name.startswith("float8_e4m3")
    return codes and np.ndim(part) > 1 and not name.endswith(("scale", "scales", "qzeros", "zero_point", "scale_inv"))


def cases():
    seen = set()
    modules = [awq, compressed_matrices, compressed_tensors, compressed_tensors_library, fp8, fp8_faults, fp8_experts]
    for module in [*modules, gptq, modelopt_nvfp4, modelopt_other, mxfp4, named, nf3, quark, ternary]:
        for case in getattr(module, "bases", getattr(module, "cases", tuple))():
            codes = next((name for name, part in case.tensors.items() if is_codes(name, part)), "")
            kind = (next(iter(case.schemes.values()), "").split(" (")[0], codes.split(".")[-1])
            if case.faults or not case.values or not codes or kind in seen:
                continue
            seen.add(kind)
            yield twice(case)
