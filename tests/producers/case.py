# SPDX-License-Identifier: Apache-2.0
"""One small checkpoint: what is stored, what fewbit must say of it, and the values it must give."""

import copy
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import ml_dtypes
import numpy as np

# Names in the header of the numpy types; codes in other types are given as (name, array of bytes).
DTYPES = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.uint8): "U8",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint16): "U16",
    np.dtype(np.int16): "I16",
    np.dtype(np.uint32): "U32",
    np.dtype(np.int32): "I32",
    np.dtype(np.uint64): "U64",
    np.dtype(np.int64): "I64",
    np.dtype(np.float16): "F16",
    np.dtype(np.float32): "F32",
    np.dtype(np.float64): "F64",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
    np.dtype(ml_dtypes.float8_e5m2): "F8_E5M2",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "F8_E4M3FNUZ",
    np.dtype(ml_dtypes.float8_e5m2fnuz): "F8_E5M2FNUZ",
    np.dtype(ml_dtypes.float8_e8m0fnu): "F8_E8M0",
}


@dataclass
class Case:
    """Tensors and configs of a checkpoint, and what must hold.

    schemes: for modules by name, a piece of the text that identifies their scheme.
    values: for tensors of the decoded checkpoint by name, the values in float64.
    magnitudes: sums of |terms| where the values are sums that may cancel; default |values|.
    faults: rules of findings (or of the error) that the checkpoint must give; without any, it must
    give no finding above info and no error.
    """

    name: str
    tensors: dict
    config: dict = field(default_factory=dict)  # config.json
    files: dict = field(default_factory=dict)  # other JSON files, by name
    schemes: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    magnitudes: dict = field(default_factory=dict)
    faults: tuple = ()
    warnings: tuple = ()  # rules that may be there beside
    said: tuple = ()  # pieces of text that findings, or the error, must have
    notes: tuple = ()  # rules of level info that must be there
    absent: tuple = ()  # rules that no finding may have
    refused: bool = False  # by convert, whatever the level of the faults
    contradictions: tuple = ()  # found while it was made: where values differ from another source
    depth: str = "--weights"  # or "--headers-only": how far check reads
    named: str = ""  # the one file of the folder that check is called on, without convert
    lossless_nvfp4: bool = False  # plain weights, to be quantized to NVFP4 before they are decoded

    def write(self, folder: Path):
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", self.tensors)
        (folder / "config.json").write_text(json.dumps(self.config, indent=1))
        for name, content in self.files.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=1)
            (folder / name).write_text(text)


def with_fault(make, base, rule, apply, informs=()):
    """What `make` makes, changed by `apply`; rules in `informs` are of level info."""
    case = copy.deepcopy(make(f"fault-{base}-{rule.strip()}"))
    apply(case)
    return replace(case, notes=(rule,)) if rule in informs else replace(case, faults=(rule,))


def write_safetensors(path, tensors):
    header, data = {}, bytearray()
    for name, array in tensors.items():
        array = np.asarray(array)  # keeps the shape [] of a scalar
        raw = array.tobytes()
        header[name] = {
            "dtype": DTYPES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def bf16(array):
    return np.asarray(array).astype(ml_dtypes.bfloat16)


def e4m3(array):
    return np.asarray(array).astype(ml_dtypes.float8_e4m3fn)


def random(name):
    """A generator that depends on the case's name alone."""
    return np.random.default_rng(list(name.encode()))


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def pack_nibbles(codes):
    """[..., k] codes to [..., k / 2] bytes, the lower column in the low nibble."""
    codes = np.asarray(codes, np.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def spread(scales, rows, cols, shape):
    """[ceil(n/rows), ceil(k/cols)] to [n, k]; 0 = all of that axis."""
    n, k = shape[-2:]
    full = np.repeat(np.repeat(scales, rows or n, axis=-2), cols or k, axis=-1)
    return full[..., :n, :k]
