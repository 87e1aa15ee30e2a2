#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds for the fuzz targets that need many: the small checkpoints of every producer, safetensors
and GGUF, tokenizers with every component, and the patterns of known tokenizers.

usage: make_seeds.py PRODUCERS_FOLDER OUT_FOLDER
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

# As in fuzz_checkpoint.cpp.
JSON_NAMES = [
    "config.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "params.json",
    "adapter_config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "consolidated.safetensors.index.json",
    "quantization.json",
    "inc_config.json",
    "qconfig.json",
]
LARGEST = 12288  # -max_len of these targets: libFuzzer cuts longer seeds
MOST_DATA = 1024  # bytes that fill the tensors
PATTERNS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"(a+)+$",
    r"\p{Han}|[\u4e00-\u9fa5]+|(?<=x)y{2,}",
]
TEXT = "It's 12 o'clock,\n\n \u00c5ngstr\u00f6m  e\u0301 aaaaaaaaaaaaaaaaaaaaaaaa! \u4e2d\u6587 xyy"


def byte_alphabet():
    """The printable stand-ins of the 256 bytes in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def tokenizers():
    alphabet = byte_alphabet()
    vocab = {token: id for id, token in enumerate(alphabet)}
    merges = [["h", "e"], ["l", "l"], ["\u0120", "w"]]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}
        for pattern, behavior in zip(PATTERNS, ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Isolated"])
    ]
    sequences = [byte_level] + [
        {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]} for split in splits
    ]
    for number, pre_tokenizer in enumerate(sequences):
        yield {
            "version": "1.0",
            "added_tokens": [
                {"id": len(vocab), "content": "<s>", "special": True, "normalized": number % 2 == 0},
            ],
            "normalizer": {"type": "NFC"} if number % 2 else None,
            "pre_tokenizer": pre_tokenizer,
            "decoder": byte_level,
            "post_processor": byte_level,
            "model": {
                "type": "BPE",
                "vocab": vocab,
                "merges": merges if number % 2 else [" ".join(pair) for pair in merges],
                "ignore_merges": number == 2,
            },
        }


def header_lines(file):
    """The entries of a safetensors header, and the first bytes of every tensor."""
    raw = file.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    lines, data = [], b""
    for name, entry in json.loads(raw[8:end]).items():
        if name == "__metadata__":
            lines.append(f"{name} {json.dumps(entry)}")
            continue
        lines.append(f"{name} {entry['dtype']} {','.join(map(str, entry['shape']))}")
        begin, stop = entry["data_offsets"]
        data += raw[end + begin : end + min(begin + 64, stop)]
    return lines, data


def checkpoint_seed(folder):
    """Of the files as they were written; those of fuzz_checkpoint have names of their own."""
    shards = sorted(folder.glob("*.safetensors"))
    count = len(shards)
    names = {file.name: f"model-{i + 1:05}-of-{count:05}.safetensors" for i, file in enumerate(shards)}
    parts = []
    for number, name in enumerate(JSON_NAMES):
        if (folder / name).exists():
            text = (folder / name).read_text()
            for old, new in names.items():
                text = text.replace(f'"{old}"', f'"{new}"')
            parts.append(f"{number}{text}".encode())
    lines, data = [], b""
    for file in shards:
        more, first = header_lines(file)
        lines += ["-"] * (file != shards[0]) + more
        data += first
    return b"\0".join([*parts, b"", "\n".join(lines).encode(), data[:MOST_DATA]])


def pair_line(key, value):
    if isinstance(value, list):
        return f"{key} a5 {','.join(map(str, value))}"
    return f"{key} 8 {value}" if isinstance(value, str) else f"{key} 4 {value}"


def raw_pair_line(key, kind, value):
    return pair_line(key, value if isinstance(value, str) else int.from_bytes(value[:4], "little"))


def tensor_line(name, kind, shape, size):
    return f"{name} {kind} {','.join(map(str, shape))} {size}"


def gguf_seed(case, block_sizes):
    """A GgufCase: bytes of rows by the name of the type, one pair a key."""
    pairs = [pair_line("general.architecture", case.architecture)]
    pairs += [pair_line(key, value) for key, value in case.pairs.items()]
    lines, data = [], b""
    for number, (name, (kind, array)) in enumerate(case.tensors.items()):
        type_number, elements, size = block_sizes[kind]
        array = np.asarray(array)
        row = array.shape[-1] * array.itemsize // size * elements
        if case.split and number and number % case.split == 0:
            lines.append("-")
        lines.append(tensor_line(name, type_number, (*array.shape[:-1], row), array.nbytes))
        data += array.tobytes()[:256]
    return "\n".join(pairs).encode() + b"\0" + "\n".join(lines).encode() + b"\0" + data[:MOST_DATA]


def raw_gguf_seed(case):
    """A RawGguf: bytes by the number of the type, pairs as bytes."""
    pairs = [pair_line("general.architecture", "qwen3moe")] + [raw_pair_line(*pair) for pair in case.pairs]
    lines = [tensor_line(name, kind, shape, len(raw)) for name, (kind, shape, raw) in case.tensors.items()]
    data = b"".join(raw[:256] for _, _, raw in case.tensors.values())
    return "\n".join(pairs).encode() + b"\0" + "\n".join(lines).encode() + b"\0" + data[:MOST_DATA]


def model_seeds(cases):
    """(target, name, seed) of every checkpoint whose headers can be read."""
    import gguf
    from gguf_files import GgufCase
    from raw_gguf import RawGguf

    block_sizes = {kind.name: (int(kind), *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    for case in cases:
        if isinstance(case, GgufCase):
            yield "gguf_model", case.name, gguf_seed(case, block_sizes)
        elif isinstance(case, RawGguf):
            yield "gguf_model", case.name, raw_gguf_seed(case)
        else:
            with tempfile.TemporaryDirectory() as scratch:
                case.write(Path(scratch) / "case")
                try:
                    yield "checkpoint", case.name, checkpoint_seed(Path(scratch) / "case")
                except (ValueError, TypeError, AttributeError):
                    continue  # a damaged header


def main():
    producers, out = map(Path, sys.argv[1:])
    sys.path.insert(0, str(producers))
    import run

    seeds = {"checkpoint": {}, "gguf_model": {}, "tokenizer": {}, "pattern": {}}
    for target, name, seed in model_seeds(run.all_cases()):
        if len(seed) <= LARGEST:
            seeds[target][name] = seed
    for number, tokenizer in enumerate(tokenizers()):
        seeds["tokenizer"][str(number)] = json.dumps(tokenizer).encode()
    for number, pattern in enumerate(PATTERNS):
        seeds["pattern"][str(number)] = f"{pattern}\0{TEXT}".encode()
    for target, files in seeds.items():
        (out / target).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
