#!/usr/bin/env python3
"""readme: what a page shows of the compiler's output is what the compiler prints. Runs the
`$ stepc` commands of its fenced blocks; the lines below each, but for an ellipsis, must come in
that order. `$ cat FILE` makes the file; other commands are left alone.

  readme.py STEPC ROOT PAGE WORK_DIR
"""

import os
import re
import subprocess
import sys


def commands(page):
    """(command, lines shown below it), of all blocks."""
    for block in re.findall(r"^```\n(.*?)^```", page, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, shown = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.S).groups()
            yield command, shown.splitlines()


def missing(shown, printed):
    """The first line shown that does not come; None: all do."""
    at = 0
    for line in shown:
        if line == "…":
            continue
        if line not in printed[at:]:
            return line
        at = printed.index(line, at) + 1
    return None


def main(stepc, root, page, work):
    os.makedirs(work, exist_ok=True)
    for link, to in (("models", root + "/models"), ("stepc", stepc)):
        if not os.path.lexists(work + "/" + link):
            os.symlink(to, work + "/" + link)
    ran = 0
    for command, shown in commands(open(root + "/" + page, encoding="utf-8").read()):
        if command.startswith("cat "):
            with open(work + "/" + command.split()[1], "w") as out:
                out.write("\n".join(shown) + "\n")
        if not command.startswith("stepc "):
            continue
        done = subprocess.run(
            "PATH=.:$PATH; " + command,
            shell=True,
            cwd=work,
            capture_output=True,
            text=True,
        )
        out, err = (x.replace(root + "/", "").splitlines() for x in (done.stdout, done.stderr))
        lines = [missing(shown, printed) for printed in (out + err, err + out)]
        if None not in lines or done.returncode not in (0, 2):
            print("FAIL %s: exit %d, not printed: %s" % (command, done.returncode, lines[0]))
            print(done.stdout + done.stderr)
            sys.exit(1)
        ran += 1
    print("ok %d commands" % ran)


if __name__ == "__main__":
    main(*sys.argv[1:])
