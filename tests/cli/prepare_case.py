# SPDX-License-Identifier: Apache-2.0
"""What the tests of `fewbit prepare` share: a model large enough to be interrupted, and a folder."""
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from cli_case import FEWBIT, MODEL, rewrite_header, run_json  # noqa: F401 (for the tests)


def run(*args, limit=None, open_files=None):
    """limit: of bytes in a file that is written."""
    def set_limits():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    return subprocess.run(
        [FEWBIT, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=800,
        preexec_fn=set_limits,
    )


def content(folder):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def other_tensors(config, layers, rng):
    """Name, shape and bytes of everything but the experts."""
    hidden, head = config["hidden_size"], config["head_dim"]
    query = config["num_attention_heads"] * head
    value = config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden],
              "model.norm.weight": [hidden]}
    for layer in range(layers):
        base = f"model.layers.{layer}"
        shapes |= {
            f"{base}.input_layernorm.weight": [hidden],
            f"{base}.post_attention_layernorm.weight": [hidden],
            f"{base}.mlp.gate.weight": [config["num_experts"], hidden],
            f"{base}.self_attn.q_proj.weight": [query, hidden],
            f"{base}.self_attn.k_proj.weight": [value, hidden],
            f"{base}.self_attn.v_proj.weight": [value, hidden],
            f"{base}.self_attn.o_proj.weight": [hidden, query],
            f"{base}.self_attn.q_norm.weight": [head],
            f"{base}.self_attn.k_norm.weight": [head],
        }
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        some = bf16(rng.uniform(0.5, 1.5) for _ in range(min(count, 509)))
        yield name, shape, (some * (count * 2 // len(some) + 1))[: count * 2]


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def nvfp4_matrix(rng, n, k, global_scale):
    return {"weight": ("U8", [n, k // 2], rng.randbytes(n * k // 2)),
            "weight_scale": ("F8_E4M3", [n, k // 16],
                             bytes(0x20 + b % 64 for b in rng.randbytes(n * k // 16))),
            "weight_scale_2": ("F32", [], struct.pack("<f", global_scale(rng)))}


def nvfp4_w4a4_matrix(rng, n, k, _):
    one_global = nvfp4_matrix(rng, n, k, lambda _: 0.25)
    return one_global | {"input_scale": ("F32", [], struct.pack("<f", 0.5))}


def mxfp4_matrix(rng, n, k, _):
    return {"weight": ("I8", [n, k // 2], rng.randbytes(n * k // 2)),
            "scale": ("F8_E8M0", [n, k // 32],
                      bytes(100 + b % 30 for b in rng.randbytes(n * k // 32)))}


def fp8_matrix(rng, n, k, _):
    grid = [-(-n // 128), -(-k // 128)]
    return {"weight": ("F8_E4M3", [n, k], bytes(b & 0xF7 for b in rng.randbytes(n * k))),
            "weight_scale_inv": ("F32", grid, b"".join(
                struct.pack("<f", rng.uniform(0.001, 0.002)) for _ in range(grid[0] * grid[1])))}


def plain_matrix(rng, n, k, _):
    some = bf16(rng.uniform(-1, 1) for _ in range(509))
    return {"weight": ("BF16", [n, k], (some * (n * k * 2 // len(some) + 1))[:n * k * 2])}


# Matrix, and what the config says of it.
FORMS = {
    "nvfp4": (nvfp4_matrix, {}),
    "nvfp4-w4a4": (nvfp4_w4a4_matrix, {}),
    "mxfp4": (mxfp4_matrix, {"expert_dtype": "fp4", "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}),
    "fp8-block": (fp8_matrix, {"quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
        "activation_scheme": "dynamic"}}),
    "bf16": (plain_matrix, {"quantization_config": None}),
}


def write_model(folder, layers=3, experts=24, hidden=512, inner=512,
                global_scale=random.Random.random, form="nvfp4"):
    """A random model, large enough that preparing it takes a moment."""
    rng = random.Random(7)
    matrix, says = FORMS[form]
    folder.mkdir()
    config = json.loads((MODEL / "config.json").read_text()) | says
    if config["quantization_config"] is None:
        del config["quantization_config"]
    config.update(hidden_size=hidden, moe_intermediate_size=inner, num_experts=experts,
                  num_hidden_layers=layers, vocab_size=256)
    tensors = {name: ("BF16", shape, data)
               for name, shape, data in other_tensors(config, layers, rng)}
    for layer in range(layers):
        for expert in range(experts):
            for name, n, k in (("gate_proj", inner, hidden), ("up_proj", inner, hidden),
                               ("down_proj", hidden, inner)):
                module = f"model.layers.{layer}.mlp.experts.{expert}.{name}"
                for part, tensor in matrix(rng, n, k, global_scale).items():
                    tensors[f"{module}.{part}"] = tensor
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))


GPT_OSS_CONFIG = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "dtype": "bfloat16",
    "hidden_act": "silu", "swiglu_limit": 7.0, "attention_bias": True, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "sliding_window": 16,
    "layer_types": ["full_attention"], "num_hidden_layers": 1, "vocab_size": 256,
    "rope_parameters": {"rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0,
                        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                        "original_max_position_embeddings": 64},
    "tie_word_embeddings": False, "eos_token_id": 0, "pad_token_id": 0,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
}


def write_gpt_oss_model(folder, experts=2, hidden=128, inner=352):
    """One layer in gpt-oss's MXFP4, gate and up in turn in one tensor.

    Returns of each expert gate, up and down: codes, scale bytes and biases, a list a row.
    """
    rng = random.Random(5)
    folder.mkdir()
    config = GPT_OSS_CONFIG | {"hidden_size": hidden, "intermediate_size": inner,
                               "num_local_experts": experts}
    base = "model.layers.0"
    query = 4 * 32
    value = 2 * 32
    shapes = {"model.embed_tokens.weight": [256, hidden], "lm_head.weight": [256, hidden],
              "model.norm.weight": [hidden], f"{base}.input_layernorm.weight": [hidden],
              f"{base}.post_attention_layernorm.weight": [hidden],
              f"{base}.mlp.router.weight": [experts, hidden], f"{base}.mlp.router.bias": [experts],
              f"{base}.self_attn.sinks": [4]}
    for name, n, k in (("q", query, hidden), ("k", value, hidden), ("v", value, hidden),
                       ("o", hidden, query)):
        shapes[f"{base}.self_attn.{name}_proj.weight"] = [n, k]
        shapes[f"{base}.self_attn.{name}_proj.bias"] = [n]
    tensors = {name: ("BF16", shape, bf16(rng.uniform(-1, 1) for _ in range(math.prod(shape))))
               for name, shape in shapes.items()}

    def matrix(n, k):
        return {"codes": [list(rng.randbytes(k)) for _ in range(n)],
                "scales": [[115 + b % 15 for b in rng.randbytes(k // 32)] for _ in range(n)],
                "bias": [rng.randrange(-64, 64) / 8 for _ in range(n)]}

    made = [{"gate": matrix(inner, hidden), "up": matrix(inner, hidden),
             "down": matrix(hidden, inner)} for _ in range(experts)]
    for expert in made:
        for one in expert.values():
            one["codes"] = [[code & 15 for code in row] for row in one["codes"]]

    def add(name, n, k, rows_of):
        rows = [rows_of(expert) for expert in made]
        module = f"{base}.mlp.experts.{name}"
        codes = b"".join(bytes(row[i] | row[i + 1] << 4 for i in range(0, k, 2))
                         for of in rows for row in of["codes"])
        tensors[f"{module}_blocks"] = ("U8", [experts, n, k // 32, 16], codes)
        tensors[f"{module}_scales"] = ("U8", [experts, n, k // 32],
                                       b"".join(bytes(row) for of in rows for row in of["scales"]))
        tensors[f"{module}_bias"] = ("BF16", [experts, n],
                                     bf16(value for of in rows for value in of["bias"]))

    def in_turn(expert):
        gate, up = expert["gate"], expert["up"]
        return {part: [one for pair in zip(gate[part], up[part]) for one in pair] for part in gate}

    add("gate_up_proj", 2 * inner, hidden, in_turn)
    add("down_proj", hidden, inner, lambda expert: expert["down"])
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return made


def write_gptq_model(folder, experts=4, hidden=128, inner=256, group=32, up_order=None):
    """One layer of GPTQ experts with desc_act; those of one are in order by chance.

    group: None: one scale a row, no order. up_order: a shift of up's g_idx against gate's.
    """
    rng = random.Random(9)
    folder.mkdir()
    config = json.loads((MODEL / "config.json").read_text())
    config.update(hidden_size=hidden, moe_intermediate_size=inner, num_experts=experts,
                  num_hidden_layers=1, quantization_config={
                      "quant_method": "gptq", "bits": 4, "group_size": group or -1, "sym": True,
                      "desc_act": group is not None, "checkpoint_format": "gptq"})
    tensors = {name: ("BF16", shape, data) for name, shape, data in other_tensors(config, 1, rng)}
    for expert in range(experts):
        of_hidden = [k // (group or hidden) for k in range(hidden)]
        of_inner = [k // (group or inner) for k in range(inner)]
        if expert != 1:  # that no calibration token reached
            rng.shuffle(of_hidden)
            rng.shuffle(of_inner)
        for name, n, k, order in (("gate_proj", inner, hidden, of_hidden),
                                  ("up_proj", inner, hidden, of_hidden),
                                  ("down_proj", hidden, inner, of_inner)):
            if name == "up_proj" and up_order:
                order = order[up_order:] + order[:up_order]
            groups = k // (group or k)
            module = f"model.layers.0.mlp.experts.{expert}.{name}"
            tensors |= {
                f"{module}.qweight": ("I32", [k // 8, n], rng.randbytes(k * n // 2)),
                # Zero points are stored one too small.
                f"{module}.qzeros": ("I32", [groups, n // 8], b"\x77" * (groups * n // 2)),
                f"{module}.scales": ("F16", [groups, n], b"".join(
                    struct.pack("<e", rng.uniform(0.001, 0.01)) for _ in range(groups * n))),
                f"{module}.g_idx": ("I32", [k], struct.pack(f"<{k}i", *order)),
            }
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (MODEL / name).exists():
            shutil.copy(MODEL / name, folder / name)


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"
        self.partial = self.folder / "out.partial"
        self.journal = self.folder / "out.partial.journal"

    def expect_error(self, *texts, args, code=1, **limits):
        result = run(*args, **limits)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def writable_model(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        for path in model.iterdir():
            path.chmod(0o644)
        return model

    def prepared(self, *args, source=MODEL):
        result = run("prepare", source, "-o", self.out, *args)
        self.assertEqual(result.returncode, 0, result.stderr)

    def nothing_left(self):
        self.assertEqual([p.name for p in self.folder.glob("out*")], [])

    def interrupt(self, source, seconds, kind=signal.SIGKILL):
        process = subprocess.Popen([FEWBIT, "prepare", source, "-o", self.out],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        time.sleep(seconds)
        process.send_signal(kind)
        return process.wait(timeout=60)

    def leave_unfinished(self, source):
        """A run that was killed half way; what it would have written."""
        begin = time.monotonic()
        self.assertEqual(run("prepare", source, "-o", self.out).returncode, 0)
        seconds = time.monotonic() - begin
        finished = content(self.out)
        for _ in range(200):
            shutil.rmtree(self.out, ignore_errors=True)
            self.interrupt(source, random.uniform(0, seconds))
            if self.journal.exists() and self.journal.read_text().count("\n") >= 1 and (
                    self.partial.exists()):
                return finished
        self.fail("no run could be interrupted")
