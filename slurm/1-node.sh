#!/bin/sh
# The preset study-1node on 1 node of 4 GPUs: slurm/1-node.sh --recipe mxtw --data data.jsonl --steps 500
# Options for sbatch itself go into SBATCH_* variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, ...).
exec sbatch --nodes 1 "$(dirname "$0")/profile-train.sbatch" --preset study-1node "$@"
