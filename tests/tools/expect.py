#!/usr/bin/env python3
"""expect: runs a command that must end with one exit code.

  expect.py CODE COMMAND ARGUMENT...
"""
import subprocess
import sys

want = int(sys.argv[1])
got = subprocess.run(sys.argv[2:]).returncode
if got != want:
    sys.stderr.write("expect: exit code %d, not %d\n" % (got, want))
    sys.exit(1)
