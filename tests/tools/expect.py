#!/usr/bin/env python3
"""expect: runs a command that must end with one exit code; only what it writes to stderr is shown.

expect.py CODE COMMAND ARGUMENT...
"""

import subprocess
import sys

want = int(sys.argv[1])
got = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
if got != want:
    sys.stderr.write("expect: exit code %d, not %d\n" % (got, want))
    sys.exit(1)
