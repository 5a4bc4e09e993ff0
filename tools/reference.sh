#!/usr/bin/env bash
# tools/reference.sh [FLATWATER]: writes the reference part of docs/command-line.md from the help texts of a built flatwater.
set -euo pipefail
cd "$(dirname "$0")/.."
"${1:-target/debug/flatwater}" completions markdown | python3 -c '
import sys
page = "docs/command-line.md"
text = open(page).read()
begin, end = "<!-- reference: begin -->\n", "<!-- reference: end -->"
before, rest = text.split(begin, 1)
after = rest.split(end, 1)[1]
open(page, "w").write(before + begin + sys.stdin.read().strip() + "\n" + end + after)
'
