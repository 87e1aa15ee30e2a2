#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of check, inspect, eval, generate, bench and others, as text and JSON.

usage: report_test.py FEWBIT MODEL_DIR   (standard library only)
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

from cli_case import FEWBIT, MODEL, REFERENCE_PERPLEXITY, run, run_json, write_tensors


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
        self.assertLess(len(text.splitlines()), 63)

    @unittest.skipUnless(os.environ.get("FEWBIT_TEST_PERPLEXITY"), "FEWBIT_TEST_PERPLEXITY is not set: for the g++ build without sanitizers, others are too slow")
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
        (layer,) = report["layers"]
        self.assertEqual([t["tokens"] for t in layer["timings"]], [1, 4])
        limits, row = layer["limits"], layer["timings"][0]
        self.assertEqual(limits["measurements"], 3)
        self.assertLessEqual(limits["lowest"]["read_bytes_per_second"], limits["read_bytes_per_second"])
        above = [t for t in layer["timings"] for kind in ("read", "fma", "tile")
                 if t.get(f"fraction_of_{kind}_limit", 0) > 1]
        self.assertTrue(layer["limit_disturbed"] or not above)
        self.assertEqual("limit_note" in layer, layer["limit_disturbed"])
        self.assertEqual(row["weight_bytes_per_second"] / limits["read_bytes_per_second"],
                         row["fraction_of_read_limit"])
        self.assertEqual(row["flops_per_second"] / limits["fma_f32_flops_per_second"],
                         row["fraction_of_fma_limit"])
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "other.json"
            layer["timings"][1]["tokens"] = 9
            row["median_seconds"] = 1000
            other.write_text(json.dumps(report))
            again = ("bench", "Tiny-MoE", "--tokens", "1,4", "--seconds", "0.05", "--compare", other)
            rows = run_json(self, *again)["layers"][0]["timings"]
            self.assertAlmostEqual(rows[0]["times_as_fast_as_other"], 1000 / rows[0]["median_seconds"])
            self.assertNotIn("times_as_fast_as_other", rows[1])
            self.assertRegex(run(*again).stdout, r"\n +1 +1000000\.000 ")
            other.write_text("[]")
            self.assertIn("no list of layers", run(*again).stderr)
        self.assertIn("tiny-moe", run("bench", "unknown").stderr)

    def test_bench_measures_dense_layers(self):
        names = run_json(self, "bench", "--list")
        for name in ("dense-4096x4096", "dense-14336x4096", "dense-14336x4096/mxfp4"):
            self.assertIn(name, names)
        report = run_json(self, "bench", "dense-4096x4096/nvfp4", "--tokens", "1", "--seconds", "0.05")
        (layer,) = report["layers"]
        self.assertEqual((layer["out_features"], layer["in_features"]), (4096, 4096))
        self.assertNotIn("num_experts", layer)
        (row,) = layer["timings"]
        # Half a byte a code, a byte a group of 16.
        self.assertAlmostEqual(row["weight_bytes_per_second"] * row["median_seconds"] / 4096**2, 9 / 16,
                               places=3)
        self.assertAlmostEqual(row["flops_per_second"] * row["median_seconds"], 2 * 4096**2, delta=1)

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

    def test_a_beginning_or_a_pattern_lists_modules(self):
        prefix = [m["name"] for m in run_json(self, "inspect", MODEL, "model.layers.0")]
        self.assertEqual(len(prefix), 57)
        self.assertTrue(all(name.startswith("model.layers.0.") for name in prefix))
        self.assertEqual([m["name"] for m in run_json(self, "inspect", MODEL, "model.layers.0.*")], prefix)
        routers = run("inspect", MODEL, "*.mlp.gate")
        self.assertIn("6 modules for '*.mlp.gate'; the whole name", routers.stdout)
        self.assertEqual(run("inspect", MODEL, "model.layers.0.ml").returncode, 2)
        for wrong, meant in (("model.layers.0.mlp.gaet", "'model.layers.0.mlp.gate'"),
                             ("model.layer.0", "'model.layers.0'"),
                             ("Model.layer.3.*_proj", "'model.layers.3.*_proj'"),
                             ("model.layers.0.mlp.experts.3.up_proj.weight_scal_2",
                              "'model.layers.0.mlp.experts.3.up_proj.weight_scale_2'")):
            self.assertIn("did you mean " + meant, run("inspect", MODEL, wrong).stderr)

    def test_check_ends_with_what_the_findings_come_to(self):
        fine = run("check", MODEL)
        self.assertEqual(fine.returncode, 0)
        runs = "; fewbit runs it on this machine, experts on "
        self.assertRegex(fine.stdout.splitlines()[-1], "^result: fine" + runs + "[a-z0-9_]+$")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "hf_quant_config.json", "model.safetensors"):
                (pathlib.Path(folder) / name).symlink_to(pathlib.Path(MODEL).resolve() / name)
            noted = run("check", folder)
            self.assertEqual(noted.returncode, 0)
            self.assertRegex(noted.stdout.splitlines()[-1],
                             "^result: fine, 1 note; fewbit runs its experts .*, but not the whole model$")
            self.assertEqual(run_json(self, "check", folder)["result"],
                             {"fine": True, "errors": 0, "warnings": 0, "notes": 1})
        with tempfile.TemporaryDirectory() as folder:
            write_tensors(pathlib.Path(folder), {"model.layers.0.mlp.up_proj.weight_scale": ("F32", [1], b"1234")})
            wrong = run("check", folder)
            counts = run_json(self, "check", folder, code=1)["result"]
        self.assertEqual(wrong.returncode, 1)
        self.assertFalse(counts["fine"])
        self.assertRegex(wrong.stdout.splitlines()[-1], "^result: [0-9]+ (error|warning)s?.*run it")

    def test_what_a_shard_alone_lacks_may_be_in_another(self):
        module = "model.layers.0.mlp.up_proj"
        scale = {module + ".weight_scale": ("F8_E4M3", [16, 2], bytes(32))}
        with tempfile.TemporaryDirectory() as folder:
            for name, level in (("model-00001-of-00002", "info"), ("model", "error")):
                shard = pathlib.Path(folder) / (name + ".safetensors")
                write_tensors(pathlib.Path(folder), scale)
                (pathlib.Path(folder) / "model.safetensors").rename(shard)
                report = json.loads(run("check", shard, "--json").stdout)
                found = [f for f in report["findings"] if f["rule"] == "scale-without-weight"]
                self.assertEqual([f["level"] for f in found], [level])
                shard.unlink()

    def test_whole_pages_fit_a_terminal_at_blanks(self):
        whole = run("check", MODEL).stdout
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        for columns in (70, 90):
            process = subprocess.Popen([FEWBIT, "check", str(MODEL)], stdout=other, stderr=subprocess.PIPE,
                                       env={**os.environ, "COLUMNS": str(columns)})
            shown = b""
            while b"\nresult: " not in shown or not shown.endswith(b"\n"):
                shown += os.read(main, 1 << 16)
            self.assertEqual(process.wait(timeout=60), 0)
            process.stderr.close()
            lines = shown.decode().replace("\r", "").splitlines()
            self.assertLessEqual(max(map(len, lines)), columns)
            self.assertEqual(sorted(" ".join(lines).split()), sorted(whole.split()))
        os.close(other)
        os.close(main)
        self.assertEqual(run("check", MODEL, env={"COLUMNS": "40"}).stdout, whole)  # no terminal

    def test_long_errors_fit_a_terminal_too(self):
        args = ("explain", MODEL, "--backend", "cuda_moe")
        whole = run(*args).stderr
        self.assertGreater(len(whole), 90)
        main, other = pty.openpty()
        process = subprocess.Popen([FEWBIT, *map(str, args)], stdout=subprocess.DEVNULL, stderr=other,
                                   env={**os.environ, "COLUMNS": "70"})
        self.assertEqual(process.wait(timeout=60), 1)
        lines = os.read(main, 1 << 16).decode().replace("\r", "").splitlines()
        os.close(other)
        os.close(main)
        self.assertLessEqual(max(map(len, lines)), 70)
        self.assertEqual(" ".join(lines).split(), whole.split())

    def test_experts_are_listed_by_their_numbers(self):
        names = [m["name"] for m in run_json(self, "inspect", MODEL)]
        experts = [n.split(".")[5] for n in names if n.startswith("model.layers.0.mlp.experts.")]
        self.assertEqual(experts, sorted(experts, key=int))

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
