#!/usr/bin/env python3
"""fill_checks: stands in for FileCheck under `lit --param update=1`. A test whose prefix has no
check line yet gets what the command prints now, behind its RUN line; where there are lines, they
are checked. What it wrote is to be read before it is kept.

  fill_checks.py FILE [--check-prefix=P] [--input-file F] [FileCheck's other options]
"""

import re
import subprocess
import sys


def pattern(line):
    line = line.rstrip().replace("{{", "{{\\{\\{}}").replace("[[", "{{\\[\\[}}")
    line = re.sub(r"(?<![\w/}])(?:/[\w.+-]+)+/", "{{.*}}", line)
    line = re.sub(r"\bstepc-\w{6}\b", "stepc-{{[A-Za-z0-9]+}}", line)
    line = re.sub(r"\b(?<=. )at byte \d+$", "at byte {{[0-9]+}}", line)
    return re.sub(r"(step\.|-bug-|saving-)\d+", r"\1{{[0-9]+}}", line)


def check_lines(text, comment, prefix):
    out, suffix = [], ""
    for line in text.splitlines():
        if line.strip():
            out.append("%s%s%s: %s" % (comment, prefix, suffix, pattern(line)))
        else:
            out.append("%s%s-EMPTY:" % (comment, prefix))
        suffix = "-NEXT"
    return out


def main():
    options = sys.argv[1:]
    path, prefix, text = options[0], "CHECK", None
    for i, option in enumerate(options):
        if option.startswith("--check-prefix="):
            prefix = option.split("=", 1)[1]
        if option == "--input-file":
            text = open(options[i + 1], errors="replace").read()
    text = sys.stdin.read() if text is None else text
    lines = open(path, errors="surrogateescape").read().split("\n")
    if any(
        re.search(r"(^|[^\w-])%s(-NEXT|-EMPTY|-NOT|-SAME|-DAG|-LABEL)?:" % re.escape(prefix), line)
        for line in lines
    ):
        sys.exit(subprocess.run(["FileCheck"] + options, input=text, text=True).returncode)
    for i, line in enumerate(lines):
        named = re.search(r"--check-prefix=(\S+)", line)
        if (
            "RUN:" in line
            and "FileCheck" in line
            and (named.group(1) if named else "CHECK") == prefix
        ):
            comment = line[: line.index("RUN:")]
            lines[i + 1 : i + 1] = check_lines(text, comment, prefix)
            break
    else:
        sys.exit("fill_checks: no RUN line of %s uses %s" % (path, prefix))
    open(path, "w", errors="surrogateescape").write("\n".join(lines))


if __name__ == "__main__":
    main()
