#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every rule of docs/errors.md is named by a test, and every finding of the code is listed there.

usage: rules_tested.py PROJECT
"""

import re
import sys
from pathlib import Path


def rules_of(document):
    """The names in the first column of every table."""
    columns = [line.split("|")[1] for line in document.splitlines() if line.startswith("|")]
    return sorted({name for column in columns for name in re.findall(r"`([a-z0-9]+(?:[-_][a-z0-9]+)*)`", column)})


def text_of(folder, *patterns):
    return "\n".join(file.read_text() for pattern in patterns for file in sorted(folder.rglob(pattern)))


def main():
    project = Path(sys.argv[1])
    rules = rules_of((project / "docs/errors.md").read_text())
    code = "\n".join(text_of(project / part, "*.cpp", "*.hpp") for part in ("src", "cli"))
    tests = text_of(project / "tests", "*_test.cpp", "*.py")
    found = re.findall(r"(?<!Isa)Level::\w+,\s*\"([a-z0-9-]+)\"", code)
    problems = [f"{rule} is a finding, but not in docs/errors.md" for rule in sorted(set(found) - set(rules))]
    problems += [
        f"{rule} is in no test" for rule in rules if not re.search(r"[\"'(: ]" + re.escape(rule) + r"[\"': ,):]", tests)
    ]
    print("\n".join([*problems, f"{len(rules)} rules, {len(problems)} problems"]))
    sys.exit(bool(problems) or not rules or not found)


if __name__ == "__main__":
    main()
