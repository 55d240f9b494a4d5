#!/bin/sh
# From a fresh Debian to a trained model: installs what is missing, builds stepc, compiles a small
# Gemma4-shaped model, and trains it on the text of the GPL (every Debian has it) from a fixed seed.
set -eu
cd "$(dirname "$0")"
scripts/setup.sh

text=/usr/share/common-licenses/GPL-3
out=runs/quickstart
mkdir -p "$out"
rm -f "$out/log.jsonl"
build/stepc build models/gemma4/tiny.yaml -o "$out/gemma4.step"
build/stepc plan models/gemma4/tiny.yaml >"$out/plan.txt"
"$out/gemma4.step" --data "$text" --log "$out/log.jsonl" --save "$out/weights"

# what one would pay for each byte knowing only how often it occurs
entropy=$(od -An -v -tu1 "$text" | awk '
    { for (i = 1; i <= NF; i++) { count[$i]++; all++ } }
    END { for (b in count) h -= count[b] / all * log(count[b] / all); printf "%.4f", h }')
loss=$(sed -n '$s/.*"loss": \([0-9.e+-]*\).*/\1/p' "$out/log.jsonl")
echo
printf 'last loss    %.4f nats per byte; unigram entropy of the text: %s\n' "$loss" "$entropy"
echo "executable   $out/gemma4.step"
echo "plan report  $out/plan.txt"
echo "weights      $out/weights"
awk "BEGIN { exit !($loss < $entropy) }" || {
    echo "the loss did not fall below the entropy" >&2
    exit 1
}
