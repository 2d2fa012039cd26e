#!/bin/sh
# The preset study-multinode-bs32 on 4 nodes of 4 GPUs: slurm/4-nodes.sh --recipe mxtw --data data.jsonl --steps 500
# Options for sbatch itself go into SBATCH_* variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, ...).
exec sbatch --nodes 4 "$(dirname "$0")/profile-train.sbatch" --preset study-multinode-bs32 "$@"
