#!/usr/bin/env bash
# usage: in_two.sh PROGRAM FILTER
# Runs the tests of a Catch2 FILTER in two processes at once, every other one in each: most tests use one
# core. Prints what failed; exits 0 if nothing did, and 2 where FILTER matches nothing.
set -euo pipefail
program=$(realpath "$1") filter=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Catch2 2 ends a list with the number of tests, or that number cut to a byte: its exit code says nothing.
"$program" --list-test-names-only "$filter" >"$folder/names" || true
# A comma or a bracket in a name is part of it.
sed 's/[][,*"\\]/\\&/g' "$folder/names" | awk -v folder="$folder" 'NF { print > (folder "/part" NR % 2) }'
[ -s "$folder/part1" ] || { echo "no test matches '$filter'" >&2; exit 2; }
touch "$folder/part0"
children=()
for part in 0 1; do
  [ -s "$folder/part$part" ] || continue
  chosen=$("$program" --input-file "$folder/part$part" --list-test-names-only | grep -c .) || true
  listed=$(grep -c . "$folder/part$part")
  [ "$chosen" = "$listed" ] || { echo "$chosen of $listed tests were understood" >&2; exit 2; }
  (cd "$folder" && OMP_WAIT_POLICY=passive "$program" --input-file "part$part" >"log$part" 2>&1) &
  children+=("$! log$part")
done
status=0
for child in "${children[@]}"; do
  wait "${child% *}" || { status=1; cat "$folder/${child#* }" >&2; }
  tail -n 3 "$folder/${child#* }" | grep -E 'passed|failed' || true
done
exit "$status"
