#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds for the fuzz targets that need many: the small checkpoints of every producer, tokenizers
with every component, and the patterns of known tokenizers.

usage: make_seeds.py PRODUCERS_FOLDER OUT_FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np

CONFIG_NAMES = ["hf_quant_config.json", "quantize_config.json", "quant_config.json"]
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


def checkpoint_seed(case, dtypes):
    other = b""
    for name, content in case.files.items():
        if name in CONFIG_NAMES:
            text = content if isinstance(content, str) else json.dumps(content)
            other = bytes([CONFIG_NAMES.index(name)]) + text.encode()
    lines, pattern = [], b""
    for name, array in case.tensors.items():
        array = np.asarray(array)
        lines.append(f"{name} {dtypes[array.dtype]} {','.join(map(str, array.shape))}")
        pattern += array.tobytes()[:64]
    return b"\0".join([json.dumps(case.config).encode(), other, "\n".join(lines).encode(), pattern])


def main():
    producers, out = map(Path, sys.argv[1:])
    sys.path.insert(0, str(producers))
    import case
    import run

    seeds = {"checkpoint": {}, "tokenizer": {}, "pattern": {}}
    for one in run.all_cases():
        if type(one) is not case.Case:  # a GGUF file
            continue
        seeds["checkpoint"][one.name] = checkpoint_seed(one, case.DTYPES)
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
