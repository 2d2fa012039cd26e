"""Throughput and MFU, worked out by hand and against a published run's figures."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.analyzers.model_flops import Work, least_ns_per_position, work_per_position
from stepscope.analyzers.peaks import peak_of
from stepscope.analyzers.runs import Run, world_steps
from stepscope.analyzers.throughput import Throughput, throughput
from stepscope.record.manifest import Device, Linear, Manifest, Outcome, Resumption, World
from stepscope.record.recipes import recipe
from stepscope.record.steps import Step

H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", memory_bytes=80 * 10**9)
CPU = Device(kind="cpu", name="a CPU", memory_bytes=64 * 10**9)
SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "head_dim": 4}
LAYERS = [
    Linear(name="up", out_features=16, in_features=8, precision="float8"),
    Linear(name="lm_head", out_features=32, in_features=8, precision="bf16", why="--fp8-filter lm_head"),
]


def manifest(recipe_name: str = "tensorwise", device: Device = H100, **changes: Any) -> Manifest:
    known: dict[str, Any] = {
        "run": "r",
        "recipe": recipe(recipe_name),
        "emulated": False,
        "config": {"seq_len": 10},
        "world": World(size=2, nodes=1, backend="nccl"),
        "devices": [device, device],
        "model": SMALL,
        "data": {"padded_share": 0.25},
        "linear_layers": LAYERS,
        "versions": {},
        "argv": [],
        "started_ns": 1,
        "outcome": Outcome(state="completed"),
    }
    return Manifest(**(known | changes))


def step(number: int, **changes: Any) -> Step:
    known: dict[str, Any] = {"start_ns": number * 1000, "duration_ns": 200, "tokens": 30, "positions": 40, "rank": 0}
    return Step(step=number, **(known | changes))


def run(*steps: Step, of: Manifest | None = None) -> Run:
    made = of or manifest()
    resumed = [resumption.from_step for resumption in made.resumed]
    ranks = [list(steps), [msgspec.structs.replace(one, rank=1) for one in steps]]
    joined = world_steps(dict(enumerate(ranks)), resumed)
    return Run(name="r", path=Path(), manifest=made, steps=joined, telemetry={}, traces=(), ranks=(0, 1))


@pytest.mark.parametrize(
    ("name", "float8_gemms"), [("bf16", 0), ("tensorwise", 3), ("rowwise_with_gw_hp", 2), ("mxtw", 3)]
)
def test_a_position_costs_three_gemms_a_linear_layer_and_attention_over_the_row(name: str, float8_gemms: int) -> None:
    work = work_per_position(manifest(name))
    of_up, of_head, attention = 2 * 8 * 16, 2 * 8 * 32, 12 * 10 * 2 * 4
    assert work == Work(
        float8_flops=float8_gemms * of_up, bf16_flops=(3 - float8_gemms) * of_up + 3 * of_head + attention
    )


def test_a_published_70b_runs_step_costs_what_its_authors_log() -> None:
    """arXiv 2411.08719: 4.04e18 FLOP a step of 1,024 rows of 8,192, and 415 TFLOP/s a GPU at 152.1 s on 64 GPUs."""
    sizes = {"q": (8192, 8192), "k": (1024, 8192), "v": (1024, 8192), "o": (8192, 8192)}
    sizes |= {"gate": (28672, 8192), "up": (28672, 8192), "down": (8192, 28672)}
    layers = [
        Linear(name=f"{layer}.{name}", out_features=rows, in_features=columns, precision="bf16")
        for layer in range(80)
        for name, (rows, columns) in sizes.items()
    ]
    layers.append(Linear(name="lm_head", out_features=128256, in_features=8192, precision="bf16"))
    facts = {"num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192}
    work = work_per_position(manifest("bf16", linear_layers=layers, model=facts, config={"seq_len": 8192}))
    assert work is not None
    a_step = work.flops * 8192 * 1024
    assert f"{a_step:.3g}" == "4.04e+18"
    assert round(a_step / 152.1 / 64 / 1e12) == 415


def test_mfu_weighs_each_gemm_by_the_peak_of_its_dtype() -> None:
    work = Work(bf16_flops=989_500, float8_flops=1_979_000)  # 1 ns in bf16 and 1 ns in FP8 at an H100's peaks
    assert least_ns_per_position(manifest(), work) == pytest.approx(2)
    found = throughput([run(*(step(number, positions=50) for number in range(1, 5)))])
    real = work_per_position(manifest())
    assert real is not None
    assert found.flops_per_s is not None
    assert found.mfu_pct is not None
    assert found.flops_per_s.median == pytest.approx(real.flops * 50 / 200e-9)
    least_s = (real.bf16_flops / 989.5e12 + real.float8_flops / 1979e12) * 50
    assert found.mfu_pct.median == pytest.approx(100 * least_s / 200e-9)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (manifest(device=CPU), "no GPU"),
        (manifest(emulated=True), "FP8 was emulated"),
        (manifest(device=Device(kind="cuda", name="NVIDIA H100", memory_bytes=1)), "no peak is known of NVIDIA H100"),
        (manifest(linear_layers=[]), "run.json does not name the linear layers"),
        (
            manifest(device=Device(kind="cuda", name="NVIDIA A100-SXM4-80GB", memory_bytes=1)),
            "NVIDIA A100-SXM4-80GB has no FP8 units",
        ),
    ],
)
def test_where_the_peak_is_not_known_mfu_is_not_measured_and_says_why(made: Manifest, why: str) -> None:
    found = throughput([run(step(1), step(2), step(3), of=made)])
    assert (found.mfu_pct, found.mfu_why) == (None, why)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H200 NVL x",
        "NVIDIA L4x",
        "AMD Instinct MI300A",
        "",
    ],
)
def test_a_gpu_that_is_only_like_a_known_one_has_no_peak(name: str) -> None:
    assert peak_of(name) is None


def test_every_peak_in_fp8_is_about_twice_that_in_bf16() -> None:
    names = ("NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA B200", "NVIDIA L40S", "AMD Instinct MI300X")
    for name in names:
        peak = peak_of(name)
        assert peak is not None
        assert peak.float8_flops is not None
        assert peak.float8_flops / peak.bf16_flops == pytest.approx(2, rel=0.02), name


def test_the_wall_clock_holds_what_lies_between_steps_and_after_the_last() -> None:
    found = run(step(1), step(2), step(3, eval_ns=70, checkpoint_ns=5))
    assert found.training_ns == 3 * 200
    assert found.wall_clock_ns == 2 * 1000 + 200 + 70 + 5
    rates = throughput([found])
    assert rates.tokens_per_s_wall_clock == pytest.approx(180 / 2275e-9)


def test_the_wall_clock_leaves_out_the_time_between_a_stop_and_the_return() -> None:
    made = manifest(resumed=[Resumption(at_ns=1, from_step=2, undone_steps=0, world_size=2)])
    found = run(step(1), step(2, checkpoint_ns=30), step(3, start_ns=10**9), of=made)
    assert found.wall_clock_ns == (1000 + 200 + 30) + 200


def test_slow_steps_and_waiting_count_timed_steps_only() -> None:
    steps = [step(number, duration_ns=100 * number, data_ns=number) for number in range(1, 22)]
    marked = [step(22, duration_ns=10**6, data_ns=10**6, marks=("profiled",))]
    found = throughput([run(*steps, *marked)])
    assert found.step_time_p95_ns == 2000  # of 100, 200, … 2100
    assert found.data_wait_pct == pytest.approx(1)
    assert found.padded_pct == 25


def test_nothing_timed_is_nothing_measured() -> None:
    found = throughput([run(step(1, marks=("first",)))])
    nothing = Throughput(
        step_time_p95_ns=None,
        data_wait_pct=None,
        flops_per_s=None,
        mfu_pct=None,
        mfu_why="no timed step",
        tokens_per_s_wall_clock=found.tokens_per_s_wall_clock,
        training_ns=200,
        wall_clock_ns=200,
        padded_pct=25,
    )
    assert found == nothing
