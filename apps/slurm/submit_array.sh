#!/bin/bash
# usage: submit_array.sh SHARDS OUT NAME --axis KEY=VALUES... [SWEEP OPTIONS]
# Submits the shards of a sweep as an array job, and their merging after it. SBATCH_* variables
# (SBATCH_PARTITION, SBATCH_ACCOUNT ...) are Slurm's own way to say where.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shards=$1
shift
job=$(sbatch --parsable --array="0-$((shards - 1))" "$here/sweep_shard.sbatch" "$@")
sbatch --dependency="afterok:${job%%;*}" "$here/merge_shards.sbatch" "$1"
