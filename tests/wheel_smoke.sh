#!/usr/bin/env bash
# Runs the installed commands outside the checkout, where torch is not: wheel_smoke.sh BIN_DIR SAMPLE_DIR SCRATCH_DIR
set -euo pipefail
bin=$1 sample=$2 scratch=$3
cd "$scratch"

fail() { echo "wheel smoke: $*" >&2; exit 1; }
expect() { grep -qF -- "$1" "$2" || fail "'$1' is not in $2:"$'\n'"$(cat "$2")"; }

"$bin/python" -c 'import torch' 2>/dev/null && fail "torch is installed here, so this proves nothing"

"$bin/stepscope" --version >version.txt
expect "$("$bin/python" -c 'import stepscope; print(stepscope.__version__)')" version.txt
"$bin/stepscope" --help >help.txt
for command in trace compare report scrub recipes doctor demo; do expect "$command" help.txt; done

"$bin/stepscope" recipes mxtw >recipes.txt
expect "Its casts equal those of tensorwise" recipes.txt

"$bin/stepscope" compare "$sample" --format json >compare.json
"$bin/python" - <<'PYTHON'
import json
found = json.load(open("compare.json"))
assert found["schema"] == "stepscope.compare/1", found["schema"]
assert [row["recipe"] for row in found["recipes"]] == ["bf16", "mxtw"]
assert found["recipes"][1]["emulated"] is True
PYTHON

"$bin/stepscope" trace "$sample/mxtw" >trace.txt
expect "aten::mm" trace.txt
"$bin/stepscope" report "$sample" -o report.html >/dev/null
expect "mxtw against bf16" report.html
"$bin/analyze-nsys" --help >nsys.txt
expect "--report" nsys.txt
code=0
"$bin/analyze-nsys" "$sample/mxtw/run.json" 2>error.txt || code=$?
[ "$code" = 1 ] || fail "analyze-nsys on a JSON file answers exit code $code"
expect "is no SQLite database" error.txt
code=0
"$bin/stepscope" doctor >doctor.txt || code=$?
[ "$code" = 1 ] || fail "doctor without torch answers exit code $code"
expect "stepscope[train]" doctor.txt
"$bin/stepscope" scrub "$sample/mxtw" -o scrubbed >/dev/null
[ -f scrubbed/run.json ] || fail "scrub copied no manifest"
code=0
"$bin/profile-train" --steps 1 2>error.txt || code=$?
[ "$code" = 1 ] || fail "profile-train without torch answers exit code $code"
expect "stepscope[train]" error.txt
echo "wheel smoke: all commands work without torch"
