#!/usr/bin/env python3
"""crash: what a fault of the compiler looks like: it is aborted while it waits for its input.

crash.py STEPC      runs `STEPC opt`, and ends with its exit code; the report names its own file
"""
import os
import signal
import subprocess
import sys
import time


def child_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        children = file.read().split()
    return int(children[0]) if children else 0


def main():
    os.mkfifo("input.sir")
    process = subprocess.Popen([sys.argv[1], "opt", "input.sir"], stderr=subprocess.PIPE, text=True)
    child = 0
    while not child and process.poll() is None:
        child = child_of(process.pid)
        time.sleep(0.01)
    os.kill(child, signal.SIGSTOP)
    os.unlink("input.sir")
    with open("input.sir", "w") as file:
        file.write("module level=model\naxis d = 4\n")
    os.kill(child, signal.SIGABRT)
    os.kill(child, signal.SIGCONT)
    report = process.communicate()[1]
    sys.stderr.write(report)
    for word in report.split("`"):
        if word.endswith(".txt"):
            with open(word) as file:
                sys.stderr.write(file.read())
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
