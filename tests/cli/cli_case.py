# SPDX-License-Identifier: Apache-2.0
"""What the tests of the tool share: calling it, and copies of the model that may be damaged.

The test programs are called as TEST.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

FEWBIT = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2])
# Of this model, by tests/whole_models/reference_perplexity.py: arithmetic of its own on decoded weights.
REFERENCE_PERPLEXITY = 73.898
# The 16-bit model that it was made from, with figures of independent code; not everywhere.
SOURCE = pathlib.Path(os.environ.get("FEWBIT_VECTORS_DIR", "no-vectors")) / "models" / "tiny-moe"


def run(*args, env=None):
    return subprocess.run(
        [FEWBIT, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, **(env or {})},
    )


def run_json(case, *args, code=0):
    result = run(*args, "--json")
    case.assertEqual(result.returncode, code, result.stderr)
    return json.loads(result.stdout)


def run_json_env(case, env, *args):
    result = run(*args, "--json", env=env)
    case.assertEqual(result.returncode, 0, result.stderr)
    return json.loads(result.stdout)


def legal_ranks(report, backend, kind):
    """Of explain's JSON: every number of ranks, and whether the backend takes it; None: none at all."""
    splits = [s for s in report["splits"] if backend in s["backends"]]
    return {ranks: v["legal"] for v in splits[0][kind] for ranks in v["ranks"]} if splits else None


def write_tensors(folder, tensors):
    """A model.safetensors of {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def rewrite_header(path, change):
    """Applies change(header dict, data) -> (header, data) to a safetensors file."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = change(json.loads(raw[8 : 8 + length]), raw[8 + length :])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Copy(unittest.TestCase):
    """A copy of the model that a test may damage."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)
        for path in self.model.iterdir():
            path.chmod(0o644)

    def expect_error(self, *texts, command="eval"):
        args = {
            "eval": ("eval", self.model, "--text", self.model / "val.txt"),
            "check": ("check", self.model),
            "generate": ("generate", self.model, "--prompt", "Once"),
        }[command]
        result = run(*args)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for text in texts:
            self.assertIn(text, result.stdout + result.stderr)
        return result
