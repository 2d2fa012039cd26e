"""A generated Kineto trace (PyTorch 2.x, one rank of a training on an H100), as large as asked, the same for a seed.

    python benchmarks/kineto_generate.py OUT.pt.trace.json [--megabytes 215] [--rank 0] [--world 1] [--seed 1]

Steps of forward, backward (on autograd's thread, linked by sequence numbers) and optimizer; each kernel has its
operator within an outer one, its launch, and the arrows that join them. Every 60th kernel is a collective on a stream
of its own. A name ending in `.gz` is packed.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LAYERS, COLLECTIVE_EVERY, BASE_NS = 24, 60, 1_750_000_000_000_000_000
PID, MAIN, AUTOGRAD = 4242, 4242, 4319

_SCALED = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_segment_k_off"
_NVJET = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
_ELEMENT = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >(int, at::native::{})"
)
_COLLECTIVE = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4> >(params)"
_OPTIMIZER = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4> >()"


class Made(NamedTuple):
    """An operator with the one kernel that it launches."""

    outer: str
    operator: str
    dims: str
    types: str
    kernel: str
    ns: int


_BF16 = "c10::BFloat16"


def _gemm(operator: str, kind: str, kernel: str, sides: tuple[int, int, int], ns: int) -> Made:
    m, k, n = sides
    return Made("aten::linear", operator, f"[[{m}, {k}], [{k}, {n}]]", f'["{kind}", "{kind}"]', kernel, ns)


def _elementwise(operator: str, functor: str, ns: int) -> Made:
    outer = f"{operator}_outer" if operator == "aten::copy_" else operator
    kernel = _ELEMENT.format(functor, functor)
    return Made(outer, operator, "[[8192, 4096], [8192, 4096], []]", f'["{_BF16}", "{_BF16}", "Scalar"]', kernel, ns)


_LAYER = (
    _elementwise("aten::mul", "BinaryFunctor<float, float, float>", 21_000),
    _elementwise("aten::copy_", "direct_copy_kernel_cuda", 12_500),
    _gemm("aten::_scaled_mm", "c10::Float8_e4m3fn", _SCALED, (8192, 4096, 6144), 310_000),
    Made("aten::scaled_dot_product_attention", "aten::_flash_attention_forward",
         "[[2, 4096, 32, 128], [2, 4096, 32, 128], [2, 4096, 32, 128]]", f'["{_BF16}", "{_BF16}", "{_BF16}"]',
         _FLASH, 420_000),
    _gemm("aten::mm", _BF16, _NVJET, (8192, 4096, 4096), 390_000),
    _elementwise("aten::add", "CUDAFunctor_add<c10::BFloat16>", 24_000),
    _gemm("aten::_scaled_mm", "c10::Float8_e4m3fn", _SCALED, (8192, 4096, 14336), 700_000),
    _elementwise("aten::silu", "silu_kernel", 31_000),
)  # fmt: skip


def main() -> None:
    """Write the trace that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--megabytes", type=int, default=215)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    print(f"{told.out}: {write(told.out, told.megabytes, told.rank, told.world, told.seed):,} events")


def write(path: Path, megabytes: int, rank: int = 0, world: int = 1, seed: int = 1) -> int:
    """Write whole steps until the trace has the size asked for; the number of events."""
    random.seed(seed * 1000 + rank)
    events = 0
    with gzip.open(path, "wt", compresslevel=5) if path.suffix == ".gz" else path.open("w") as file:
        size = file.write(_head(rank, world))
        writer = _Writer()
        while size < megabytes * 1_000_000:
            for text in writer.step():
                size += file.write(text)
                events += 1
        file.write(_TAIL)
    return events + 1


def _head(rank: int, world: int) -> str:
    facts = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_899_345_920, "computeMajor": 9,
             "computeMinor": 0, "numSms": 132}
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": 1},
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }  # fmt: skip
    return json.dumps(facts, indent=2)[:-2] + ',\n  "traceEvents": [\n'


_TAIL = """  {
    "ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": 0.000,
    "args": {
      "name": "python"
    }
  }
  ],
  "traceName": "generated"
}
"""


class _Writer:
    """Writes steps one after the other; the device's streams and the ids go on from step to step."""

    def __init__(self) -> None:
        self.host_ns = 1_000_000
        self.device_ns = {7: 0, 20: 0}
        self.ids = self.sequence = self.steps = self.kernels = 0

    def step(self) -> Iterator[str]:
        """The events of one step."""
        begin, name = self.host_ns, f"ProfilerStep#{self.steps}"
        first = self.sequence
        for _ in range(LAYERS):
            for made in _LAYER:
                yield from self._operator(made, MAIN, self.sequence)
                self.sequence += 1
        for number in range(self.sequence - 1, first - 1, -1):
            yield from self._operator(_LAYER[(number - first) % len(_LAYER)], AUTOGRAD, number)
        optimizer = Made("Optimizer.step#AdamW.step", "aten::_fused_adamw_", "[[], []]", '["TensorList", "TensorList"]',
                         _OPTIMIZER, 900_000)  # fmt: skip
        for _ in range(8):
            yield from self._operator(optimizer, MAIN, None)
        self.host_ns += 40_000
        yield _span("user_annotation", name, PID, MAIN, begin, self.host_ns - 1000, {"External id": self.ids})
        self.steps += 1

    def _operator(self, made: Made, thread: int, sequence: int | None) -> Iterator[str]:
        self.ids += 4
        begin = self.host_ns
        launch = begin + random.randrange(3_000, 6_000)
        end = launch + random.randrange(4_000, 7_000)
        self.host_ns = end + random.randrange(1_500, 4_000)
        backward = thread == AUTOGRAD
        outer = f"autograd::engine::evaluate_function: {made.outer}Backward0" if backward else made.outer
        given = "" if sequence is None else f'"Sequence number": {sequence}, "Fwd thread id": {1 if backward else 0}, '
        args = f'{given}"Record function id": 0, "Concrete Inputs": ["", ""], "Input type": {made.types}, '
        args += f'"Input Strides": [[4096, 1], [1, 4096]], "Input Dims": {made.dims}, "Ev Idx": '
        yield _event("cpu_op", outer, PID, thread, begin, end, f'"External id": {self.ids},{args}{self.ids}')
        inner = f'"External id": {self.ids + 1},{args}{self.ids + 1}'
        yield _event("cpu_op", made.operator, PID, thread, begin + 1_200, end - 500, inner)
        correlation = f'"External id": {self.ids + 1}, "cbid": 211, "correlation": {self.ids}'
        yield _event("cuda_runtime", "cudaLaunchKernel", PID, thread, launch, launch + 2_700, correlation)
        yield from self._kernel(made, launch, thread)

    def _kernel(self, made: Made, launch: int, thread: int) -> Iterator[str]:
        self.kernels += 1
        collective = self.kernels % COLLECTIVE_EVERY == 0
        stream, name, ns = (20, _COLLECTIVE, 600_000) if collective else (7, made.kernel, made.ns)
        length = int(ns * random.uniform(0.03, 0.05))
        start = max(launch + 5_000, self.device_ns[stream] + 900)
        self.device_ns[stream] = start + length
        args = (
            f'"External id": {self.ids + 1}, "queued": 0, "device": 0, "context": 1,\n      "stream": {stream}, '
            f'"correlation": {self.ids},\n      "registers per thread": 168, "shared memory": 0, '
            f'"blocks per SM": 62.06, "warps per SM": 248.24,\n      "grid": [8192, 1, 1],\n'
            f'      "block": [128, 1, 1],\n      "est. achieved occupancy %": 100'
        )
        if collective:
            args += (
                ', "Collective name": "_allgather_base", "In msg nelems": 2097152, "Out msg nelems": 16777216, '
                '"Group size": 8, "dtype": "BFloat16", "Process Group Name": "0"'
            )
        yield _event("kernel", name, 0, stream, start, start + length, args)
        yield _arrow("s", self.ids, PID, thread, launch)
        yield _arrow("f", self.ids, 0, stream, start)


def _arrow(phase: str, number: int, pid: int, tid: int, at: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    where = f'"ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {_us(at)},'
    return f'  {{\n    {where}\n    "cat": "ac2g", "name": "ac2g"{end}\n  }},\n'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"


def _span(category: str, name: str, pid: int, tid: int, start: int, end: int, args: dict[str, object]) -> str:
    return _event(category, name, pid, tid, start, end, json.dumps(args)[1:-1])


def _event(category: str, name: str, pid: int, tid: int, start: int, end: int, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    '
        f'"ts": {_us(start)}, "dur": {_us(end - start)},\n    "args": {{\n      {args}\n    }}\n  }},\n'
    )


if __name__ == "__main__":
    main()
