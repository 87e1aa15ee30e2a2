# SPDX-License-Identifier: Apache-2.0
"""GGUF: one file for each fault of headers, parts and scales, and the same ones without."""

import shutil
from dataclasses import dataclass

import numpy as np
import raw_gguf
from case import random, with_fault
from gguf import GGMLQuantizationType as Type
from gguf_files import DECODED, ENCODED, LATTICE, GgufCase, blocks, moe, nvfp4
from raw_gguf import ARRAY, STRING, U16, U32, RawGguf, u32

FIRST, SECOND = "blk.0.ffn_up.weight", "blk.1.ffn_up.weight"
MUCH = (10**6).to_bytes(8, "little")


def small(name):
    case = RawGguf(name, {}, pairs=[("a.number", U32, u32(7))])
    for tensor in (FIRST, SECOND):
        data, case.values[tensor] = blocks(random(tensor), "Q4_0", (4, 64))
        case.tensors[tensor] = (int(Type.Q4_0), (4, 64), data.tobytes())
    return case


def damage(function):
    return lambda case: setattr(case, "damage", function)


def pair(key, kind, value):
    return lambda case: case.pairs.append((key, kind, value))


def tensor(kind, shape, size, name="blk.2.ffn_up.weight"):
    return lambda case: case.tensors.update({name: (kind, shape, bytes(size))})


HEADER_FAULTS = {
    "magic": damage(lambda raw: b"GGUX" + raw[4:]),
    "version": damage(lambda raw: raw[:4] + u32(4) + raw[8:]),
    "byte-order": damage(lambda raw: raw[:4] + (3).to_bytes(4, "big") + raw[8:]),
    "truncated": pair("a.text", STRING, MUCH),
    "kv-count": lambda c: setattr(c, "more_pairs", 10**9),
    "kv-key": pair("", U32, u32(1)),
    "kv-twice": pair("a.number", U32, u32(8)),
    "kv-type": pair("a.value", 77, u32(1)),
    "kv-array": pair("a.list", ARRAY, u32(ARRAY) + bytes(8)),
    "alignment": pair("general.alignment", U32, u32(48)),
    "tensor-count": lambda c: setattr(c, "more_tensors", 10**9),
    "tensor-name": tensor(0, (4,), 16, "n" * 64),
    "tensor-twice": damage(lambda raw: raw.replace(SECOND.encode(), FIRST.encode())),
    "tensor-dims": tensor(0, (1, 1, 1, 1, 4), 16),
    "overflow": tensor(0, (2**62, 4), 16),
    "tensor-type": tensor(2**31, (4,), 16),
    "tensor-block": tensor(int(Type.Q4_0), (8, 48), 256),
    "offset": lambda c: setattr(c, "shift", 32),
    "data-incomplete": damage(lambda raw: raw[:-64]),
    "trailing-bytes": damage(lambda raw: raw + bytes(64)),
}


def more_headers():
    """The same rules in other ways."""
    for name, rule, apply in [
        ("version-0", "version", damage(lambda raw: raw[:4] + u32(0) + raw[8:])),
        ("list-too-long", "kv-array", pair("a.list", ARRAY, u32(U32) + MUCH)),
        ("alignment-of-another-type", "alignment", pair("general.alignment", U16, b"\x20\0")),
        ("no-dims", "tensor-dims", tensor(0, (), 4)),
        ("empty-dim", "tensor-dims", tensor(0, (0, 4), 0)),
        ("empty-name", "tensor-name", tensor(0, (4,), 16, "")),
        ("not-a-word", "magic", damage(lambda raw: b"")),
    ]:
        case = with_fault(small, "gguf-" + name, rule, apply)
        case.values = {}
        yield case


def either_extent(name):
    """One tensor whose rows and whose file fit both forks' blocks of one type."""
    case = RawGguf(name, {})
    case.tensors["blk.0.ffn_up.weight"], _ = raw_gguf.blocks(random(name), "Q2_0", (1, 128))
    return case


@dataclass
class Parts(GgufCase):
    """A split model of three files; change: called with the folder at the end."""

    change: object = None

    def write(self, folder):
        super().write(folder)
        if self.change:
            self.change(folder)


def parts(name):
    case = moe(name, "Q4_0", split=2)
    return Parts(case.name, case.tensors, schemes=case.schemes, values=case.values, split=2)


def part(folder, number):
    return folder / f"model-{number:05}-of-00002.gguf"


def misnumbered(folder):
    shutil.copy(part(folder, 1), part(folder, 2))


def changed(function):
    def apply(case):
        case.change, case.schemes = function, {}

    return apply


PART_FAULTS = {
    "split-part-missing": changed(lambda folder: part(folder, 2).unlink()),
    "split": changed(misnumbered),
}


def lone_part():
    """One file that says it is one of two."""
    case = small("fault-gguf-split-count")
    case.pairs.append(("split.count", U16, b"\2\0"))
    case.faults = ("split",)
    return case


def no_number(name, kind):
    """The first scale of one block is no number."""
    case = moe(name, kind)
    tensor = "blk.0.ffn_up_exps.weight"
    data = case.tensors[tensor][1].copy()
    raw = data.reshape(-1)
    if kind == "MXFP4":
        raw[0] = 255
    elif kind == "IQ1_M":
        raw[48:56] |= 0xF0  # in the top nibbles
    else:
        at = (DECODED | LATTICE | {"TQ1_0": [52], "TQ2_0": [64]}).get(kind, [0])[-1]
        raw[at : at + 2] = np.array([np.inf], np.float16).view(np.uint8)
    case.tensors[tensor] = (kind, data)
    case.faults = ("scale-nan",)
    return case


def no_number_of_hand_made(name, kind):
    case = raw_gguf.whole(name, kind)
    tensor = "blk.0.ffn_up_exps.weight"
    number, shape, raw = case.tensors[tensor]
    at = 26 if kind == "PTQ1_0" else 0
    bad = np.array([np.nan], np.float32 if kind == "Q8_K" else np.float16).tobytes()
    case.tensors[tensor] = (number, shape, raw[:at] + bad + raw[at + len(bad) :])
    case.faults = ("scale-nan",)
    return case


def erased(case):
    kind, data = case.tensors["blk.0.ffn_up_exps.weight"]
    case.tensors["blk.0.ffn_up_exps.weight"] = (kind, np.zeros_like(data))


def signed(case):
    kind, data = case.tensors["blk.0.ffn_up_exps.weight"]
    data = data.copy()
    data.reshape(-1)[2] |= 0x80
    case.tensors["blk.0.ffn_up_exps.weight"] = (kind, data)


def implausible():
    """Scales and factors that are upside down, or that no f32 holds."""
    for kind, bits in [("Q8_0", np.float16(60000)), ("MXFP4", np.uint8(160)), ("MXFP4", np.uint8(254))]:
        case = moe(f"fault-gguf-scale-direction-{kind.lower()}-{bits}", kind)
        tensor = "blk.0.ffn_up_exps.weight"
        data = case.tensors[tensor][1].copy()
        raw = np.array([bits]).view(np.uint8)
        data.reshape(-1)[: len(raw)] = raw
        case.tensors[tensor] = (kind, data)
        case.faults = ("scale-direction",)
        yield case
    for factor in [20480, 1e38]:
        case = nvfp4(f"fault-gguf-factor-direction-{factor:g}", [1, factor])
        case.values, case.faults = {}, ("global-scale-direction",)
        yield case


def read_as_zero(case):
    """The byte that is NaN in e4m3."""
    case.tensors["blk.0.ffn_up_exps.weight"][1].reshape(-1)[0] = 0x7F
    case.values = {}


def last_exponent():
    """2^127 times codes of 1 is a number that f32 holds, times a code of 6 it is none."""
    for name, code, rules in [("of-ones", 2, ("scale-direction",)), ("of-sixes", 7, ("scale-direction",))]:
        case = moe(f"fault-gguf-last-exponent-{name}", "MXFP4")
        tensor = "blk.0.ffn_up_exps.weight"
        data = case.tensors[tensor][1].copy()
        block = data.reshape(-1)[:17]
        block[0], block[1:] = 254, code * 0x11
        case.tensors[tensor] = ("MXFP4", data)
        case.values, case.faults, case.refused = {}, rules, code == 7
        yield case


def scales():
    yield from implausible()
    for kind in [*ENCODED[3:], *DECODED, *LATTICE]:
        yield no_number(f"fault-gguf-scale-nan-{kind.lower()}", kind)
    for kind in raw_gguf.TYPES:
        yield no_number_of_hand_made(f"fault-gguf-scale-nan-{kind.lower().replace(' ', '-')}", kind)
    yield with_fault(lambda name: moe(name, "Q4_0"), "gguf", "scale-zero", erased)
    yield with_fault(lambda name: nvfp4(name, [1, 2]), "gguf", "scale-negative", signed)
    yield with_fault(lambda name: nvfp4(name, [1, 2]), "gguf-0x7f", "scale-zero", read_as_zero)
    yield from last_exponent()
    alone = with_fault(lambda name: nvfp4(name, [1, 1]), "gguf", "gguf-factor-missing", lambda c: None, ("gguf-factor-missing",))
    del alone.tensors["blk.0.ffn_up_exps.scale"]
    yield alone
    for suffix in ["scale", "weight.scale"]:
        case = moe(f"fault-gguf-{suffix}-beside-plain", "Q4_0")
        case.tensors[f"blk.0.ffn_gate_inp.{suffix}"] = ("F32", np.ones(1, np.float32))
        case.schemes, case.faults = {}, ("module-unreadable",)
        yield case


def cases():
    yield small("no-fault-gguf")
    for rule, apply in HEADER_FAULTS.items():
        yield with_fault(small, "gguf", rule, apply)
    yield from more_headers()
    yield with_fault(either_extent, "gguf", "gguf-type-ambiguous", lambda c: None)
    yield parts("no-fault-gguf-parts")
    for rule, apply in PART_FAULTS.items():
        yield with_fault(parts, "gguf-parts", rule, apply)
    yield lone_part()
    yield from scales()
