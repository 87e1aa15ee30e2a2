#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every row of docs/differences.md names tests, and every test that it names exists.

In the last column: `Suite.Test` or `Suite.*` of the C++ tests, the name of a producers' checkpoint
(`*` at its end stands for any), a file of the project, or "the same" as in the row before.

usage: differences_tested.py PROJECT
"""

import importlib.util
import re
import sys
from pathlib import Path

CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def rows_of(document):
    """First and last cell of every row below a table's head."""
    lines = [line.strip() for line in document.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [(row[0], row[-1]) for row in cells if not set(row[0]) <= set("-: ") and row[-1] != "test"]


def cpp_tests(project):
    files = [file for pattern in ("*.cpp", "*.hpp") for file in (project / "tests").rglob(pattern)]
    return {f"{suite}.{name}" for file in files for suite, name in CPP_TEST.findall(file.read_text())}


def checkpoints(project):
    """Names of the producers' small checkpoints; None without what they are written with."""
    if not all(importlib.util.find_spec(module) for module in ("numpy", "safetensors")):
        return None
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(project / "tests/producers"))
    return {case.name for case in importlib.import_module("run").all_cases()}


def exists(name, project, tests, cases):
    if "/" in name:
        return (project / name).is_file()
    known = tests if name[0].isupper() else cases
    if known is None:
        return True
    return any(each.startswith(name[:-1]) if name.endswith("*") else each == name for each in known)


def main():
    project = Path(sys.argv[1])
    rows = rows_of((project / "docs/differences.md").read_text())
    tests, cases = cpp_tests(project), checkpoints(project)
    named = [(subject, name) for subject, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    problems = [
        f"{subject}: names no test"
        for i, (subject, cell) in enumerate(rows)
        if "`" not in cell and (cell != "the same" or i == 0)
    ]
    problems += [f"{subject}: there is no test {name}" for subject, name in named if not exists(name, project, tests, cases)]
    if cases is None:
        print("numpy or safetensors is missing: the producers' checkpoints were not looked up")
    print("\n".join([*problems, f"{len(rows)} differences, {len(named)} tests named, {len(problems)} problems"]))
    sys.exit(bool(problems) or not rows or not tests)


if __name__ == "__main__":
    main()
