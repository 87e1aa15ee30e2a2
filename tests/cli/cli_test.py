#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models through the fewbit tool: converted, quantized, scored.

usage: cli_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from cli_case import FEWBIT, MODEL, REFERENCE_PERPLEXITY, SOURCE, Copy, rewrite_header, run, run_json, write_tensors


class Convert(unittest.TestCase):
    """What is lost on the way is counted by its kind."""

    def convert(self, tensors, config, *args):
        with tempfile.TemporaryDirectory() as folder:
            model, out = pathlib.Path(folder, "m"), pathlib.Path(folder, "o")
            model.mkdir()
            write_tensors(model, tensors)
            (model / "config.json").write_text(json.dumps({"quantization_config": config}))
            report = run_json(self, "convert", model, "-o", out, *args)
            raw = (out / "model.safetensors").read_bytes()
            (length,) = struct.unpack("<Q", raw[:8])
            entry = json.loads(raw[8 : 8 + length])["model.layers.0.mlp.up_proj.weight"]
            begin, end = entry["data_offsets"]
            self.assertEqual(run("convert", model, "-o", out / "2", "--all-ones-zeros", "x", *args).returncode, 2)
            return report, raw[8 + length + begin : 8 + length + end]

    def test_values_that_become_zero_are_told_from_rounded_ones(self):
        name = "model.layers.0.mlp.up_proj."
        # 1 and 1.125 times 2^-24: the least number of f16, and one that is rounded to it.
        codes = bytes([0x38, 0x39] * 64 + [0x20] * 128)  # then 2^-3, too small
        tensors = {name + "weight": ("F8_E4M3", [16, 16], codes),
                   name + "weight_scale": ("F32", [1], struct.pack("<f", 2.0**-24))}
        report, data = self.convert(tensors, {"quant_method": "fp8"}, "--to", "f16")
        self.assertEqual((report["inexact_values"], report["erased_values"]), (64 + 128, 128))
        self.assertEqual(struct.unpack("<256H", data), (1,) * 128 + (0,) * 128)
        report, _ = self.convert(tensors, {"quant_method": "fp8"}, "--to", "f32")
        self.assertEqual((report["inexact_values"], report["erased_values"]), (0, 0))

    def test_every_value_is_rounded_once(self):
        name = "model.layers.0.mlp.up_proj."
        scales = [0x38 + i % 8 for i in range(16)]  # 1 to 1.875
        factor = struct.unpack("<f", struct.pack("<f", 0.1))[0]
        tensors = {name + "weight": ("U8", [16, 8], bytes([0x32, 0x54, 0x76, 0x10, 0xBA, 0xDC, 0xFE, 0x98] * 16)),
                   name + "weight_scale": ("F8_E4M3", [16, 1], bytes(scales)),
                   name + "weight_scale_2": ("F32", [], struct.pack("<f", factor))}
        values = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
        codes = [2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9]
        # At most 2 + 4 + 24 bits: exact in double.
        exact = [(-1 if code > 7 else 1) * values[code % 8] * (1 + i % 8 / 8) * factor for i in range(16) for code in codes]
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
        report, data = self.convert(tensors, config, "--to", "f32")
        wanted = struct.unpack("<256f", struct.pack("<256f", *exact))
        self.assertEqual(struct.unpack("<256f", data), wanted)
        rounded = sum(a != b for a, b in zip(wanted, exact))
        self.assertGreater(rounded, 64)
        self.assertEqual(report["inexact_values"], rounded)
        report, data = self.convert(tensors, config, "--to", "f16")
        wanted = struct.unpack("<256e", struct.pack("<256e", *exact))
        self.assertEqual(struct.unpack("<256e", data), wanted)
        self.assertEqual(report["inexact_values"], sum(a != b for a, b in zip(wanted, exact)))

    def test_zero_points_of_all_ones_are_read_as_the_user_says(self):
        name = "model.layers.0.mlp.up_proj."
        tensors = {name + "qweight": ("I32", [4, 8], struct.pack("<I", 0x55555555) * 32),
                   name + "qzeros": ("I32", [1, 1], struct.pack("<I", 0x0000000F)),
                   name + "scales": ("F16", [1, 8], struct.pack("<e", 1.0) * 8)}
        config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False,
                  "checkpoint_format": "gptq"}
        for reading, first in (("wrap", 5.0), ("above", 5.0 - 16)):
            report, data = self.convert(tensors, config, "--to", "f32", "--all-ones-zeros", reading)
            self.assertEqual(report["all_ones_zeros"], 1)
            self.assertEqual(struct.unpack("<256f", data), (first,) * 32 + (4.0,) * 224)


@unittest.skipUnless(os.environ.get("FEWBIT_TEST_PERPLEXITY"), "FEWBIT_TEST_PERPLEXITY is not set: for the g++ build without sanitizers, others are too slow")
@unittest.skipUnless(SOURCE.is_dir(), f"{SOURCE} is not there")
class Perplexity(unittest.TestCase):
    """Against the figures beside the 16-bit model."""

    def eval(self, model, dtype):
        report = run_json(self, "eval", model, "--text", SOURCE / "val.txt", "--activation-dtype", dtype)
        return report["perplexity"]

    def test_of_the_16_bit_model(self):
        want = json.loads((SOURCE / "rtn_reference.json").read_text())["results"]["bf16"]["perplexity"]
        self.assertAlmostEqual(self.eval(SOURCE, "f32"), want, delta=0.01)
        self.assertAlmostEqual(self.eval(SOURCE, "bf16"), want, delta=0.005 * want)

    def test_of_its_quantized_experts_and_of_these_decoded(self):
        with tempfile.TemporaryDirectory() as folder:
            quantized, decoded = pathlib.Path(folder, "q"), pathlib.Path(folder, "d")
            run_json(self, "quantize", SOURCE, "-o", quantized)
            run_json(self, "convert", quantized, "-o", decoded, "--to", "bf16")
            low_bit = self.eval(quantized, "f32")
            self.assertAlmostEqual(low_bit, REFERENCE_PERPLEXITY, delta=0.01)
            self.assertAlmostEqual(self.eval(decoded, "f32"), low_bit, delta=0.002 * low_bit)
            self.assertAlmostEqual(self.eval(quantized, "bf16"), REFERENCE_PERPLEXITY, delta=0.005 * low_bit)

    def test_lost_output_is_a_failure(self):
        for args in (("check", MODEL), ("inspect", MODEL, "--json"), ("check", "/nonexistent")):
            with open("/dev/full", "w", encoding="utf-8") as full:
                both = {"stdout": full, "stderr": full}
                code = subprocess.run([FEWBIT, *map(str, args)], timeout=60, check=False, **both)
            self.assertEqual(code.returncode, 1, args)

    def test_text_that_is_no_readable_file(self):
        for path, text in (("a" * 300, "can't be read"), ("/", "directory"), ("/nonexistent", "such")):
            result = run("eval", MODEL, "--text", path, "--json")
            self.assertEqual(result.returncode, 1)
            self.assertIn(text, json.loads(result.stdout)["error"]["what"])

    def test_errors_are_json_too(self):
        result = run("check", "/nonexistent", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(json.loads(result.stdout)["error"]["code"], "not_found")
        self.assertIn("/nonexistent", result.stderr)


class RoundTrip(Copy):
    def test_decoding_to_bf16_and_quantizing_again(self):
        plain = self.folder / "plain"
        self.assertEqual(run("convert", self.model, "-o", plain, "--to", "bf16").returncode, 0)
        self.assertEqual(run_json(self, "check", plain)["producer"], "unquantized")
        again = self.folder / "again"
        report = run_json(self, "quantize", plain, "-o", again, "--max-shard-mb", "4")
        self.assertEqual(report["quantized_tensors"], 288)
        self.assertTrue((again / "model.safetensors.index.json").exists())
        self.assertEqual(run("check", again).returncode, 0)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["again", "model", "plain"])


def inverted(header, data):
    """Divisors where factors belong."""
    data = bytearray(data)
    for name, entry in header.items():
        if name.endswith("weight_scale_2"):
            at = slice(*entry["data_offsets"])
            (factor,) = struct.unpack("<f", data[at])
            data[at] = struct.pack("<f", 1 / factor)
    return header, bytes(data)


class Warned(Copy):
    def test_what_check_warns_of_is_said_beside_every_answer(self):
        text = self.folder / "text"
        text.write_bytes((MODEL / "val.txt").read_bytes()[:2000])
        commands = (("eval", "--text", text), ("generate", "--prompt", "Once", "--max-tokens", 2))
        for command, *more in commands:
            self.assertNotIn("note:", run(command, MODEL, *more).stderr)
            self.assertEqual(run_json(self, command, MODEL, *more)["source_warnings"], [])
        rewrite_header(self.model / "model.safetensors", inverted)
        warned = [f for f in run_json(self, "check", self.model, code=1)["findings"] if f["level"] != "info"]
        self.assertIn("global-scale-direction", {f["rule"] for f in warned})
        for command, *more in commands:
            result = run(command, self.model, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"note: the source has {len(warned)} warning", result.stderr)
            for finding in warned:
                self.assertIn(f"{finding['rule']}  {finding['where']}", result.stderr)
            self.assertEqual(run_json(self, command, self.model, *more)["source_warnings"], warned)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
