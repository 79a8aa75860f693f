#!/usr/bin/env bash
# usage: run.sh BUILD SECONDS [CHECKED_BUILD]
# Runs every fuzzer of BUILD for SECONDS, two at a time, from the kept inputs (corpus/). New inputs
# gather in BUILD/fuzz/TARGET, crashes are BUILD/fuzz/TARGET-crash-*: add them to corpus/TARGET.
# What has gathered then runs once in the fuzzers of CHECKED_BUILD, which find more and are slower.
set -euo pipefail
corpus=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/corpus
build=$(realpath "$1") seconds=$2 checked=${3:+$(realpath "$3")}
found=$build/fuzz
mkdir -p "$found"

fuzz_one() {
  local name=$1 log=$2/$1.log
  mkdir -p "$2/$name"
  if "$4/tests/fuzz/fuzz_$name" -max_total_time="$5" -timeout=30 -seed="${FP8LAB_SEED:-0}" -rss_limit_mb=2048 -max_len=4096 -dict="$6" \
    -print_final_stats=1 -artifact_prefix="$2/$name-" "$2/$name" "$3/$name" >"$log" 2>&1; then
    echo "$name: $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs, no finding"
  else
    echo "FAILED: $name"
    tail -n 60 "$log"
    for input in "$2/$name"-*; do [ -f "$input" ] && { echo "$input"; base64 "$input"; }; done
    return 1
  fi
  [ -n "$7" ] || return 0
  if "$7/tests/fuzz/fuzz_$name" -runs=0 -timeout=120 -rss_limit_mb=2048 -artifact_prefix="$2/$name-" "$2/$name" >"$log" 2>&1; then
    echo "$name: $(find "$2/$name" -type f | wc -l) gathered inputs checked"
  else
    echo "FAILED: $name, checked"
    tail -n 60 "$log"
    return 1
  fi
}
export -f fuzz_one

for target in "$corpus"/*; do basename "$target"; done |
  xargs -P 2 -I{} bash -c 'fuzz_one "$@"' _ {} "$found" "$corpus" "$build" "$seconds" "$corpus/../words.dict" "$checked"
