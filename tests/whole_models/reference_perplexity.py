#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Perplexity of a small Qwen3-MoE model by arithmetic of its own: f32 on decoded weights, numpy alone.

usage: reference_perplexity.py MODEL_DIR TEXT [SOURCE_DIR]

Experts may be ModelOpt NVFP4. With the 16-bit SOURCE_DIR that they were made from, they are also rounded
here (to nearest, gate and up of an expert with one global scale), and the stored bytes must be those.
Windows of 512 tokens of the whole text, each target the next token; needs numpy, ml-dtypes, tokenizers.
"""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from tokenizers import Tokenizer

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
DTYPES = {"BF16": ml_dtypes.bfloat16, "F32": np.float32, "U8": np.uint8, "F8_E4M3": ml_dtypes.float8_e4m3fn}
WINDOW = 512


def read_tensors(folder):
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def decoded(tensors, module):
    """[n, k] in f32: the weights as they are, or code * (scale * global)."""
    weight = tensors[module + ".weight"]
    if weight.dtype != np.uint8:
        return weight.astype(np.float32)
    codes = np.stack([weight & 15, weight >> 4], -1).reshape(weight.shape[0], -1)
    scale = tensors[module + ".weight_scale"].astype(np.float32) * tensors[module + ".weight_scale_2"]
    return E2M1[codes] * np.repeat(scale, 16, axis=1)


def rounded(weight, largest):
    """Codes, scales and global scale of one matrix, given the largest weight of all that share it."""
    shared = np.float32(largest) / np.float32(6 * 448)
    blocks = weight.reshape(weight.shape[0], -1, 16)
    scale = np.abs(blocks).max(-1) / (np.float32(6) * shared)
    scale = np.clip(scale, np.float32(2**-9), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
    values = blocks / (scale.astype(np.float32) * shared)[..., None]
    codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(weight.shape)
    codes[codes == 8] = 0  # a zero has no sign
    return {"weight": codes[:, 0::2] | codes[:, 1::2] << 4, "weight_scale": scale, "weight_scale_2": shared}


def compare(tensors, source):
    count, error, norm = 0, 0.0, 0.0
    for name in [name for name in source if ".experts." in name]:
        module, role = name.removesuffix(".weight"), name.split(".")[-2]
        together = ["gate_proj", "up_proj"] if role != "down_proj" else [role]
        parts = [source[name.replace(role, other)].astype(np.float32) for other in together]
        weight = source[name].astype(np.float32)
        for suffix, expected in rounded(weight, max(np.abs(part).max() for part in parts)).items():
            found = tensors[f"{module}.{suffix}"]
            if found.tobytes() != np.asarray(expected).tobytes():
                sys.exit(f"{module}.{suffix}: stored bytes are not those of rounding to nearest")
        error += float(np.square(weight.astype(np.float64) - decoded(tensors, module)).sum())
        norm += float(np.square(weight.astype(np.float64)).sum())
        count += 1
    print(f"{count} matrices have the bytes of rounding to nearest, relative error {(error / norm) ** 0.5:.5f}")


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = read_tensors(folder)
        self.matrices = {name.removesuffix(".weight"): None for name in self.tensors if name.endswith(".weight")}

    def weight(self, module):
        if self.matrices[module] is None:
            self.matrices[module] = decoded(self.tensors, module)
        return self.matrices[module]

    def norm(self, x, module):
        return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weight(module)

    def heads(self, x, module, norm=None):
        """[tokens, heads, head_dim], q and k turned by their places."""
        size = self.config["head_dim"]
        out = (x @ self.weight(module).T).reshape(len(x), -1, size)
        if norm is None:
            return out
        out = self.norm(out, norm)
        speed = self.config["rope_theta"] ** (-np.arange(0, size, 2) / size)
        angle = (np.arange(len(x))[:, None] * speed)[:, None]
        sin, cos = np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)
        first, second = out[..., : size // 2], out[..., size // 2 :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def attention(self, x, at):
        q = self.heads(x, at + "q_proj", at + "q_norm")
        k = self.heads(x, at + "k_proj", at + "k_norm")
        v = self.heads(x, at + "v_proj")
        shared = q.shape[1] // k.shape[1]
        future = np.triu(np.full((len(x), len(x)), -np.inf, np.float32), 1)
        out = np.empty_like(q)
        for head in range(q.shape[1]):
            score = q[:, head] @ k[:, head // shared].T / np.float32(q.shape[2] ** 0.5) + future
            score = np.exp(score - score.max(-1, keepdims=True))
            out[:, head] = score / score.sum(-1, keepdims=True) @ v[:, head // shared]
        return out.reshape(len(x), -1) @ self.weight(at + "o_proj").T

    def experts(self, x, at):
        logits = x @ self.weight(at + "gate").T
        probability = np.exp(logits - logits.max(-1, keepdims=True))
        probability /= probability.sum(-1, keepdims=True)
        chosen = np.argsort(-probability, axis=-1, kind="stable")[:, : self.config["num_experts_per_tok"]]
        share = np.take_along_axis(probability, chosen, -1)
        if self.config["norm_topk_prob"]:
            share /= share.sum(-1, keepdims=True)
        out = np.zeros_like(x)
        for expert in range(self.config["num_experts"]):
            token, slot = np.nonzero(chosen == expert)
            if len(token) == 0:
                continue
            gate, up, down = (self.weight(f"{at}experts.{expert}.{role}_proj") for role in ("gate", "up", "down"))
            product = x[token] @ gate.T
            product = product / (1 + np.exp(-product)) * (x[token] @ up.T)
            out[token] += share[token, slot][:, None] * (product @ down.T)
        return out

    def losses(self, ids, targets):
        x = self.weight("model.embed_tokens")[ids]
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, at + "input_layernorm"), at + "self_attn.")
            x = x + self.experts(self.norm(x, at + "post_attention_layernorm"), at + "mlp.")
        logits = (self.norm(x, "model.norm") @ self.weight("model.embed_tokens").T).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(ids)), targets]


def main():
    folder, text, *source = map(Path, sys.argv[1:])
    model = Model(folder)
    if source:
        compare(model.tensors, read_tensors(source[0]))
    ids = np.array(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text()).ids)
    starts = range(0, len(ids) - WINDOW, WINDOW)
    losses = np.concatenate([model.losses(ids[s : s + WINDOW], ids[s + 1 : s + WINDOW + 1]) for s in starts])
    print(f"{len(starts)} windows, {len(losses)} targets, perplexity {np.exp(losses.mean()):.4f}")


if __name__ == "__main__":
    main()
