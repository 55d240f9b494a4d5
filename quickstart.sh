#!/bin/sh
# From a fresh Debian to a trained model: installs what is missing, builds stepc, compiles a small Gemma4-shaped model to a step
# executable, and trains it on the text of the GPL (every Debian has it) from a fixed seed.
set -eu
cd "$(dirname "$0")"
scripts/setup.sh

text=/usr/share/common-licenses/GPL-3
out=runs/quickstart
mkdir -p "$out"
build/stepc build models/gemma4/tiny.yaml -o "$out/gemma4.step"
build/stepc plan models/gemma4/tiny.yaml > "$out/plan.txt"
"$out/gemma4.step" --data "$text" --log "$out/log.jsonl" --save "$out/weights"

entropy=$(od -An -v -tu1 "$text" | awk '{ for (i = 1; i <= NF; i++) { n[$i]++; all++ } }
    END { for (b in n) h -= n[b] / all * log(n[b] / all); printf "%.4f", h }')
loss=$(tail -n 1 "$out/log.jsonl" | sed 's/.*"loss": \([0-9.e+-]*\).*/\1/')
echo
echo "last loss $loss, unigram entropy of the text's bytes $entropy (nats)"
awk "BEGIN { exit !($loss < $entropy) }" || { echo "the loss did not fall below the entropy"; exit 1; }
echo "executable   $out/gemma4.step"
echo "plan report  $out/plan.txt"
echo "weights      $out/weights"
