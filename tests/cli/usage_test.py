#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the fewbit tool says of wrong options, and what reaches a terminal.

usage: usage_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from cli_case import FEWBIT, MODEL, run, run_json, write_tensors


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


class Glossary(unittest.TestCase):
    """docs/checks.md explains what stands in the tables."""

    def test_every_name_of_a_role_reason_routing_exchange_activation_and_layout_is_there(self):
        root = pathlib.Path(__file__).parents[2]
        docs = (root / "docs/checks.md").read_text()
        glossary = docs[docs.index("## Words on the page"):]
        for file, begin, pattern, least in (
            ("src/scheme/scheme_text.cpp", "const char* role_name(", r'return "(\w+)";', 20),
            ("src/scheme/scheme_text.cpp", "const char* activation_name(", r'return "(\w+)";', 5),
            ("src/select/select.cpp", "const char* reason_name(", r'return "([\w ]+)";', 10),
            ("src/select/names.cpp", " exchanges = ", r'::\w+, "(\w+)"', 7),
            ("src/select/names.cpp", " routings = ", r'::\w+, "(\w+)"', 9),
        ):
            text = (root / file).read_text()
            body = text[text.index(begin):]
            names = set(re.findall(pattern, body[:body.index("\n}")])) - {"unknown"}
            self.assertGreaterEqual(len(names), least, begin)
            for name in names:
                self.assertRegex(glossary, rf"\b{name}\b", begin)
        layouts = {name for option in ((), ("--foreign",)) for backend in run_json(self, "backends", *option)
                   for name in backend["layouts"]}
        self.assertIn("row_major", layouts)
        table = (root / "docs/backends.md").read_text()
        for name in layouts:
            self.assertIn(f"`{name}`", table[table.index("### Layouts"):])


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
        self.assertIn("expected a command: check, inspect, ", run().stderr)
        for command in ("explain", "prepare", "bench"):
            lines = run(command, "--help").stdout.splitlines()
            self.assertLessEqual(max(map(len, lines)), 240, command)

    def test_paragraphs_of_help_are_broken_where_a_line_is_full(self):
        for command in ("check", "inspect", "explain", "prepare", "quantize", "convert", "eval",
                        "generate", "bench", "cpu", "backends"):
            lines = run(command, "--help").stdout.splitlines()[1:]
            for line, after in zip(lines, lines[1:] + [""]):
                if not line or line[0] == " " or line.startswith("Usage"):
                    continue
                self.assertLessEqual(len(line), 100, f"{command}: {line}")
                goes_on = after and after[0] != " " and line[-1] not in ".:;" and not line.endswith("Options:")
                if goes_on:
                    self.assertGreater(len(line), 70, f"{command}: {line}")

    def test_what_was_mistyped_is_named_with_what_was_meant(self):
        for args, texts in (
            (("inspct", MODEL), ("no command 'inspct'; did you mean inspect? known: ",)),
            (("-V",), ("no option -V; did you mean --version?",)),
            (("-v",), ("no option -v; did you mean --version?",)),
            (("check", MODEL, "--devic", "sm_90"), ("check: no option --devic; did you mean --device?",)),
            (("check", MODEL, "--devic=sm_90"), ("check: no option --devic; did you mean --device?",)),
            (("quantize", MODEL, "q3"), ("--output is required", "unexpected argument 'q3'")),
            (("explain", MODEL, "--backend", "marln"), ('unknown backend "marln"; did you mean marlin?',)),
            (("help", "inspcet"), ("no command 'inspcet'; did you mean inspect?",)),
            (("explain", MODEL, "--device", "sm90"), ("did you mean sm_90?",)),
            (("explain", MODEL, "--engine", "vlm"), ("did you mean vllm?",)),
            (("bench", "mixtrel"), ("did you mean Mixtral?",)),
            (("convert", MODEL, "-o", "x", "--to", "b16"), ("'b16' is none of bf16, f16, f32; did you mean bf16?",)),
            (("generate", MODEL, "--prompt", "x", "--max-tokens", "abc"),
             ("'abc' is no whole number, expected 1 to ",)),
            (("generate", MODEL, "--prompt", "x", "--temperature", "warm"), ("'warm' is no number",)),
            (("eval", MODEL, "--text", "x", "--window", "0"), ("0 is out of range, expected 1 to ",)),
        ):
            result = run(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            for text in texts:
                self.assertIn(text, result.stderr)
            self.assertLess(len(result.stderr), 400, result.stderr)

    def test_a_published_layer_is_found_whatever_the_case(self):
        args = ("--device", "SM_90", "--engine", "VLLM", "--backend", "Marlin", "--activation-dtype", "BF16")
        text = run("explain", "--problem", "mixtral-8X7b/GPTQ-int4-g128", *args).stdout
        self.assertIn("8 experts, top-2, hidden 4096", text)
        self.assertIn("chosen   marlin, forced", text)
        for wrong, meant in (("gpt-oss", "gpt-oss-20b"), ("mixtral-8x7/bf16", "Mixtral-8x7B/bf16")):
            self.assertIn(f"did you mean {meant}?", run("explain", "--problem", wrong).stderr)

    def test_a_wrong_variable_is_one_of_every_command(self):
        for name, value in (("FEWBIT_THREADS", "-1"), ("FEWBIT_BACKEND", "zz"), ("FEWBIT_ISA", "zz")):
            for args in (("check", MODEL), ("inspect", MODEL), ("cpu",)):
                result = run(*args, env={name: value})
                self.assertEqual(result.returncode, 2, (name, args))
                self.assertIn(name, result.stderr)

    def test_a_backend_of_the_environment_is_one_of_the_option(self):
        """Used or refused by the same rule, with the same words; of dense layers neither asks."""
        generate = ("generate", MODEL, "--prompt", "Once", "--max-tokens", 2)
        names = [b["name"] for b in run_json(self, "backends")]
        for name in (*names, "Cpu_Generic"):
            for command in (generate, ("explain", MODEL)):
                option = run(*command, "--backend", name)
                variable = run(*command, env={"FEWBIT_BACKEND": name})
                self.assertEqual(variable.returncode, option.returncode, (name, command))
                self.assertEqual(variable.stdout, option.stdout, (name, command))
                if option.returncode:
                    self.assertEqual(variable.stderr, option.stderr, (name, command))
        for name in ("zz", "marlin", "cpu_avx51"):
            option = run(*generate, "--backend", name)
            variable = run(*generate, env={"FEWBIT_BACKEND": name})
            self.assertEqual((option.returncode, variable.returncode), (2, 2))
            self.assertEqual(option.stderr.split("\n")[0].removeprefix("error: generate: --backend: "),
                             variable.stderr.strip().removeprefix("error: FEWBIT_BACKEND: "))

    def test_a_forced_backend_that_refuses_is_told_by_every_check_and_no_fault_of_the_files(self):
        with tempfile.TemporaryDirectory() as folder:
            prepared = pathlib.Path(folder) / "prepared"
            self.assertEqual(run("prepare", MODEL, "-o", prepared, "--backend", "cpu_generic").returncode, 0)
            for model in (MODEL, prepared):
                page = run("check", model, env={"FEWBIT_BACKEND": "cuda_moe"})
                self.assertEqual(page.returncode, 0, page.stdout)
                self.assertIn("info    layer-not-runnable  FEWBIT_BACKEND", page.stdout)
                self.assertIn("result: fine, 1 note; ", page.stdout)
                self.assertIn("found backend cuda_moe can't run it: device: needs a CUDA device", page.stdout)
                self.assertEqual(run("check", model).returncode, 0)

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
            (2, ("explain", MODEL, "--tp", "16"), {}, ["--tp: layer 0: 16 ranks can't share 128 intermediate features: they are 8 runs of 16, "
                                                     "at least one a rank; legal: 1 to 8\n"]),
            (2, ("explain", MODEL, "--engine", "vllm", "--tp", "3"), {}, ["--tp", "3 ranks can't share 128 intermediate features equally: 128 / 3 = 42.6667; "
                                                                          "legal, in whole runs of 16: 1, 2, 4, 8\n"]),
            (2, ("explain", MODEL, "--ep", "17"), {}, ["--ep: layer 0: 17 ranks can't share 16 experts: at least one a rank; legal: 1 to 16\n"]),
            (2, ("explain", MODEL, "--layer", "6"), {}, ["--layer", "6 layers"]),
            (2, ("inspect", MODEL, "nope"), {}, ["'nope'", "fewbit inspect"]),
            (2, ("prepare", MODEL, "-o", "x", "--rank", "4"), {}, ["--rank: ", "rank 4, but 1 tensor rank x 1 expert rank are 1; legal: 0\n"]),
            (2, ("prepare", MODEL, "-o", "x", "--tp", "2", "--ep", "2", "--rank", "4"), {},
             ["rank 4, but 2 tensor ranks x 2 expert ranks are 4; legal: 0 to 3\n"]),
            (2, ("prepare", MODEL, "-o", "x", "--tp", "16"), {}, ["--tp: ", "16 ranks can't share 128 intermediate features", "legal: 1 to 8\n"]),
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

    def test_explain_tells_a_forced_backend_as_any_other_error(self):
        for args, env in (((), {"FEWBIT_BACKEND": "zz"}), (("--backend", "marlin"), {})):
            result = run("explain", MODEL, *args, "--json", env=env)
            self.assertEqual(result.returncode, 2)
            error = json.loads(result.stdout)["error"]
            self.assertEqual((error["code"], error["where"]), ("usage", "command line"))
            self.assertEqual(result.stderr, f"error: {error['what']}\n")

    def test_every_wrong_use_begins_with_error(self):
        for args in (("check",), ("explain",), ("cpu", "--what"), ("frob",), (),
                     ("generate", MODEL, "--prompt", "")):
            result = run(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertTrue(result.stderr.startswith("error: "), result.stderr)

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


class Signals(unittest.TestCase):
    """Stopped work ends by the signal itself, so that a shell's loop ends too."""

    def start(self, *args):
        def as_in_a_terminal():
            for kind in (signal.SIGINT, signal.SIGTERM):
                signal.signal(kind, signal.SIG_DFL)

        return subprocess.Popen([FEWBIT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, preexec_fn=as_in_a_terminal)

    def test_generate_ends_its_line_and_dies_of_the_signal(self):
        for kind in (signal.SIGINT, signal.SIGTERM):
            process = self.start("generate", MODEL, "--prompt", "Once", "--max-tokens", 480, "--threads", 1)
            first = process.stdout.read(1)
            process.send_signal(kind)
            out, err = process.communicate(timeout=100)
            self.assertEqual((first, process.returncode), ("O", -kind), err)
            self.assertTrue(out.endswith("\n"))
            self.assertRegex(err, f"^error: {re.escape(str(MODEL))}: stopped by {kind.name} after [0-9]+ of 480 tokens\n$")

    def test_bench_prints_what_it_has_measured(self):
        for json_option in ((), ("--json",)):
            process = self.start("bench", "tiny-moe", "--tokens", "1,4", "--seconds", 3, *json_option)
            time.sleep(1.5)  # each row takes three seconds or more
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, -signal.SIGINT, err)
            self.assertRegex(err, "^error: bench: stopped by SIGINT after [01] of 2 rows\n$")
            if json_option:
                report = json.loads(out)
                self.assertEqual(report["error"]["code"], "cancelled")
                self.assertEqual(len(report["layers"]), int(re.search("after ([01])", err).group(1)))

    def test_eval_dies_of_it_in_the_same_words(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "long.txt")
            text.write_text((MODEL / "val.txt").read_text() * 4)
            for seconds in (0.5, 1, 2, 4, 8):  # too early: before there is anything to clean up
                process = self.start("eval", MODEL, "--text", text, "--threads", 1, "--json")
                time.sleep(seconds)
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=100)
                if process.returncode != 0:
                    self.assertEqual(process.returncode, -signal.SIGTERM, err)
                if err:
                    break
        self.assertRegex(err, "^error: .*: stopped by SIGTERM after [0-9]+ of [0-9]+ (tokens|bytes)\n$")
        self.assertEqual(json.loads(out)["error"]["code"], "cancelled")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
