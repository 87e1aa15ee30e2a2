# SPDX-License-Identifier: Apache-2.0
"""GGUF: blocks of every type, made and decoded by the reference gguf package."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import raw_gguf
from case import Case, random
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

ENCODED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]
# Decoded by the package, not encoded: random blocks whose f16 scales at these bytes are made finite.
DECODED = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
LATTICE = {"IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": []}
ARCHITECTURE = "qwen3moe"


@dataclass
class GgufCase(Case):
    """tensors: name -> (type, bytes [..., row bytes])."""

    pairs: dict = field(default_factory=dict)
    split: int = 0  # most tensors of one file; 0: one file
    architecture: str = ARCHITECTURE

    def write(self, folder):
        folder.mkdir(parents=True)
        writer = GGUFWriter(folder / "model.gguf", self.architecture, split_max_tensors=self.split)
        for key, value in self.pairs.items():
            if isinstance(value, list):
                writer.add_array(key, value)
            else:
                writer.add_uint32(key, value)
        for name, (kind, data) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=Type[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def blocks(rng, kind, shape):
    """Bytes of a tensor and its values."""
    if kind in ENCODED:
        data = quants.quantize(rng.standard_normal(shape).astype(np.float32), Type[kind])
    else:
        elements, size = GGML_QUANT_SIZES[Type[kind]]
        data = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=np.uint8)
        if kind == "IQ1_M":
            data[..., 55] = data[..., 55] & 0x0F | 0x30  # the top of its f16: positive, about 0.1
        for at in (DECODED | LATTICE).get(kind, []):
            scales = (0.1 * rng.standard_normal(data.shape[:-1])).astype(np.float16)
            data[..., at : at + 2] = scales.view(np.uint8).reshape(*data.shape[:-1], 2)
        data = data.reshape(*shape[:-1], -1)
    return data, quants.dequantize(data, Type[kind]).astype(np.float64)


def moe(name, kind, **options):
    """A layer with two stacked experts of one type."""
    rng = random(name)
    case = GgufCase(name, {}, **options)
    for tensor, shape in [("ffn_gate_exps", (2, 8, 256)), ("ffn_up_exps", (2, 8, 256)), ("ffn_down_exps", (2, 16, 256))]:
        full = f"blk.0.{tensor}.weight"
        data, values = blocks(rng, kind, shape)
        case.tensors[full] = (kind, data)
        case.values[full] = values
        case.schemes[f"blk.0.{tensor}"] = kind.lower() if kind in ENCODED[:3] else kind
    data, case.values["blk.0.ffn_gate_inp.weight"] = blocks(rng, "F32", (2, 256))
    case.tensors["blk.0.ffn_gate_inp.weight"] = ("F32", data)
    return case


def names_of_experts():
    """Gate and up in one tensor, and each expert in tensors of its own."""
    for name, shapes in [
        ("gate-up", {"ffn_gate_up_exps": (2, 16, 256), "ffn_down_exps": (2, 16, 256)}),
        ("each", {f"ffn_{part}.{expert}": (8, 256) for expert in (0, 1) for part in ("gate", "up", "down")}),
    ]:
        case = GgufCase(f"gguf-experts-{name}", {})
        rng = random(case.name)
        for tensor, shape in shapes.items():
            data, case.values[f"blk.0.{tensor}.weight"] = blocks(rng, "Q5_K", shape)
            case.tensors[f"blk.0.{tensor}.weight"] = ("Q5_K", data)
            case.schemes[f"blk.0.{tensor}"] = "GGUF Q5_K"
        yield case


def attention_heads(kind, rank=3):
    """MLA's attn_k_b and attn_v_b: a matrix of blocks for each head, decoded and kept in its shape."""
    case = moe(f"gguf-heads-{kind.lower()}-{rank}", "Q8_0")
    rng = random(case.name)
    for tensor, shape in [("attn_k_b", (4, 16, 32)), ("attn_v_b", (4, 8, 64))]:
        name = f"blk.0.{tensor}.weight"
        shape = (2, 2, *shape[1:]) if rank == 4 else shape
        data, case.values[name] = blocks(rng, kind, shape)
        case.tensors[name] = (kind, data)
        case.schemes[f"blk.0.{tensor}"] = f"GGUF {kind}"
        case.values[name] = case.values[name].reshape(4, *shape[-2:])
    return case


def blocks_of_a_vector():
    case = moe("fault-gguf-blocks-of-a-vector", "Q8_0")
    data, _ = blocks(random(case.name), "Q8_0", (1, 64))
    case.tensors["blk.0.attn_norm.weight"] = ("Q8_0", data[0])
    case.faults = ("module-unreadable",)
    return case


def beside_a_model(name, architecture):
    """Another GGUF file in the folder."""
    case = moe(name, "Q8_0")
    other = GgufCase("other", {"v.patch_embd.weight": ("F32", np.ones((4, 4), np.float32))}, architecture=architecture)
    write = case.write

    def write_both(folder):
        write(folder)
        other.write(folder / "other")
        (folder / "other" / "model.gguf").rename(folder / "mmproj-F16.gguf")
        (folder / "other").rmdir()

    case.write = write_both
    return case


def companions():
    case = beside_a_model("gguf-with-projector", "clip")
    case.notes = ("extra-file",)
    yield case
    two = beside_a_model("fault-gguf-two-models", "llama")
    two.schemes, two.faults = {}, ("2 GGUF models",)
    yield two


def every_vector(kind):
    """So many random codes that hardly one of at most 2048 vectors is missing."""
    name = f"gguf-{kind.lower()}-every-vector"
    case = GgufCase(name, {})
    data, values = blocks(random(name), kind, (1024, 256))
    case.tensors["blk.0.ffn_up.weight"] = (kind, data)
    case.values["blk.0.ffn_up.weight"] = values
    return case


def nvfp4(name, factors):
    """Each expert's factor is a tensor of its own, and applies to all of the expert."""
    rng = random(name)
    case = GgufCase(name, {})
    data = rng.integers(0, 256, (2, 8, 144), dtype=np.uint8)  # 4 blocks of 36 bytes a row
    scales = data.reshape(2, 8, 4, 36)[..., :4]
    scales[...] = rng.integers(0x20, 0x50, scales.shape)
    values = quants.dequantize(data, Type.NVFP4).astype(np.float64)
    case.tensors["blk.0.ffn_up_exps.weight"] = ("NVFP4", data)
    case.tensors["blk.0.ffn_up_exps.scale"] = ("F32", np.array(factors, np.float32))
    with np.errstate(invalid="ignore"):
        wide = np.array(factors, np.float32).astype(np.float64)[:, None, None]
        case.values["blk.0.ffn_up_exps.weight"] = values * wide
    case.schemes["blk.0.ffn_up_exps"] = "GGUF NVFP4"
    return case


PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
INTEGERS = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64}


def plain_types():
    """Beside blocks, numbers of every type stay what they are."""
    case = moe("gguf-plain-types", "Q8_0")
    rng = random(case.name)
    for kind, dtype in PLAIN.items():
        experts = [("ffn_gate_exps", (2, 8, 16)), ("ffn_up_exps", (2, 8, 16)), ("ffn_down_exps", (2, 16, 8))]
        for tensor, shape in [("attn_output", (8, 16)), *experts, ("attn_norm", (8,))]:
            name = f"blk.{1 + list(PLAIN).index(kind)}.{tensor}.weight"
            array = rng.standard_normal(shape).astype(dtype)
            raw = array if kind != "BF16" else array.view(np.uint8)
            case.tensors[name], case.values[name] = (kind, raw), array.astype(np.float64)
            case.schemes[name.removesuffix(".weight")] = kind.lower()
    for kind, name in [("I32", "blk.0.ffn_gate_tid2eid.weight"), ("I64", "blk.0.rows.weight")]:
        array = rng.integers(-100, 100, (3, 4)).astype(INTEGERS[kind])
        case.tensors[name], case.values[name] = (kind, array), array.astype(np.float64)
    return case


def integers():
    """Numbers of every type as a layer's tensors: read for what they are."""
    case = moe("gguf-integers", "Q8_0")
    case.values = {}
    for kind, dtype in INTEGERS.items():
        case.tensors[f"blk.0.some_{kind.lower()}.weight"] = (kind, np.ones((3, 4), dtype))
        case.schemes[f"blk.0.some_{kind.lower()}"] = kind.lower()
    return case


def doubles():
    """Numbers of 64 bits are named and refused, as in every file."""
    case = moe("gguf-fault-f64", "Q8_0")
    case.tensors["blk.0.attn_output.weight"] = ("F64", np.ones((8, 16)))
    case.schemes["blk.0.attn_output"] = "f64"
    case.faults = ("tensor-dtype",)
    return case


def versions():
    """The same tensors in files of every version, and with another alignment."""
    for version, alignment in [(1, 32), (2, 32), (3, 32), (3, 128)]:
        name = f"gguf-v{version}-aligned-to-{alignment}"
        rng = random(name)
        case = raw_gguf.RawGguf(name, {}, version=version, alignment=alignment)
        case.pairs = [("a.text", raw_gguf.STRING, "text"), ("a.number", raw_gguf.U16, b"\7\0")]
        strings = case.length(2) + case.string("a") + case.string("")
        case.pairs.append(("a.list", raw_gguf.ARRAY, raw_gguf.u32(raw_gguf.STRING) + strings))
        if alignment != 32:
            case.pairs.append(("general.alignment", raw_gguf.U32, raw_gguf.u32(alignment)))
        for kind, shape in [("Q4_K", (3, 256)), ("F32", (5,)), ("Q5_1", (2, 3, 32)), ("F16", (3, 7))]:
            tensor = f"blk.0.{'ffn_up_exps' if len(shape) == 3 else 'part_' + kind.lower()}.weight"
            data, case.values[tensor] = blocks(rng, kind, shape)
            case.tensors[tensor] = (int(Type[kind]), shape, data.tobytes())
        yield case


def named_types():
    """Types without a known layout are skipped by the offsets, named, and refused; so are those of
    a fork under the number of another type."""
    for number, text in [(4, "Q4_2 (removed)"), (36, "IQ4_NL_4_4 (removed)"), (200, "type 200"), (40, "Q1_0 (32)")]:
        case = raw_gguf.RawGguf(f"gguf-named-type-{number}", {}, faults=("module-unreadable",))
        size = 6 if number == 40 else 9
        case.tensors["blk.0.ffn_up.weight"] = (number, (64, 64), bytes(64 * 2 * size))
        data, _ = blocks(random("named"), "Q8_0", (8, 64))
        case.tensors["blk.0.ffn_down.weight"] = (int(Type.Q8_0), (8, 64), data.tobytes())
        case.schemes = {"blk.0.ffn_up": text, "blk.0.ffn_down": "GGUF Q8_0"}
        yield case


def cases():
    for kind in [*ENCODED[3:], *DECODED, *LATTICE]:
        yield moe(f"gguf-{kind.lower()}", kind)
    for kind in LATTICE:
        yield every_vector(kind)
    for kind in raw_gguf.TYPES:
        yield raw_gguf.whole(f"gguf-{kind.lower().replace(' ', '-')}", kind)
    yield from names_of_experts()
    for kind in ["Q8_0", "Q4_0", "MXFP4"]:
        yield attention_heads(kind)
    yield attention_heads("Q8_0", 4)
    yield blocks_of_a_vector()
    yield from companions()
    yield plain_types()
    yield integers()
    yield doubles()
    yield from versions()
    yield from named_types()
    yield moe("gguf-split", "Q4_K", split=2)
    yield moe("gguf-split-each", "Q6_K", split=1)
    yield nvfp4("gguf-nvfp4", [0.5, 3])
    outer = moe("gguf-outer", "Q8_0")
    for name in ("token_embd.weight", "output.weight"):
        data, outer.values[name] = blocks(random(name), "Q8_0", (48, 256))
        outer.tensors[name] = ("Q8_0", data)
    outer.absent = ("embedding-quantized",)
    yield outer
    factor_count = nvfp4("gguf-nvfp4-three-factors-for-two-experts", [1, 2])
    factor_count.tensors["blk.0.ffn_up_exps.scale"] = ("F32", np.ones(3, np.float32))
    factor_count.values, factor_count.faults = {}, ("scale-shape",)
    yield factor_count
    for name, factor, rule in [
        ("nan", np.nan, "scale-nan"),
        ("infinite", np.inf, "scale-nan"),
        ("zero", 0, "scale-zero"),
        ("negative", -1, "scale-negative"),
    ]:
        case = nvfp4(f"gguf-fault-factor-{name}", [factor, 2])
        case.values, case.faults = {}, (rule,)
        yield case
    for suffix in ["weight_scale", "weight_scale_2", "scales", "weight.scale"]:
        case = nvfp4(f"gguf-fault-factor-named-{suffix}", [1, 2])
        case.tensors[f"blk.0.ffn_up_exps.{suffix}"] = ("F32", np.ones(2, np.float32))
        case.values, case.schemes, case.faults = {}, {}, ("module-unreadable",)
        yield case
