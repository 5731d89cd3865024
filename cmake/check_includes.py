#!/usr/bin/env python3
"""Checks the dependency rule of the source tree, and that headers open as headers should.

    suite -> {techniques, models, data_loaders} -> engine -> backends -> core

A folder includes itself and what ALLOWED says. One technique never includes another; files directly
in techniques/ (shared pieces, the registry) may include any. oneDNN stays inside backends/ and the
tests. Includes name the file from the root of the tree. Every header starts with a comment that
says its purpose, then #pragma once. The build information is included by one source file, because
that file is compiled again at every commit.

Each fault is one line, FILE:LINE: sentence, and the exit status is 1.
"""

import argparse
import re
import sys
from pathlib import Path

ALLOWED = {
    "core": {"core"},
    "backends": {"backends", "core"},
    "engine": {"engine", "backends", "core"},
    "models": {"models", "engine", "backends", "core"},
    "techniques": {"techniques", "engine", "backends", "core"},
    "data_loaders": {"data_loaders", "engine", "core"},
    "suite": {"suite", "techniques", "models", "data_loaders", "engine", "backends", "core"},
    "tests": {"tests", "suite", "techniques", "models", "data_loaders", "engine", "backends",
              "core"},
}
MAY_INCLUDE_ONEDNN = {"backends", "tests"}
GENERATED = "memfloor_build_info.h"
MAY_INCLUDE_GENERATED = {"suite", "tests"}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
HEADERS = {".h", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def code_lines(text):
    """Yields (number, line), leaving out lines inside /* */ comments."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = "*/" not in line
            continue
        opening = line.find("/*")
        if opening >= 0 and not line[:opening].strip():
            inside = "*/" not in line[opening:]
            continue
        yield number, line


def fault_of_include(path, quote, name):
    """One sentence if the file `path` (relative) may not include `name`, else None."""
    folder = path.parts[0]
    if quote == "<":
        if (name.startswith("oneapi/dnnl/") or re.match(r"dnnl\.h(pp)?$", name)) \
                and folder not in MAY_INCLUDE_ONEDNN:
            return f"{folder}/ must not include <{name}>: only backends/ knows oneDNN."
        first = name.split("/")[0]
        if first in ALLOWED and "/" in name:
            return f'our own header is included as "{name}", in quotes.'
        return None
    if name == GENERATED:
        if folder not in MAY_INCLUDE_GENERATED:
            return f"{folder}/ must not include {GENERATED}: only suite/ reports the build."
        return None
    target = Path(name).parts
    if ".." in target or len(target) < 2 or target[0] not in ALLOWED:
        if target[0] == "oneapi":
            return f"library headers are included in angle brackets: <{name}>."
        return (f'"{name}" must be named from the root of the tree, as in '
                f'"{folder}/{Path(name).name}".')
    if target[0] not in ALLOWED[folder]:
        may = ", ".join(sorted(ALLOWED[folder]))
        return f'{folder}/ must not include "{name}": it may include only {may}.'
    if folder == "techniques" and target[0] == "techniques" and len(path.parts) > 2:
        own = path.parts[1]
        if len(target) > 2 and target[1] != own:
            return (f'techniques/{own}/ must not include "{name}": '
                    "one technique never includes another.")
    return None


def faults_of_header(text):
    """Yields (line, sentence) for a header that does not start as headers should."""
    lines = text.splitlines()
    first = next(((n, l) for n, l in enumerate(lines, 1) if l.strip()), (1, ""))
    if not first[1].lstrip().startswith(("//", "/*")):
        yield first[0], "a header starts with a comment that says its purpose."
    first_code = next(((n, l) for n, l in code_lines(text)
                       if l.strip() and not l.lstrip().startswith("//")), (1, ""))
    if first_code[1].strip() != "#pragma once":
        yield first_code[0], "the first line of code in a header is #pragma once."


def check(root):
    """Returns (number of files, list of faults as strings) for the tree at `root`."""
    faults, count, users_of_generated = [], 0, []
    for folder in ALLOWED:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            count += 1
            relative = path.relative_to(root)
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.suffix in HEADERS:
                faults += [f"{relative}:{n}: {s}" for n, s in faults_of_header(text)]
            for number, line in code_lines(text):
                match = INCLUDE.match(line)
                if not match:
                    continue
                sentence = fault_of_include(relative, *match.groups())
                if sentence:
                    faults.append(f"{relative}:{number}: {sentence}")
                if match.group(2) == GENERATED and folder != "tests":
                    users_of_generated.append(f"{relative}:{number}")
                    if path.suffix in HEADERS or len(users_of_generated) > 1:
                        faults.append(f"{relative}:{number}: {GENERATED} is included by one source "
                                      "file only, because it changes with every commit.")
    return count, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--quiet", action="store_true", help="print faults only")
    arguments = parser.parse_args()
    count, faults = check(arguments.root)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    if not arguments.quiet:
        print(f"include rule: {count} files checked, no fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
