#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fewbit tool as its users call it: results, exit codes, JSON.

usage: cli_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import fcntl
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

from cli_case import (FEWBIT, MODEL, SOURCE, REFERENCE_PERPLEXITY, Copy, run, run_json,
                      run_json_env, write_tensors)


class Terminal(unittest.TestCase):
    def test_names_in_a_file_can_not_steer_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            header = json.dumps(
                {"\x1b[31mred\nx": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
            pathlib.Path(folder, "model.safetensors").write_bytes(
                struct.pack("<Q", len(header)) + header + b"1234")
            pathlib.Path(folder, "config.json").write_text('{"model_type": "q\\u001b[2Jx"}')
            for command in (("check",), ("inspect",), ("eval", "--text", MODEL / "val.txt")):
                result = run(command[0], folder, *command[1:])
                text = result.stdout + result.stderr
                self.assertNotIn("\x1b", text)
                self.assertIn("\\x1b[2Jx" if command[0] == "eval" else "\\x1b[31mred\\x0ax", text)

    def test_words_of_the_command_line_can_not_either(self):
        for args in (("check", MODEL, "--\x1b[31m"), ("check", MODEL, "x\x1b[31m"), ("x\x1b[31m",)):
            result = run(*args)
            self.assertEqual(result.returncode, 2)
            self.assertNotIn("\x1b", result.stdout + result.stderr)
            self.assertIn("\\x1b[31m", result.stderr)

    def test_no_command_lets_a_name_reorder_hide_or_break_a_line(self):
        name = "a\nb\u2028c\u202ed\u2066e\u200bf\u0085g\u061ch\U000e0041i\x7fj"
        shown = "a\\x0ab\\u{2028}c\\u{202e}d\\u{2066}e\\u{200b}f\\u{0085}g\\u{061c}h\\u{e0041}i\\x7fj"
        with tempfile.TemporaryDirectory() as folder:
            write_tensors(pathlib.Path(folder), {name: ("F32", [2], struct.pack("<2f", 1, -2)),
                                                 name + ".weight_scale": ("I64", [1], b"12345678")})
            for args in (("check",), ("inspect",), ("inspect", name), ("inspect", name + "x"),
                         ("inspect", name + ".weight_scale"), ("convert", "-o", folder + "/" + name, "--to", "bf16"),
                         ("eval", "--text", "/none" + name), ("explain",), ("prepare", "-o", folder + "/" + name),
                         ("quantize", "-o", folder + "/" + name)):
                result = run(args[0], folder, *args[1:])
                for text in (result.stdout, result.stderr):
                    self.assertFalse(set(text) & set("\u2028\u202e\u2066\u200b\u0085\u061c\U000e0041\x7f"), args)
                    self.assertNotIn("a\nb", text, args)
                if args[0] in ("check", "inspect"):
                    self.assertIn(shown, result.stdout + result.stderr, args)
            listed = run("inspect", folder, "--json")
            self.assertNotIn("\u202e", listed.stdout)
            self.assertIn(name, [m["name"] for m in json.loads(listed.stdout)])


class Inspect(unittest.TestCase):
    """Statistics of tensors that hold anything."""

    def stats(self, dtype, data, size):
        with tempfile.TemporaryDirectory() as folder:
            write_tensors(pathlib.Path(folder), {"t": (dtype, [len(data) // size], data)})
            return (run_json(self, "inspect", folder, "t"), run("inspect", folder, "t").stdout)

    def test_f64_is_not_narrowed(self):
        values = (1e300, -3e-320, 0.0, 1 + 2.0**-40)
        report, text = self.stats("F64", struct.pack("<4d", *values), 8)
        self.assertEqual((report["infinite"], report["zero"], report["negative"]), (0, 1, 1))
        self.assertEqual((report["min"], report["max"]), (-3e-320, 1e300))
        self.assertAlmostEqual(report["mean"], 2.5e299, delta=1e286)
        self.assertAlmostEqual(report["rms"], 5e299, delta=1e286)
        self.assertEqual({b["exponent"]: b["count"] for b in report["histogram_log2"]},
                         {-1062: 1, 0: 1, 996: 1})
        self.assertIn("2^-1062", text)
        self.assertIn("2^996", text)

    def test_outliers_have_their_own_bars(self):
        report, text = self.stats("F32", struct.pack("<4f", 2.0**100, 2.0**-120, 2.0**-149, 1), 4)
        self.assertEqual([b["exponent"] for b in report["histogram_log2"]], [-149, -120, 0, 100])
        for label in ("2^-149", "2^-120", "2^100"):
            self.assertIn(label, text)

    def test_very_many_magnitudes_are_all_counted(self):
        report, text = self.stats("F64", struct.pack("<200d", *(2.0**n for n in range(-100, 100))), 8)
        self.assertEqual(len(report["histogram_log2"]), 200)
        self.assertRegex(text, r"<2\^36 +136 ")

    def test_without_a_finite_value_there_are_no_statistics(self):
        report, text = self.stats("F32", struct.pack("<2f", float("nan"), float("inf")), 4)
        self.assertEqual((report["nan"], report["infinite"]), (1, 1))
        self.assertEqual([report[k] for k in ("min", "max", "mean", "rms")], [None] * 4)
        self.assertIn("no finite value", text)
        self.assertNotIn("min 0", text)

    def test_a_zero_byte_in_a_gguf_name_is_refused(self):
        for name, key in ((b"a\0b", b"k"), (b"a", b"k\0")):
            data = struct.pack("<4sIQQ", b"GGUF", 3, 1, 1)
            data += struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 1)
            data += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 1, 0, 0)
            data += b"\0" * (-len(data) % 32) + b"\0" * 4
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "m.gguf")
                path.write_bytes(data)
                result = run("inspect", path)
                self.assertEqual(result.returncode, 1)
                self.assertIn("\\x00", result.stderr)
                self.assertIn("holds a zero byte", result.stderr)


class Reports(unittest.TestCase):
    def test_check_names_every_scheme_and_finds_nothing_wrong(self):
        report = run_json(self, "check", MODEL)
        self.assertEqual(report["producer"], "ModelOpt")
        self.assertTrue(report["runnable"])
        experts = [r for r in report["inventory"] if r["role"].startswith("expert")]
        self.assertEqual(sum(r["modules"] for r in experts), 288)
        self.assertTrue(all("NVFP4" in r["scheme"] for r in experts))
        self.assertFalse([f for f in report["findings"] if f["level"] != "info"])

    def test_check_sums_up_every_scheme(self):
        report = run_json(self, "check", MODEL)
        schemes = {s["scheme"].split()[-1 if " " not in s["scheme"] else 1]: s for s in report["schemes"]}
        experts, plain = schemes["NVFP4"], schemes["bf16"]
        weights = 6 * 16 * 3 * 128 * 256
        self.assertEqual((experts["tensors"], experts["parameters"]), (288 * 3, weights))
        # Half a byte a code, a byte a group of 16, a factor of four bytes a matrix.
        self.assertEqual(experts["bytes"], weights // 2 + weights // 16 + 288 * 4)
        self.assertAlmostEqual(experts["bits_a_weight"], experts["bytes"] * 8 / weights, places=6)
        self.assertEqual(plain["bytes"], 2 * plain["parameters"])
        self.assertEqual(sum(s["tensors"] for s in report["schemes"]), report["tensors"])
        self.assertEqual(sum(s["bytes"] for s in report["schemes"]), report["bytes"])
        text = run("check", MODEL).stdout
        self.assertIn("by scheme, all roles together", text)
        self.assertIn("bits a weight", text)

    def test_check_plans_memory_and_splits(self):
        report = run_json(self, "check", MODEL)
        memory = report["memory"]
        self.assertEqual(memory["stored"], report["bytes"])
        # Experts are packed to their own size and a factor; all else is read in place.
        self.assertLessEqual(abs(memory["prepared"] - memory["stored"]), 8192)
        self.assertGreater(memory["packed"], 0)
        self.assertEqual(sum(memory["matrices_by_backend"].values()), 6 * (16 * 3 + 4 + 1))
        tensor = {p["ranks"]: p for p in report["splits"]["tensor_parallel"]}
        self.assertEqual([tensor[n]["fit"] for n in (1, 2, 4, 8, 16)], ["even"] * 4 + ["none"])
        self.assertEqual(tensor[2]["reasons"], [])
        self.assertIn("each is held by 2 ranks", tensor[4]["reasons"][0]["why"])
        self.assertTrue(any("0.5 groups of 16" in r["why"] for r in tensor[16]["reasons"]))
        self.assertEqual(sorted(tensor), list(range(1, 65)))
        # 8 heads can't be shared by 3; the experts' 8 groups can.
        self.assertEqual((tensor[3]["fit"], tensor[3]["experts_fit"]), ("none", "uneven"))
        experts = {p["ranks"]: p["fit"] for p in report["splits"]["expert_parallel"]}
        self.assertEqual(experts, {n: "none" if n > 16 else "even" if 16 % n == 0 else "uneven"
                                   for n in range(1, 65)})
        text = run("check", MODEL).stdout
        self.assertIn("TP 1, 2  evenly", text)
        self.assertLess(len(text.splitlines()), 60)

    def test_check_explain_and_prepare_agree_on_every_split(self):
        plans = run_json(self, "check", MODEL)["splits"]
        backends = run_json(self, "explain", MODEL)["splits"]
        for kind, option, examined in (("tensor_parallel", "--tp", (1, 2, 3, 5, 8, 9, 12, 16)),
                                       ("expert_parallel", "--ep", (3, 16, 17))):
            alone = {p["ranks"]: p["experts_fit"] for p in plans[kind]}
            for backend in backends:
                legal = {v["ranks"]: v["legal"] for v in backend[kind]}
                self.assertEqual(legal, {n: fit != "none" for n, fit in alone.items()},
                                 (backend["backend"], kind))
            for ranks in examined:
                fits = alone[ranks] != "none"
                asked = run("explain", MODEL, option, ranks)
                self.assertEqual(asked.returncode == 0, fits, (option, ranks))
                with tempfile.TemporaryDirectory() as folder:
                    args = ("-o", pathlib.Path(folder) / "out", option, ranks, "--rank", 0)
                    self.assertEqual(run("prepare", MODEL, *args).returncode == 0, fits)
        self.assertIn("whole model, TP 3: not the whole model; its experts alone unevenly",
                      run("explain", MODEL, "--tp", 3).stdout)
        self.assertIn("intermediate_size 128 in runs of 16 over 16 ranks, expected one of 1 to 8",
                      run("explain", MODEL, "--tp", 16).stderr)

    def test_explain_lists_backends_with_reference_last(self):
        report = run_json(self, "explain", MODEL)
        names = [c["backend"] for c in report["candidates"]]
        self.assertEqual(names[-1], "reference")
        self.assertIn(report["chosen"], names)

    def test_explain_for_another_machine_gives_reasons_with_numbers(self):
        report = run_json(self, "explain", MODEL, "--device", "cpu:generic")
        refused = [c for c in report["candidates"] if not c["usable"]]
        self.assertTrue(refused)
        for candidate in refused:
            self.assertTrue(candidate["refusals"])
            for refusal in candidate["refusals"]:
                self.assertTrue(refusal["needs"] and refusal["has"])

    def test_explain_tells_what_another_engine_would_choose(self):
        report = run_json(self, "explain", MODEL, "--engine", "vllm", "--device", "sm_90")
        self.assertEqual((report["engine"], report["chosen"]), ("vLLM", "marlin"))
        self.assertFalse(report["runs_here"])
        self.assertEqual(report["problem"]["hidden_size"], 256)
        self.assertIn("NVFP4", report["problem"]["gate_up"]["text"])
        tensor = {s["backend"]: s["tensor_parallel"] for s in report["splits"]}["marlin"]
        self.assertEqual([t["ranks"] for t in tensor if t["legal"]], [1, 2, 4, 8])
        forced = run("explain", MODEL, "--engine", "vllm", "--device", "sm_90",
                     "--backend", "batched_marlin", "--json")
        self.assertEqual(forced.returncode, 1)
        self.assertIn("token exchange", json.loads(forced.stdout)["error"])
        here = run("explain", MODEL, "--backend", "marlin")
        self.assertEqual(here.returncode, 2)
        self.assertIn("run by vLLM, not by fewbit", here.stderr)

    def test_explain_has_the_choice_above_the_table_and_the_names_in_its_help(self):
        text = run("explain", "--problem", "gpt-oss-20b/mxfp4", "--engine", "vllm", "--device", "sm_120").stdout
        lines = text.splitlines()
        chosen = [i for i, line in enumerate(lines) if line.startswith("chosen ")]
        table = [i for i, line in enumerate(lines) if line.startswith("backends of vLLM")]
        self.assertEqual((len(chosen), len(table)), (1, 1))
        self.assertLess(chosen[0], table[0])
        self.assertIn("  Mixtral-8x7B: bf16, ", run("explain", "--help").stdout)
        none = run("explain", "--problem", "gpt-oss-20b/mxfp4", "--device", "sm_90").stdout
        self.assertIn("chosen   none: no backend can run it", none)

    def test_explain_knows_published_layers(self):
        args = ("explain", "--problem", "Qwen3-30B-A3B/gptq-int4-g128", "--engine", "vllm")
        report = run_json(self, *args, "--device", "sm_80", "--tp", "2")
        self.assertEqual(report["problem"]["intermediate_size"], 384)
        self.assertEqual(report["chosen"], "marlin")
        wrong = run(*args, "--device", "sm_80", "--tp", "5")
        self.assertIn("intermediate_size 768 in runs of 128 over 5 ranks, expected one of 1 to 3, 6",
                      wrong.stderr)
        self.assertIn("known: Qwen3-30B-A3B, ", run("explain", "--problem", "x").stderr)
        self.assertEqual(run("explain").returncode, 2)

    def test_prepare_for_another_engine_needs_its_device_and_refuses_what_it_can_not_hold(self):
        with tempfile.TemporaryDirectory() as folder:
            args = ("prepare", MODEL, "-o", pathlib.Path(folder) / "out", "--backend", "marlin")
            self.assertIn("needs a CUDA device, has CPU", run(*args).stderr)
            # The kernels have one global scale for gate and up; this model has two.
            result = run(*args, "--device", "sm_90")
            self.assertEqual(result.returncode, 1)
            self.assertIn("gate and up of 16 experts have two global scales", result.stderr)

    def test_check_asks_for_any_device(self):
        report = run_json(self, "check", MODEL, "--device", "sm_90")
        self.assertEqual([e["chosen"] for e in report["engines"]], ["marlin", "", ""])
        self.assertIn("vLLM marlin", run("check", MODEL, "--device", "sm_90").stdout)
        foreign = run_json(self, "backends", "--foreign", "--device", "xpu")
        self.assertTrue(all(not b["runs_here"] for b in foreign))
        self.assertEqual([b["name"] for b in foreign if b["usable"]], ["xpu_int4", "xpu_mxfp4"])

    @unittest.skipUnless(os.environ.get("FEWBIT_TEST_PERPLEXITY"), "not in this build: too slow with sanitizers")
    def test_perplexity_is_that_of_the_format(self):
        report = run_json(self, "eval", MODEL, "--text", MODEL / "val.txt")
        self.assertEqual(report["tokens_scored"], 40960)
        self.assertAlmostEqual(report["perplexity"], REFERENCE_PERPLEXITY, delta=0.37)
        for key in ("mean_nll", "tokens_per_second", "peak_rss_bytes"):
            self.assertGreater(report[key], 0)

    def test_eval_of_a_short_text_counts_its_tokens(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write((MODEL / "val.txt").read_text()[:6000])
            text.flush()
            report = run_json(self, "eval", MODEL, "--text", text.name, "--window", "256")
        self.assertGreater(report["tokens_scored"], 0)
        self.assertEqual(report["tokens_scored"] % 256, 0)
        self.assertTrue(1 < report["perplexity"] < 1000)

    def test_generation_is_the_same_for_a_seed(self):
        args = ("generate", MODEL, "--prompt", "So she was", "--max-tokens", "12")
        args += ("--temperature", "0.8", "--seed", "7")
        first = run_json(self, *args)
        second = run_json(self, *args, "--threads", "1")
        self.assertEqual(first["ids"], second["ids"])
        self.assertEqual(first["new_tokens"], 12)

    def test_bench_measures_a_layer_against_limits_of_the_same_run(self):
        report = run_json(self, "bench", "tiny-moe", "--tokens", "1,4", "--seconds", "0.05")
        self.assertEqual([t["tokens"] for t in report[0]["timings"]], [1, 4])
        self.assertGreater(report[0]["read_bytes_per_second"], 0)
        self.assertIn("tiny-moe", run("bench", "unknown").stderr)

    def test_cpu_backends_and_inspect_give_json(self):
        self.assertIn("generic", run_json(self, "cpu")["built_for"])
        self.assertEqual(run_json(self, "backends")[-1]["name"], "reference")
        self.assertEqual(len(run_json(self, "inspect", MODEL)), 344)
        codes = run_json(self, "inspect", MODEL, "model.layers.0.mlp.experts.3.up_proj.weight")
        self.assertEqual((codes["decoded"], codes["elements"], codes["nan"]), (True, 128 * 256, 0))
        self.assertGreater(codes["rms"], 0)
        self.assertLess(codes["max"], 1)
        self.assertIn("decoded as ModelOpt NVFP4", run("inspect", MODEL, codes["tensor"]).stdout)
        scale = "model.layers.0.mlp.experts.3.up_proj.weight_scale"
        self.assertEqual(run_json(self, "inspect", MODEL, scale)["nan"], 0)


    def test_experts_are_listed_by_their_numbers(self):
        names = [m["name"] for m in run_json(self, "inspect", MODEL)]
        experts = [n.split(".")[5] for n in names if n.startswith("model.layers.0.mlp.experts.")]
        self.assertEqual(experts, sorted(experts, key=int))

    def test_what_the_environment_forces_is_seen(self):
        self.assertEqual(run_json_env(self, {"FEWBIT_THREADS": "1"}, "cpu")["threads_in_use"], 1)
        self.assertEqual(run("cpu", env={"FEWBIT_THREADS": "abc"}).returncode, 2)
        self.assertIn("FEWBIT_BACKEND forces reference",
                      run("backends", env={"FEWBIT_BACKEND": "reference"}).stdout)
        self.assertEqual(run("check", MODEL, env={"FEWBIT_BACKEND": "frob"}).returncode, 2)
        forced = run("check", MODEL, env={"FEWBIT_BACKEND": "cpu_avx512", "FEWBIT_ISA": "generic"})
        self.assertEqual(forced.returncode, 1)
        self.assertIn("layer-not-runnable  FEWBIT_BACKEND", forced.stdout)
        self.assertNotIn("fewbit convert", forced.stdout)

    def test_explain_gives_the_layer_in_json(self):
        problem = run_json(self, "explain", MODEL)["problem"]
        sizes = [problem[key] for key in ("hidden_size", "intermediate_size", "num_experts", "top_k")]
        self.assertEqual(sizes, [256, 128, 16, 4])
        self.assertIn("NVFP4", problem["gate_up"]["text"])
        self.assertIn("NVFP4", problem["down"]["text"])

    def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(self):
        whole = run("inspect", MODEL, "model.layers.0.mlp.experts.3.up_proj").stdout
        self.assertGreater(max(map(len, whole.splitlines())), 60)
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        args = [FEWBIT, "inspect", str(MODEL), "model.layers.0.mlp.experts.3.up_proj"]
        subprocess.run(args, stdout=other, timeout=60, check=True)
        os.close(other)
        shown = os.read(main, 1 << 16).decode().replace("\r", "")
        os.close(main)
        self.assertLessEqual(max(map(len, shown.splitlines())), 60)
        self.assertEqual("".join(shown.split()), "".join(whole.split()))


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


class Usage(unittest.TestCase):
    def test_help_has_examples_and_usage_errors_exit_with_two(self):
        for command in ("check", "inspect", "explain", "quantize", "convert", "eval", "generate",
                        "bench", "cpu", "backends"):
            result = run(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Example", result.stdout)
        for args in ((), ("check",), ("check", ""), ("eval", MODEL), ("cpu", "--what"),
                     ("inspect", MODEL, "")):
            self.assertEqual(run(*args).returncode, 2, args)
        for command in ("check", "bench"):
            self.assertEqual(run("help", command).stdout, run(command, "--help").stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "frob").returncode, 2)
        wrong = run("frob")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("no command 'frob'; known: check, ", wrong.stderr)

    def test_unknown_isa_backend_and_dtype_are_refused_with_the_known_names(self):
        text = MODEL / "val.txt"
        cases = [
            (2, ("cpu",), {"FEWBIT_ISA": "sse9"}, ["sse9", "generic"]),
            (2, ("check", MODEL), {"FEWBIT_ISA": "sse9"}, ["sse9", "generic"]),
            (2, ("explain", MODEL), {"FEWBIT_BACKEND": "gpu9"}, ["gpu9", "reference"]),
            (2, ("eval", MODEL, "--text", text), {"FEWBIT_BACKEND": "gpu9"}, ["gpu9", "reference"]),
            (2, ("eval", MODEL, "--text", text), {"FEWBIT_THREADS": "many"}, ["many"]),
            (2, ("bench", "nosuch"), {}, ["nosuch", "tiny-moe"]),
            (2, ("explain", MODEL, "--device", "tpu"), {}, ["tpu", "cpu:avx2"]),
            (2, ("explain", MODEL, "--backend", "nope"), {}, ["nope", "reference"]),
            (2, ("eval", MODEL, "--text", text, "--activation-dtype", "fp8"), {}, ["fp8", "bf16"]),
            (2, ("convert", MODEL, "-o", "x", "--to", "int8"), {}, ["int8", "bf16"]),
            (2, ("explain", "--problem", "nope"), {}, ["nope", "Mixtral-8x7B"]),
            (2, ("explain", "--problem", "Mixtral-8x7B/nope"), {}, ["nope", "awq-int4-g128"]),
            (2, ("explain", MODEL, "--tp", "16"), {}, ["128", "1 to 8"]),
            (2, ("explain", MODEL, "--engine", "vllm", "--tp", "3"), {}, ["128", "1, 2, 4, 8"]),
            (2, ("explain", MODEL, "--ep", "17"), {}, ["16 over 17", "1 to 16"]),
            (2, ("explain", MODEL, "--layer", "6"), {}, ["--layer", "6 layers"]),
            (2, ("inspect", MODEL, "nope"), {}, ["'nope'", "fewbit inspect"]),
            (2, ("prepare", MODEL, "-o", "x", "--rank", "4"), {}, ["rank 4", "0 to 0"]),
            (2, ("prepare", MODEL, "-o", "x", "--tp", "2", "--ep", "2", "--rank", "4"), {},
             ["rank 4", "0 to 3"]),
            (2, ("prepare", MODEL, "-o", "x", "--tp", "16"), {}, ["--tp", "expected 1 to 8 ranks"]),
            (2, ("prepare", MODEL, "-o", "x", "--ep", "17"), {}, ["--ep", "1 to 16"]),
            (2, ("prepare", MODEL, "-o", "x", "--device", "tpu"), {}, ["tpu", "cpu:avx2"]),
            (2, ("check", MODEL, "--source", MODEL), {}, ["--source"]),
            (2, ("check", MODEL), {"FEWBIT_BACKEND": "marlin"}, ["vLLM", "reference"]),
            (2, ("explain", MODEL), {"FEWBIT_BACKEND": "marlin"}, ["vLLM", "reference"]),
            (2, ("eval", MODEL, "--text", text), {"FEWBIT_BACKEND": "marlin"}, ["vLLM"]),
        ]
        for code, args, env, texts in cases:
            result = run(*args, env=env)
            self.assertEqual(result.returncode, code, args)
            for text_part in texts:
                self.assertIn(text_part, result.stderr)

    def test_numbers_out_of_range_are_usage_errors(self):
        for option, values in {
            "--temperature": ("-1", "nan"),
            "--top-p": ("0", "2", "nan"),
            "--top-k": ("-1",),
            "--seed": ("-1", "18446744073709551616", "x"),
            "--threads": ("-1", "100000"),
            "--max-tokens": ("0",),
        }.items():
            for value in values:
                result = run("generate", MODEL, "--prompt", "x", f"{option}={value}", "--json")
                self.assertEqual(result.returncode, 2, (option, value))
                self.assertEqual(json.loads(result.stdout)["error"]["code"], "usage")
        self.assertEqual(run("bench", "tiny-moe", "--seconds", "nan").returncode, 2)

    def test_names_of_shapes_as_json(self):
        self.assertIn("tiny-moe", run_json(self, "bench", "--list"))

    def test_nothing_is_printed_of_a_refused_prompt(self):
        result = run("generate", MODEL, "--prompt", "word " * 600)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("512", result.stderr)


@unittest.skipUnless(os.environ.get("FEWBIT_TEST_PERPLEXITY"), "not in this build: too slow with sanitizers")
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
        want = json.loads((SOURCE / "rtn_reference.json").read_text())["results"]["nvfp4"]["perplexity"]
        with tempfile.TemporaryDirectory() as folder:
            quantized, decoded = pathlib.Path(folder, "q"), pathlib.Path(folder, "d")
            run_json(self, "quantize", SOURCE, "-o", quantized)
            run_json(self, "convert", quantized, "-o", decoded, "--to", "bf16")
            low_bit = self.eval(quantized, "f32")
            self.assertAlmostEqual(low_bit, want, delta=0.15)
            self.assertAlmostEqual(self.eval(decoded, "f32"), low_bit, delta=0.002 * low_bit)
            self.assertAlmostEqual(self.eval(quantized, "bf16"), want, delta=0.005 * want)

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
