# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that the compressed-tensors library itself wrote, of the versions that the folders in
data/ name (write_compressed_tensors.py there makes them). The values are computed here from the
stored parts and the config, and must agree with what the library decompressed."""

import json
import re
import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from case import DTYPES, E2M1, Case
from safetensors import deserialize
from words import unpack_stream

DATA = Path(__file__).parent / "data"
# What the library decompresses is rounded to the dtype of the scales, at most twice.
ROUNDED = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-22}
# Formats that are named and refused.
REFUSED = {
    "sparse-bitmask": 'sparsity format "sparse-bitmask"',
    "sparse-24-bitmask": 'sparsity format "sparse-24-bitmask"',
    "marlin-24": 'sparsity format "marlin-24"',
    "mxfp6-pack-quantized": "mxfp6-pack-quantized",
    "rotated": "transform_config",
}


@dataclass
class Stored(Case):
    """The library's own files; tensors and config are there for `bases`."""

    source: Path = None

    def write(self, folder):
        folder.mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(self.source / name, folder / name)


def load(file):
    """safetensors.numpy knows no floats of 8 bits."""
    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    parts = deserialize(file.read_bytes())
    return {name: np.frombuffer(part["data"], dtypes[part["dtype"]]).reshape(part["shape"]) for name, part in parts}


def codes_of(parts, args, whole):
    """[n, k] codes; `whole`: no code crosses from one word into the next."""
    if "weight" in parts:
        return parts["weight"].astype(np.float64)
    packed = parts["weight_packed"]
    if args["type"] == "float":
        return E2M1[np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)]
    bits = args["num_bits"]
    return (unpack_stream(packed, bits, parts["weight_shape"][1], whole) - 2.0 ** (bits - 1)).astype(np.float64)


def scales_of(parts):
    scale = parts["weight_scale"]
    if scale.dtype == np.uint8:
        return np.exp2(scale.astype(np.float64) - 127)
    return scale.astype(np.float64) / parts.get("weight_global_scale", np.ones(1)).astype(np.float64)


def zeros_of(parts, args, rows, whole):
    zeros = parts.get("weight_zero_point", np.zeros(1))
    if zeros.dtype != np.int32:
        return zeros.astype(np.float64)
    bits = args["num_bits"]
    return (unpack_stream(zeros.T, bits, rows, whole) - 2.0 ** (bits - 1)).T


def values_of(parts, args, whole):
    codes, scales = codes_of(parts, args, whole), scales_of(parts)
    n, k = codes.shape
    row, column = np.arange(n), np.zeros(k, int)
    if args["strategy"] in ("group", "tensor_group"):
        column = parts.get("weight_g_idx", np.arange(k) // args["group_size"])
    elif args["strategy"] == "block":
        rows, columns = args["block_structure"]
        row, column = row // rows, np.arange(k) // columns
    elif args["strategy"] == "tensor":
        row, scales = row * 0, scales.reshape(1, 1)
    zeros = np.broadcast_to(zeros_of(parts, args, n, whole), scales.shape)
    at = np.ix_(row, column)
    return (codes - zeros[at]) * scales[at]


def scheme_of(args, stored):
    mx = args["group_size"] == 32 and args.get("scale_dtype") == "torch.uint8"
    bits = 8 if stored == np.int8 else args["num_bits"]
    if args["type"] == "float":
        return f"compressed-tensors {'MXFP' if mx else 'NVFP' if bits == 4 else 'FP'}{bits}"
    return f"compressed-tensors INT{bits}"


def args_of(block, module):
    """Of the group with a target that fits; the checkpoints here have no two."""
    for group in block["config_groups"].values():
        for target in group["targets"]:
            if target in ("Linear", "Embedding", module) or (target[:3] == "re:" and re.match(target[3:], module)):
                return group["weights"]
    raise ValueError(f"no group for {module}")


def contradictions(values, folder):
    file = folder / "decoded.safetensors"
    for name, theirs in load(file).items() if file.exists() else ():
        bound = ROUNDED[theirs.dtype.name] * np.abs(values[name])
        wrong = ~(np.abs(theirs.astype(np.float64) - values[name]) <= bound)
        if wrong.any():
            yield f"{name}: the library decodes {wrong.sum()} of {wrong.size} values otherwise"


def case_of(folder):
    version = folder.parent.name.rpartition("-")[2]
    config = json.loads((folder / "config.json").read_text())
    block, tensors = config["quantization_config"], load(folder / "model.safetensors")
    case = Stored(f"ct-library-{version}-{folder.name}", tensors, config, source=folder)
    refusal = REFUSED.get(folder.name) or REFUSED.get(block.get("format"))
    if refusal:
        case.faults, case.said, case.refused = ("module-unreadable",), (refusal,), True
        return case
    whole = int(version.split(".")[1]) < 18
    modules = {}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        modules.setdefault(module, {})[part] = tensor
    for module, parts in modules.items():
        if "weight_scale" in parts:
            args = args_of(block, module)
            case.values[f"{module}.weight"] = values_of(parts, args, whole)
            case.schemes[module] = scheme_of(args, parts.get("weight", parts.get("weight_packed")).dtype)
        else:
            case.values[f"{module}.weight"] = parts["weight"].astype(np.float64)
    case.contradictions = tuple(contradictions(case.values, folder))
    return case


def cases():
    for folder in sorted(DATA.glob("compressed-tensors-*/*")):
        yield case_of(folder)


def bases():
    """The readable ones, to be written with changes."""
    for case in cases():
        if not case.faults:
            yield Case(**{part.name: getattr(case, part.name) for part in fields(Case)})
