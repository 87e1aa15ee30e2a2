#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small checkpoints of every producer and calls the tool on them: identified, checked,
decoded and compared in float64.

usage: run.py FEWBIT [NAME…]     only cases whose name contains a NAME
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).parent
# Three operations, each rounded to f32, and some slack for the last bit of the bound itself.
BOUND = 4 * 2.0**-24
# The small checkpoints are no whole models.
ALWAYS_ALLOWED = {"config-unreadable"}
# Errors that say nothing about the values of the weights, so that they are decoded all the same.
CHECK_ALONE = {
    "config-unreadable",
    "layer-not-runnable",
    "tokenizer-unreadable",
    "tokenizer-vocabulary",
    "tensor-unexpected",
    "bias-unsupported",
    "activation-gate",
    "config-top-k",
    "config-expert-groups",
    "config-names-differ",
}
# Of checkpoints that are in order, but not for convert.
CONVERT_ALONE = {"nothing is quantized"}


def fewbit(program, *arguments):
    run = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    try:
        return run.returncode, json.loads(run.stdout)
    except json.JSONDecodeError:
        return run.returncode, {"text": run.stdout + run.stderr}


def text_problems(case, report):
    texts = [text for f in report.get("findings", []) for text in (f["where"], f["found"], f["expected"])]
    texts += map(str, report.get("error", {}).values())
    return [f"nothing says '{text}'" for text in case.said if not any(text in one for one in texts)]


def findings_problems(case, code, report):
    if "findings" not in report:
        said = report.get("error", {}).get("what", "")
        wrong = [rule for rule in case.faults if not said.startswith(rule)]
        return [f"check failed: {report}, expected {case.faults}"] if wrong or not case.faults else []
    serious = {f["rule"] for f in report["findings"] if f["level"] != "info"}
    problems = [f"no finding {rule}: has {sorted(serious)}" for rule in case.faults if rule not in serious]
    problems += [f"unexpected finding {rule}" for rule in case.absent if any(f["rule"] == rule for f in report["findings"])]
    noted = {f["rule"] for f in report["findings"] if f["level"] == "info"}
    problems += [f"no note {rule}: has {sorted(noted)}" for rule in case.notes if rule not in noted]
    if not case.faults:
        problems += [
            f"unexpected finding {f['rule']}: {f['where']} found {f['found']} expected {f['expected']}"
            for f in report["findings"]
            if f["level"] != "info" and f["rule"] not in ALWAYS_ALLOWED.union(case.warnings)
        ]
        wanted = int(any(f["level"] != "info" for f in report["findings"]))
        if code != wanted:
            problems.append(f"check exits {code}, expected {wanted}")
    return problems


def scheme_problems(case, modules):
    found = {module["name"]: module["scheme"] + module["unreadable"] for module in modules}
    return [
        f"{name}: scheme '{found.get(name)}', expected '{text}'"
        for name, text in case.schemes.items()
        if text not in found.get(name, "")
    ]


def value_problems(case, folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    problems = []
    for name, want in case.values.items():
        got = found.get(name)
        if got is None or got.shape != want.shape:
            problems.append(f"{name}: shape {None if got is None else got.shape}, expected {want.shape}")
            continue
        bound = BOUND * case.magnitudes.get(name, np.abs(want))
        wrong = ~(np.abs(got.astype(np.float64) - want) <= bound) & ~(np.isnan(got) & np.isnan(want))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            problems.append(f"{name}: {wrong.sum()} of {want.size} differ, first {at}: {got[at]}, expected {want[at]}")
    return problems


def decoded_problems(program, case, folder):
    """What was decoded has the values, and is plain for the tool itself."""
    _, report = fewbit(program, "check", folder, "--json")
    producer = report.get("producer")
    plain = [] if producer == "unquantized" else [f"the decoded checkpoint is {producer} for check"]
    return plain + value_problems(case, folder)


def agreement_problems(errors, code, said):
    """What check calls an error convert refuses, and the reverse."""
    text = json.dumps(said)
    errors = errors - CHECK_ALONE
    if code != 0 and not errors:
        reason = next((reason for reason in CONVERT_ALONE if reason in text), None)
        return [] if reason else [f"convert refuses what is no error for check: {text}"]
    if code == 0 and errors:
        return [f"convert accepts what check calls an error: {sorted(errors)}"]
    return []


def errors_of(report):
    """Rules of the errors; a checkpoint that can't be opened has one without a name."""
    if "findings" not in report:
        return {"unopened"}
    return {finding["rule"] for finding in report["findings"] if finding["level"] == "error"}


def quantized_problems(program, case, folder):
    """Of plain weights that NVFP4 holds exactly: quantized, checked, and decoded again."""
    code, said = fewbit(program, "quantize", folder / "checkpoint", "-o", folder / "quantized", "--json")
    if code != 0:
        return [f"quantize failed: {said}"]
    problems = findings_problems(replace(case, notes=()), *fewbit(program, "check", folder / "quantized", "--weights", "--json"))
    code, said = fewbit(program, "convert", folder / "quantized", "-o", folder / "decoded", "--to", "f32", "--json")
    if problems or code != 0:
        return [f"of the quantized checkpoint: {problem}" for problem in [*problems, said]]
    return decoded_problems(program, case, folder / "decoded")


def problems_of(program, case, folder):
    case.write(folder / "checkpoint")
    code, report = fewbit(program, "check", folder / "checkpoint" / case.named, case.depth, "--json")
    problems = [*case.contradictions, *findings_problems(case, code, report), *text_problems(case, report)]
    if case.schemes:
        _, modules = fewbit(program, "inspect", folder / "checkpoint", "--json")
        if isinstance(modules, dict):
            problems.append(f"inspect failed: {modules}")
        else:
            problems += scheme_problems(case, modules)
    if case.named:
        return problems
    code, said = fewbit(program, "convert", folder / "checkpoint", "-o", folder / "decoded", "--to", "f32", "--json")
    problems += agreement_problems(errors_of(report), code, said)
    problems += ["convert accepts it"] if case.refused and code == 0 else []
    if case.lossless_nvfp4:
        problems += quantized_problems(program, case, folder)
    elif case.values and not case.faults:
        problems += decoded_problems(program, case, folder / "decoded") if code == 0 else [f"convert failed: {said}"]
    return problems


def all_cases():
    for file in sorted(HERE.glob("*.py")):
        module = importlib.import_module(file.stem) if file.stem != "run" else None
        yield from getattr(module, "cases", tuple)()


def wanted_cases(names):
    seen = set()
    for case in all_cases():
        if names and not any(name in case.name for name in names):
            continue
        if case.name in seen:
            sys.exit(f"two cases are named {case.name}")
        seen.add(case.name)
        yield case


def tried(program, case):
    with tempfile.TemporaryDirectory() as scratch:
        return case.name, problems_of(program, case, Path(scratch))


def main():
    program, *names = sys.argv[1:]
    count, failed = 0, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, problems in pool.map(lambda case: tried(program, case), wanted_cases(names)):
            count += 1
            failed += bool(problems)
            for problem in problems:
                print(f"{name}: {problem}")
    print(f"{count} checkpoints, {failed} failed")
    sys.exit(count == 0 or failed > 0)


if __name__ == "__main__":
    main()
