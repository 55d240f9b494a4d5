#!/usr/bin/env python3
"""rows: every row of a table is in a generated page.

rows.py TABLE.def MACRO PAGE
"""

import re
import sys

table, macro, page = open(sys.argv[1]).read(), sys.argv[2], open(sys.argv[3]).read()
named = r'\w+, "([^"]+)"' if macro == "PASS" else r'"?([\w.*]+)"?'
names = re.findall(r"^%s\(%s" % (macro, named), table, re.M)
missing = [name for name in names if "`%s`" % name not in page and "## %s\n" % name not in page]
if missing or not names:
    sys.exit("FAIL %s: %d rows, not in the page: %s" % (macro, len(names), missing))
