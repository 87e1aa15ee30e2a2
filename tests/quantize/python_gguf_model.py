#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GGUF file beside config.json and tokenizer.json, as downloads have them: its experts run, the whole
model does not, and check, eval and what prepare writes all say so.

usage: python_gguf_model.py FEWBIT MODEL
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from python_gguf import check, finish


def write_experts(path, config):
    writer = GGUFWriter(path, "qwen3moe")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    random = np.random.default_rng(3)
    for layer in range(config["num_hidden_layers"]):
        for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            weights = random.standard_normal((config["num_experts"], *shape), np.float32)
            writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", quants.quantize(weights, GGMLQuantizationType.Q4_0),
                              raw_dtype=GGMLQuantizationType.Q4_0)
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight",
                          random.standard_normal((config["num_experts"], hidden), np.float32))
    finish(writer)


def run(*arguments):
    return subprocess.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True)


def main():
    model = Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch, "source"), Path(scratch, "out")
        source.mkdir()
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(model / name, source)
        write_experts(source / "model.gguf", json.loads((source / "config.json").read_text()))
        prepared = run("prepare", source, "-o", out)
        check(f"prepare: {prepared.stderr}", prepared.returncode == 0)
        for folder in (source, out):
            last = run("check", folder).stdout.splitlines()[-1]
            check(f"check: {last}", "runs its experts on this machine" in last and "not the whole model" in last)
            page = json.loads(run("check", folder, "--json").stdout)
            check("check --json", page["runnable"] is False)
            ran = run("eval", folder, "--text", model / "val.txt")
            check(f"eval: {ran.stderr}", ran.returncode == 1 and "whole models run from safetensors" in ran.stderr)
    print("python_gguf_model: fine")


if __name__ == "__main__":
    main()
