#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small checkpoints in compressed-tensors-VERSION/ with the library of that version.

usage: write_compressed_tensors.py       in an environment of requirements.txt beside this file; for
                                         the older versions with PYTHONPATH, as it says there

Codes, scales' storage, packing and config.json are the library's; decoded.safetensors is what its own
decompression gives. Only the range of each group is taken here, as a calibration would.
"""

import json
import shutil
from pathlib import Path

import compressed_tensors
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.config import SparsityCompressionConfig
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization import apply_quantization_config
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

VERSION = compressed_tensors.__version__
OUT = Path(__file__).parent / f"compressed-tensors-{VERSION}"
EXPERT = "model.layers.0.mlp.experts.0."
GATE, UP, DOWN = EXPERT + "gate_proj", EXPERT + "up_proj", EXPERT + "down_proj"
QUERY, OUTPUT = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj"
IGNORED = ["lm_head", "re:.*mlp[.]gate$"]


class Tree(torch.nn.Module):
    """Modules by dotted names."""

    def put(self, name, module):
        first, _, rest = name.partition(".")
        if not rest:
            setattr(self, first, module)
            return
        if not hasattr(self, first):
            setattr(self, first, Tree())
        getattr(self, first).put(rest, module)


def model_of(name, shapes, dtype):
    seed = torch.Generator().manual_seed(int.from_bytes(name.encode(), "little") % 2**31)
    model = Tree()
    shapes = shapes | {"lm_head": (8, 64), "model.layers.0.mlp.gate": (1, 64)}
    for module, (n, k) in shapes.items():
        kind = torch.nn.Embedding if module.endswith("embed_tokens") else torch.nn.Linear
        made = kind(n, k) if kind is torch.nn.Embedding else kind(k, n, bias=False)
        columns = torch.linspace(-2, 2, k).exp2()  # so that groups differ
        values = torch.randn((n, k), generator=seed) * torch.linspace(-1, 1, n).exp2()[:, None] * columns / 16
        made.weight = torch.nn.Parameter(values.to(dtype), requires_grad=False)
        model.put(module, made)
    return model


def ranges(weight, args, group_of_column):
    """Least and greatest of what shares a scale, in the shape of the scales."""
    n, k = weight.shape
    kind = getattr(args.strategy, "value", args.strategy)
    if kind == "tensor":
        parts = [[weight]]
    elif kind == "block":
        rows, cols = args.block_structure
        parts = [[weight[r : r + rows, c : c + cols] for c in range(0, k, cols)] for r in range(0, n, rows)]
    else:
        groups = group_of_column if kind in ("group", "tensor_group") else torch.zeros(k, dtype=torch.int)
        parts = [[row[groups == g] for g in range(int(groups.max()) + 1)] for row in weight]
    low = torch.stack([torch.stack([part.min() for part in row]) for row in parts])
    high = torch.stack([torch.stack([part.max() for part in row]) for row in parts])
    return (low.reshape(1), high.reshape(1)) if kind == "tensor" else (low, high)


def calibrate(module, beside):
    """beside: the weights that share its second factor, as gate and up do."""
    args = module.quantization_scheme.weights
    weight = module.weight.data
    k = weight.shape[1]
    groups = torch.arange(k, dtype=torch.int) // (args.group_size if args.group_size and args.group_size > 0 else k)
    if hasattr(module, "weight_g_idx"):
        groups = groups[torch.randperm(k, generator=torch.Generator().manual_seed(7))]
        module.weight_g_idx.data = groups
    low, high = ranges(weight, args, groups)
    if hasattr(module, "weight_global_scale"):
        from compressed_tensors.quantization.utils import generate_gparam  # not in the oldest

        module.weight_global_scale.data = generate_gparam(min(one.min() for one in beside), max(one.max() for one in beside))
        scale, zero = calculate_qparams(low, high, args, global_scale=module.weight_global_scale.data)
    else:
        scale, zero = calculate_qparams(low, high, args)
    # As the module keeps them until it is compressed.
    module.weight_scale.data = scale.to(module.weight_scale.dtype)
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype)
    for input_part, value in [("input_scale", 0.03125), ("input_global_scale", 96.0)]:
        if hasattr(module, input_part):
            getattr(module, input_part).data.fill_(value)


def compressor_of(model, config, forced, sparsity, transform):
    if transform is not None:
        return ModelCompressor(quantization_config=config, transform_config=transform)
    more = {} if forced is None else {"quantization_format": forced}
    if sparsity is not None:
        more["sparsity_config" if VERSION.startswith("0.8") else "sparsity_config_or_format"] = sparsity
    return ModelCompressor.from_pretrained_model(model, **more)


def write(name, groups, shapes=None, dtype=torch.bfloat16, forced=None, sparsity=None, transform=None, own_config=False, change=None, decodes=True):
    """groups: config_groups; own_config: the config as given here, not as read back off the model."""
    shapes = shapes or {UP: (32, 64)}
    model = model_of(name, shapes, dtype)
    if change:
        change(model)
    groups = {key: group if isinstance(group, QuantizationScheme) else QuantizationScheme(**group) for key, group in groups.items()}
    config = None
    if groups:
        config = QuantizationConfig(config_groups=groups, ignore=IGNORED)
        apply_quantization_config(model, config)
    schemes = {key: getattr(module, "quantization_scheme", None) for key, module in model.named_modules()}
    quantized = {key: scheme.weights for key, scheme in schemes.items() if scheme is not None}
    for key in quantized:
        fused = {GATE, UP} & set(quantized) if key in (GATE, UP) else {key}
        beside = [model.get_submodule(one).weight.data for one in sorted(fused)]
        calibrate(model.get_submodule(key), beside)
    compressor = compressor_of(model, config, forced, sparsity, transform)
    if own_config:
        compressor.quantization_config.ignore = IGNORED
    folder = OUT / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    by_model = hasattr(compressor, "compress_model")
    if by_model:
        compressor.compress_model(model)
    state = model.state_dict() if by_model else compressor.compress(model)
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, folder / "model.safetensors")
    compressor.update_config(folder)
    if decodes:
        save_file(decoded(compressor, model, folder, quantized), folder / "decoded.safetensors")
    print(name, sorted(str(path.name) + " " + str(path.stat().st_size) for path in folder.iterdir()))


def decoded(compressor, model, folder, quantized):
    """The dense weights of the quantized modules, as the library gives them back."""
    if hasattr(compressor, "compress_model"):
        compressor.decompress_model(model)
        state = model.state_dict()
    else:
        state = dict(compressor.quantization_compressor.decompress(str(folder), names_to_scheme=quantized))
    return {f"{name}.weight": state[f"{name}.weight"].contiguous() for name in quantized}


def group(targets=("Linear",), inputs=None, **weights):
    made = {"targets": list(targets), "weights": QuantizationArgs(**weights)}
    if inputs:
        made["input_activations"] = QuantizationArgs(**inputs)
    return made


def integers(bits=4, **more):
    return {"group_0": group(num_bits=bits, **({"strategy": "group", "group_size": 32} | more))}


def preset(name, targets=("Linear",)):
    return {"group_0": preset_name_to_scheme(name, list(targets))}


TOKENS = {"num_bits": 8, "strategy": "token", "dynamic": True}
PACKED = {"forced": "pack-quantized"}


def half_sparse(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data[:, 1::4] = 0
            module.weight.data[:, 2::4] = 0


def of_0_8():
    """Zero points of a byte each; words hold a whole number of codes."""
    write("int4-group", integers(), **PACKED)
    write("int4-group-f16", integers(), dtype=torch.float16, **PACKED)
    write("int4-asym", integers(symmetric=False), **PACKED)
    write("int8-channel-asym", integers(8, strategy="channel", group_size=None, symmetric=False), **PACKED)
    write("int3-group", integers(3), **PACKED)
    write("int6-asym", integers(6, symmetric=False), **PACKED)
    write("int7-group", integers(7), **PACKED)  # as many words as 8 bits take
    write("int8-tokens", {"group_0": group(num_bits=8, strategy="channel", inputs=TOKENS)}, forced="int-quantized")
    write("fp8-channel", {"group_0": group(num_bits=8, type="float", strategy="channel", inputs=TOKENS | {"type": "float"})}, forced="float-quantized")
    write("fp8-naive", {"group_0": group(num_bits=8, type="float", strategy="tensor")}, forced="naive-quantized")
    write("sparse-bitmask", {}, sparsity="sparse-bitmask", decodes=False, change=half_sparse)
    write("marlin-24", integers(strategy="channel", group_size=None), shapes={UP: (256, 256)}, forced="marlin-24", decodes=False, change=half_sparse)


def of_0_12():
    """Act-order in groups, which later versions no longer write, and the end of the sparse formats."""
    write("int4-asym", integers(symmetric=False), shapes={UP: (36, 64)}, decodes=False)
    write("int4-actorder-group", integers(actorder="group"))
    write("int4-actorder-group-asym", integers(actorder="group", symmetric=False), decodes=False)
    write("int8-actorder-group-asym", integers(8, actorder="group", symmetric=False), dtype=torch.float16, decodes=False)
    write("int3-bytes-asym", integers(3, symmetric=False), shapes={UP: (36, 64)})
    write("int8-bytes-actorder", integers(8, actorder="group"), forced="naive-quantized")
    write("int8-bytes-actorder-asym", integers(8, actorder="group", symmetric=False), forced="naive-quantized")
    write("nvfp4", preset("NVFP4"), shapes={UP: (32, 64)})
    write("fp8-block", {"group_0": group(num_bits=8, type="float", strategy="block", block_structure=[16, 32], inputs={"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True})}, shapes={UP: (48, 64)})
    sparsity = SparsityCompressionConfig.load_from_registry("sparse-24-bitmask", targets=["re:.*up_proj"], sparsity_structure="2:4")
    write("sparse-24-bitmask", preset("FP8_DYNAMIC"), sparsity=sparsity, decodes=False, change=half_sparse)


def of_0_17():
    """The last whose words hold whole codes, of zero points too."""
    for bits in (1, 2, 3, 5, 6, 7):
        write(f"int{bits}-asym", integers(bits, symmetric=False), shapes={UP: (44, 96)})


def of_0_20():
    write("int4-group", integers(), shapes={GATE: (32, 64), UP: (32, 64), DOWN: (64, 32)})
    write("int4-group-f32", integers(), dtype=torch.float32)
    write("int4-asym", integers(symmetric=False), shapes={UP: (36, 64)})
    write("int4-channel", integers(strategy="channel", group_size=None), shapes={UP: (20, 36)})
    write("int4-channel-asym", integers(strategy="channel", group_size=-1, symmetric=False), shapes={UP: (20, 36)})
    write("int4-tensor", integers(strategy="tensor", group_size=None))
    write("int4-actorder-weight", integers(actorder="weight"))
    write("int4-tokens", {"group_0": group(num_bits=4, strategy="group", group_size=32, inputs=TOKENS)}, **PACKED)
    write("int4-of-128", preset("W4A16"), shapes={UP: (8, 256)})
    write("int4-asym-of-128", preset("W4A16_ASYM"), shapes={UP: (16, 256)})
    write("int8-group-asym", integers(8, symmetric=False))
    write("int8-channel", integers(8, strategy="channel", group_size=None))
    for bits in (2, 3, 5, 6, 7):
        write(f"int{bits}-asym", integers(bits, symmetric=False), shapes={UP: (12, 96)})
    write("int8-tokens", preset("W8A8"))
    write("int8-tokens-asym", {"group_0": group(num_bits=8, strategy="channel", symmetric=False, inputs=TOKENS | {"symmetric": False})})
    write("int8-tokens-group", {"group_0": group(num_bits=8, strategy="group", group_size=32, inputs=TOKENS)}, dtype=torch.float32)
    write("int8-static", {"group_0": group(num_bits=8, strategy="tensor", inputs={"num_bits": 8, "strategy": "tensor"})})
    write("int8-naive", integers(8, strategy="channel", group_size=None), forced="naive-quantized")
    write("fp8-static", preset("FP8"))
    write("fp8-dynamic", preset("FP8_DYNAMIC"))
    write("fp8-block", preset("FP8_BLOCK"), shapes={UP: (136, 64)})
    small = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}
    write("fp8-block-ragged", {"group_0": group(**small, inputs={"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True})}, shapes={UP: (40, 80)})
    write("fp8-naive", {"group_0": group(num_bits=8, type="float", strategy="channel")})
    write("nvfp4", preset("NVFP4"), shapes={GATE: (16, 64), UP: (16, 64), DOWN: (64, 16)})
    write("nvfp4a16", preset("NVFP4A16"), dtype=torch.float16)
    write("mxfp4", preset("MXFP4"))
    write("mxfp4a16", preset("MXFP4A16"))
    write("mxfp6a16", preset("MXFP6A16"))
    write("mxfp8", preset("MXFP8"))
    write("mxfp8a16", preset("MXFP8A16"))
    write("embedding", integers(8, strategy="channel", group_size=None, targets=["Linear", "Embedding"]), shapes={UP: (8, 64), "model.embed_tokens": (16, 64)})
    mixed = {
        "group_0": preset("NVFP4", ["re:.*experts.*(gate|up)_proj$"])["group_0"],
        "group_1": preset("FP8_DYNAMIC", ["re:.*self_attn.q.*"])["group_0"],
        "group_3": group([OUTPUT], num_bits=8, strategy="channel"),
        "group_2": group([DOWN], num_bits=4, strategy="group", group_size=32, symmetric=False),
    }
    write("mixed", mixed, shapes={UP: (16, 64), DOWN: (16, 64), QUERY: (16, 64), OUTPUT: (16, 64)})
    write("regex-ignore", integers(), shapes={UP: (16, 64), DOWN: (16, 64)}, own_config=True)
    rotated()


def rotated():
    from compressed_tensors.transform import TransformArgs, TransformConfig, TransformScheme

    inside = TransformScheme(type="hadamard", apply=[TransformArgs(targets=["re:.*up_proj$"], location="weight_input")])
    write("rotated", integers(), transform=TransformConfig(config_groups={"R1": inside}), decodes=False)


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    {"0.8": of_0_8, "0.12": of_0_12, "0.17": of_0_17, "0.20": of_0_20}[VERSION.rpartition(".")[0]]()
