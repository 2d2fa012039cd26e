#!/usr/bin/env bash
# Every recipe against bf16 on one GPU, in one call: trains them in turns, then compares.
#
#   benchmarks/gpu.sh                                        # llama-1b, compiled, about 8 minutes at most
#   MODEL=pico SEQ_LEN=128 STEPS=4 benchmarks/gpu.sh         # tries the script itself, on a CPU too
#
# Writes benchmarks/results/<GPU>/: compare.txt, compare.json and setting.txt. The runs lie in traces/gpu-<time>/.
#
# Variables, with their defaults:
#   RECIPES="bf16 tensorwise rowwise rowwise_with_gw_hp mxtw"
#   MODEL=llama-1b  SEQ_LEN=2048  MICRO_BATCH=2  STEPS=30  REPEATS=2  NPROC=1
#   FLAGS="--compile --activation-checkpointing --no-profile --eval-samples 0"
#   LIMIT_S=460     seconds for all of it, set-up included; runs that would not fit any more are left out, and named
#   PYTHON=         a Python with all that stepscope needs; otherwise .venv here, which is set up if it is not there:
#                   over python3's own packages if that has a torch with CUDA, from the package index if not
#   WHEELS=         a folder of wheels to install from where there is no network
set -euo pipefail
cd "$(dirname "$0")/.."

RECIPES=${RECIPES:-bf16 tensorwise rowwise rowwise_with_gw_hp mxtw}
MODEL=${MODEL:-llama-1b} SEQ_LEN=${SEQ_LEN:-2048} MICRO_BATCH=${MICRO_BATCH:-2} STEPS=${STEPS:-30}
REPEATS=${REPEATS:-2} NPROC=${NPROC:-1} LIMIT_S=${LIMIT_S:-460}
FLAGS=${FLAGS---compile --activation-checkpointing --no-profile --eval-samples 0}
export PYTHONPATH=$PWD/typings PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '[%3d s] %s\n' "$SECONDS" "$*" >&2; }

set_up() { # set_up VENV: a venv with stepscope's dependencies; the package itself is run from the checkout
  local base=${BASE_PYTHON:-python3} needs from=(--constraint constraints.txt)
  "$base" -m venv "$1"
  needs=$(mktemp)
  "$base" - >"$needs" <<'PY'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["train"], sep="\n")
PY
  if "$base" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$1"/lib/python*/site-packages)/base.pth"
    from=()
  fi
  [ -z "${WHEELS:-}" ] || from=(--no-index --find-links "$WHEELS")
  "$1/bin/python" -m pip install --quiet "${from[@]}" --requirement "$needs"
  rm "$needs"
}

if [ -n "${PYTHON:-}" ]; then
  python=$PYTHON
else
  python=.venv/bin/python
  if [ ! -x "$python" ]; then
    say "setting up .venv"
    set_up .venv || { rm -rf .venv && say "could not set up .venv" && exit 1; }
  fi
fi

device=$("$python" -c 'import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")')
results=benchmarks/results/$(tr -cs '[:alnum:]\n' '-' <<<"${device,,}")
folder=traces/gpu-$(date -u +%Y%m%d-%H%M%S)
mkdir -p "$results" "$folder"

left_out=() slowest=0
for repeat in $(seq "$REPEATS"); do
  for recipe in $RECIPES; do
    left=$((LIMIT_S - SECONDS - 15)) # the comparison needs some, too
    if ((left < slowest || left < 10)); then
      left_out+=("$recipe-$repeat")
      continue
    fi
    say "$recipe, repeat $repeat of $REPEATS"
    began=$SECONDS
    # shellcheck disable=SC2086 # FLAGS are several words
    timeout --kill-after 10 "$left" "$python" -m stepscope.trainer --recipe "$recipe" --model "$MODEL" \
      --seq-len "$SEQ_LEN" --micro-batch "$MICRO_BATCH" --steps "$STEPS" --nproc "$NPROC" $FLAGS \
      --out "$folder" --run-name "$recipe-$repeat" --no-hints >/dev/null || left_out+=("$recipe-$repeat")
    ((SECONDS - began <= slowest)) || slowest=$((SECONDS - began))
  done
done

compare() { "$python" -c 'import sys; from stepscope.dashboards.cli import main; sys.exit(main())' compare "$folder" "$@"; }
compare >"$results/compare.txt"
compare --format json >"$results/compare.json"
{
  printf '%s, %s\n' "$(date -u +%F)" "$device"
  "$python" -c 'import torch, torchao, transformers as t; print("torch", torch.__version__, "torchao", torchao.__version__,
  "transformers", t.__version__)' 2>/dev/null
  ! command -v nvidia-smi >/dev/null || printf 'driver %s\n' "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
  printf 'RECIPES="%s" MODEL=%s SEQ_LEN=%s MICRO_BATCH=%s STEPS=%s REPEATS=%s NPROC=%s FLAGS="%s"\n' \
    "$RECIPES" "$MODEL" "$SEQ_LEN" "$MICRO_BATCH" "$STEPS" "$REPEATS" "$NPROC" "$FLAGS"
  printf 'took %d s; failed, cut short or left out for lack of time: %s\n' "$SECONDS" "${left_out[*]:-none}"
} | tee "$results/setting.txt"
cat "$results/compare.txt"
say "results in $results, runs in $folder"
