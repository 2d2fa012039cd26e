#!/bin/sh
# The preset study-multinode-bs64 on 8 nodes of 4 GPUs: slurm/8-nodes.sh --recipe mxtw --data data.jsonl --steps 500
# Options for sbatch itself go into SBATCH_* variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, ...).
exec sbatch --nodes 8 "$(dirname "$0")/profile-train.sbatch" --preset study-multinode-bs64 "$@"
