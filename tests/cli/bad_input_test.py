#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fewbit tool on damaged models and wrong input, and stopped half way.

usage: bad_input_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import unittest

from cli_case import FEWBIT, Copy, rewrite_header, run, run_json, write_tensors


def read_as_owner():
    """What root may read beyond the modes of files is given up for the program that is started."""
    bounding_set_drop, read_anything = 24, (1, 2)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    for capability in read_anything if os.getuid() == 0 else ():
        if ctypes.CDLL(None, use_errno=True).prctl(bounding_set_drop, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_CAPBSET_DROP")


class BadInput(Copy):
    def test_truncated_file(self):
        path = self.model / "model.safetensors"
        size = path.stat().st_size
        with open(path, "r+b") as stream:
            stream.truncate(size - 1)
        self.expect_error("model.safetensors", "has only", command="check")

    def test_index_that_names_a_missing_shard(self):
        index = {"metadata": {}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors"}}
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.expect_error("model-00001-of-00002.safetensors", command="check")

    def split(self, count):
        """The model as `count` shards with an index; their paths."""
        raw = (self.model / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        header.pop("__metadata__", None)
        names, files, weight_map = sorted(header), [], {}
        for i in range(count):
            files.append(self.model / f"model-{i + 1:05}-of-{count:05}.safetensors")
            part, data = {}, b""
            for name in names[i * len(names) // count : (i + 1) * len(names) // count]:
                begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
                part[name] = {**header[name], "data_offsets": [len(data), len(data) + end - begin]}
                data += raw[begin:end]
                weight_map[name] = files[-1].name
            text = json.dumps(part).encode()
            files[-1].write_bytes(struct.pack("<Q", len(text)) + text + data)
        (self.model / "model.safetensors").unlink()
        index = {"metadata": {}, "weight_map": weight_map}
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))
        return files

    def test_one_shard_alone_is_not_judged_as_a_whole_model(self):
        files = self.split(3)
        rules = {f["rule"] for f in run_json(self, "check", self.model)["findings"]}
        self.assertNotIn("shard-alone", rules)
        for file in files:
            report = run_json(self, "check", file)  # exits with 0: nothing above info
            told = [f for f in report["findings"] if f["rule"] == "shard-alone"]
            self.assertEqual([f["level"] for f in told], ["info"])
            self.assertIn("3 shards", told[0]["expected"])
        for file in (*files[::2], self.model / "model.safetensors.index.json"):
            file.unlink()
        report = run_json(self, "check", self.model, code=1)
        self.assertEqual([f["rule"] for f in report["findings"] if f["level"] != "info"],
                         ["shard-alone"])

    def test_missing_scale(self):
        name = "model.layers.1.mlp.experts.2.down_proj.weight_scale"

        def drop(header, data):
            header["something.else"] = header.pop(name)
            return header, data

        rewrite_header(self.model / "model.safetensors", drop)
        self.expect_error("model.layers.1.mlp.experts.2.down_proj", "weight_scale")
        self.expect_error("model.layers.1.mlp.experts.2.down_proj", command="check")

    def test_wrong_dtype(self):
        name = "model.layers.0.mlp.experts.0.up_proj.weight_scale_2"

        def change(header, data):
            header[name]["dtype"] = "I32"
            return header, data

        rewrite_header(self.model / "model.safetensors", change)
        self.expect_error(name, "i32", "f32")

    def test_wrong_shape(self):
        name = "model.layers.0.self_attn.q_proj.weight"

        def change(header, data):
            header[name]["shape"] = [256, 512]
            return header, data

        rewrite_header(self.model / "model.safetensors", change)
        self.expect_error("q_proj", "[256, 512]", "[512, 256]")

    def test_weights_that_are_no_numbers_are_found_where_they_stand(self):
        path = self.model / "model.safetensors"
        raw = bytearray(path.read_bytes())
        (length,) = struct.unpack("<Q", raw[:8])
        name = "model.layers.2.self_attn.o_proj.weight"
        begin = json.loads(raw[8 : 8 + length])[name]["data_offsets"][0] + 8 + length
        for row, column, value in ((3, 17, 0x7FC0), (200, 0, 0xFF80)):  # NaN, -inf
            struct.pack_into("<H", raw, begin + 2 * (row * 512 + column), value)
        path.write_bytes(raw)
        self.assertEqual(run("check", self.model).returncode, 0)
        report = run_json(self, "check", self.model, "--weights", code=1)
        (found,) = [f for f in report["findings"] if f["level"] != "info"]
        self.assertEqual((found["rule"], found["where"]), ("weight-nan", name))
        self.assertEqual(found["found"],
                         "2 of 131072 values are NaN or infinite, the first at row 3, column 17")

    def change_config(self, **values):
        path = self.model / "config.json"
        config = json.loads(path.read_text())
        config.update(values)
        path.write_text(json.dumps(config))

    def findings(self):
        report = run_json(self, "check", self.model, code=1)
        self.assertFalse(report["runnable"])
        return {f["rule"]: f for f in report["findings"] if f["level"] != "info"}

    def test_a_layer_fewer_in_the_config_is_no_smaller_model(self):
        self.change_config(num_hidden_layers=5)
        self.assertIn("layers-extra", self.findings())
        self.expect_error("num_hidden_layers is 5", "decoder layer 5", "config.json")

    def test_check_finds_what_eval_refuses(self):
        self.change_config(hidden_act=3)
        self.assertEqual(self.findings()["config-unreadable"]["level"], "error")
        self.change_config(hidden_act="silu", max_position_embeddings=2**32)
        self.assertIn("config-unreadable", self.findings())
        for command in ("eval", "check"):
            self.expect_error("max_position_embeddings", "4294967296", command=command)

    def test_what_fewbit_does_not_run_is_no_fault_of_the_checkpoint(self):
        self.change_config(hidden_act="mystery")
        self.expect_error("mystery", "silu")
        report = run_json(self, "check", self.model)
        self.assertFalse(report["runnable"])
        rules = {f["rule"]: f["level"] for f in report["findings"]}
        self.assertEqual(rules["model-not-runnable"], "info")
        # Mixtral has one name for the width of its experts.
        width = json.loads((self.model / "config.json").read_text())["moe_intermediate_size"]
        self.change_config(hidden_act="silu", model_type="mixtral", intermediate_size=width)
        self.expect_error("mixtral", "qwen3_moe")

    def test_a_renamed_tensor_is_missing_and_unexpected(self):
        name = "model.layers.0.self_attn.q_norm.weight"

        def rename(header, data):
            header["foo.bar"] = header.pop(name)
            return header, data

        rewrite_header(self.model / "model.safetensors", rename)
        found = self.findings()
        self.assertEqual(found["tensor-missing"]["where"], name)
        self.assertEqual(found["tensor-unexpected"]["where"], "foo.bar")
        self.expect_error(name, "missing")

    def test_a_tokenizer_that_does_not_fit(self):
        path = self.model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocab = tokenizer["model"]["vocab"]
        last = max(vocab, key=vocab.get)
        vocab[last] = 1_000_000
        path.write_text(json.dumps(tokenizer))
        self.assertIn("tokenizer-vocabulary", self.findings())
        self.expect_error("tokenizer.json", "1000000", "vocab_size")
        path.write_text("{")
        self.assertIn("tokenizer-unreadable", self.findings())

    def test_a_model_without_tokenizer_is_noted(self):
        (self.model / "tokenizer.json").unlink()
        rules = [f["rule"] for f in run_json(self, "check", self.model)["findings"]]
        self.assertIn("tokenizer-missing", rules)
        self.expect_error("tokenizer.json")

    def test_places_of_the_config_that_differ_name_the_entry(self):
        self.change_config(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4",
                                                "group_size": 16, "ignore": ["lm_head", "frob*"]})
        text = run("check", self.model).stdout
        self.assertIn("config-places-differ", text)
        self.assertIn('"frob*" only here', text)

    def test_a_text_shorter_than_a_window_is_named(self):
        text = self.folder / "short.txt"
        text.write_text("Alice")
        result = run("eval", self.model, "--text", text, "--window", "64")
        self.assertEqual(result.returncode, 1)
        self.assertIn("short.txt", result.stderr)
        self.assertIn("window of 64", result.stderr)

    def test_a_device_is_no_file_of_a_model(self):
        for name, commands in [("tokenizer.json", ("eval", "generate")), ("config.json", ("check", "eval"))]:
            kept = (self.model / name).read_bytes()
            (self.model / name).unlink()
            (self.model / name).symlink_to("/dev/zero")
            for command in commands:
                said = ("expected a regular file, found a device",)
                options = {"eval": ("--text", __file__), "generate": ("--prompt", "x"), "check": ()}[command]
                result = run(command, self.model, *options)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(*said, result.stdout + result.stderr)
            (self.model / name).unlink()
            (self.model / name).write_bytes(kept)

    def test_what_has_no_end_is_no_text_and_no_list(self):
        pipe = self.folder / "pipe"  # nobody writes: who opens it waits
        os.mkfifo(pipe)
        for path, kind in ((pathlib.Path("/dev/zero"), "a device"), (pipe, "a FIFO")):
            for arguments in [
                ("bench", "--compare", path),
                ("bench", "--shapes", path),
                ("eval", self.model, "--text", path),
                ("explain", "--problems", path, "--problem", "x"),
                ("check", path),
                ("inspect", path),
            ]:
                result = subprocess.run([FEWBIT, *map(str, arguments)], capture_output=True, text=True,
                                        timeout=60)
                self.assertNotEqual(result.returncode, 0, arguments)
                self.assertIn(str(path), result.stderr)
                self.assertIn(f"expected a regular file, found {kind}", result.stderr, arguments)

    def test_a_pipe_is_no_file_of_a_model(self):
        for name in sorted(path.name for path in self.model.iterdir()):
            kept = (self.model / name).read_bytes()
            (self.model / name).unlink()
            os.mkfifo(self.model / name)
            for command in ("check", "inspect", "eval", "prepare"):
                more = {"eval": ("--text", __file__), "prepare": ("-o", self.folder / "out")}.get(command, ())
                subprocess.run([FEWBIT, command, self.model, *map(str, more)], capture_output=True,
                               timeout=60)  # ends, whatever it says
                shutil.rmtree(self.folder / "out", ignore_errors=True)
            (self.model / name).unlink()
            (self.model / name).write_bytes(kept)

    def test_a_list_of_shapes_is_small(self):
        big = self.folder / "big.json"
        with open(big, "wb") as file:
            file.truncate(1 << 25)
        for option in ("--compare", "--shapes"):
            result = run("bench", option, big)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"has more than {1 << 24} bytes", result.stderr)

    def test_a_long_name_is_cut(self):
        for name in ("x" * 100_000, "*" + "x" * 100_000):
            result = run("inspect", self.model, name)
            self.assertEqual(result.returncode, 2)
            self.assertIn("no tensor or module", result.stderr)
            self.assertLess(len(result.stderr), 2000)

    def test_unknown_activation(self):
        self.change_config(hidden_act="mystery")
        self.expect_error("hidden_act", "mystery", "silu")

    def test_unknown_quantization_method_is_never_taken_for_plain(self):
        self.change_config(quantization_config={"quant_method": "mystery"})
        (self.model / "hf_quant_config.json").unlink()
        self.expect_error("mystery")

    def test_prompt_longer_than_the_context(self):
        result = run("generate", self.model, "--prompt", "word " * 600)
        self.assertEqual(result.returncode, 1)
        self.assertIn("512", result.stderr)

    def test_existing_output_and_quantized_source_are_refused(self):
        result = run("quantize", self.model, "-o", self.folder / "out")
        self.assertEqual(result.returncode, 1)
        self.assertIn("already quantized", result.stderr)
        self.assertFalse((self.folder / "out").exists())
        result = run("convert", self.model, "-o", self.model, "--to", "bf16")
        self.assertEqual(result.returncode, 1)
        self.assertIn("exists", result.stderr)


class Interrupted(Copy):
    def test_a_signal_leaves_nothing_behind(self):
        plain = self.folder / "plain"
        self.assertEqual(run("convert", self.model, "-o", plain, "--to", "f32").returncode, 0)
        out = self.folder / "out"
        process = subprocess.Popen(
            [FEWBIT, "quantize", plain, "-o", out, "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while process.poll() is None and not list(self.folder.glob("out.partial*")):
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        if process.returncode == 0:
            self.assertTrue(out.exists())
        else:
            self.assertEqual(process.returncode, -signal.SIGINT)
            self.assertIn("stopped by SIGINT after ", errors.decode())
            self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["model", "plain"])


    def test_what_a_killed_process_left_is_named_and_removed_by_the_next(self):
        plain, out = self.folder / "plain", self.folder / "out"
        gone = subprocess.Popen(["true"])
        gone.wait()
        dead = self.folder / f"plain.partial.{gone.pid}"
        alive = self.folder / f"plain.partial.{os.getpid()}"
        others = [alive, self.folder / "plain.partial.x", self.folder / f"other.partial.{gone.pid}"]
        for folder in (dead, *others):
            folder.mkdir()
            (folder / ".fewbit-unfinished").touch()
        (dead / "model.safetensors").write_bytes(b"half")
        # A folder of such a name that is no output of fewbit: the source itself.
        other = subprocess.Popen(["true"])
        other.wait()
        mine = self.folder / f"plain.partial.{other.pid}"
        shutil.copytree(self.model, mine)
        third = subprocess.Popen(["true"])
        third.wait()
        empty = self.folder / f"plain.partial.{third.pid}"
        empty.mkdir()
        result = run("convert", self.model, "-o", plain, "--to", "bf16")
        self.assertEqual(result.returncode, 0)
        self.assertIn(f"removed {dead}, left by a process that was killed", result.stderr)
        self.assertFalse(dead.exists())
        self.assertFalse(empty.exists())
        for folder in others:
            self.assertTrue(folder.exists(), folder)
            self.assertNotIn(str(folder), result.stderr)
            shutil.rmtree(folder)
        self.assertTrue((mine / "model.safetensors").exists())
        self.assertEqual(run("convert", mine, "-o", self.folder / "again", "--to", "bf16").returncode, 0)
        self.assertFalse((self.folder / "again" / ".fewbit-unfinished").exists())
        shutil.rmtree(mine)
        shutil.rmtree(self.folder / "again")
        process = subprocess.Popen([FEWBIT, "quantize", plain, "-o", out, "--threads", "1"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(self.folder.glob("out.partial*")):
            pass
        process.kill()
        process.wait()
        shutil.rmtree(out, ignore_errors=True)
        self.assertEqual(run("quantize", plain, "-o", out).returncode, 0)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["model", "out", "plain"])


class Notes(Copy):
    def test_prepare_notes_what_generate_does_not_run(self):
        path = self.model / "model.safetensors"
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        tensors = {}
        for name, entry in json.loads(raw[8 : 8 + length]).items():
            if name == "__metadata__" or "q_norm" in name or "k_norm" in name:
                continue
            for ours, theirs in (("mlp.", "block_sparse_moe."), ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
                name = name.replace(ours, theirs)
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = (entry["dtype"], entry["shape"], raw[begin:end])
        write_tensors(self.model, tensors)
        config = json.loads((self.model / "config.json").read_text())
        config.update(model_type="mixtral", intermediate_size=config["moe_intermediate_size"],
                      num_local_experts=config["num_experts"])
        (self.model / "config.json").write_text(json.dumps(config))
        result = run("prepare", self.model, "-o", self.folder / "out")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "note: eval and generate do not run this model: model_type "
                         '"mixtral" is known, but not run: eval and generate run qwen3_moe\n')


class WrongFiles(Copy):
    def test_what_is_no_checkpoint_is_told(self):
        text = self.folder / "text"
        text.write_text("root:x:0:0:root:/root:/bin/bash\n" * 9)
        self.assertIn("not a safetensors or GGUF file", run("check", text).stderr)
        config = run("check", self.model / "config.json")
        self.assertEqual(config.returncode, 1)
        self.assertIn(f'expected the folder "{self.model}" instead', config.stderr)

    def test_an_unreadable_tokenizer_has_the_reason(self):
        (self.model / "tokenizer.json").chmod(0)
        result = subprocess.run([FEWBIT, "generate", self.model, "--prompt", "x"], capture_output=True, text=True,
                                timeout=100, preexec_fn=read_as_owner)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("tokenizer.json: cannot open: Permission denied", result.stderr)

    def test_a_missing_parent_of_the_output_is_named(self):
        for command in (("convert", "--to", "bf16"), ("prepare",)):
            result = run(command[0], self.model, *command[1:], "-o", self.folder / "sub" / "dir" / "q")
            self.assertEqual(result.returncode, 1)
            self.assertIn(f'{self.folder}/sub/dir: no such folder to write "q" in', result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
