"""Tensor cores, power and energy of a run's GPUs, worked out by hand."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stepscope.analyzers.gpu_use import GpuUse, gpu_use
from stepscope.analyzers.runs import Run, read_run
from stepscope.record.jsonl import JsonlWriter
from stepscope.record.manifest import Device, Manifest, World
from stepscope.record.recipes import recipe
from stepscope.record.run import RunDir
from stepscope.record.steps import Step
from stepscope.record.telemetry import GpuSample, HostSample, Sample, Unavailable

S = 1_000_000_000


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    """A run of one GPU that trained from second 10 to second 20, without telemetry."""
    folder = RunDir(tmp_path / "run")
    folder.path.mkdir()
    manifest = Manifest(
        run="run",
        recipe=recipe("bf16"),
        emulated=False,
        config={},
        world=World(size=1, nodes=1, backend="nccl"),
        devices=[Device(kind="cuda", name="NVIDIA H200", memory_bytes=None)],
        model={},
        versions={},
        argv=[],
        started_ns=1,
    )
    folder.write_manifest(manifest)
    with JsonlWriter(folder.steps_path(0)) as writer:
        for number in (1, 2):
            step = Step(step=number, rank=0, start_ns=(5 + 5 * number) * S, duration_ns=5 * S, tokens=1, positions=1)
            writer.write(step)
    run = read_run(folder)
    assert isinstance(run, Run)
    return run


def with_readings(run: Run, *samples: Sample) -> Run:
    return replace(run, telemetry={0: samples})


def test_a_gpm_mean_counts_for_the_part_of_its_interval_that_lies_in_training(trained: Run) -> None:
    # 4 s of 40 % from 8 to 12, of which 2 s are in training; 8 s of 60 % from 12 to 20; then 4 s of 0 % after it.
    readings = [
        GpuSample(t_ns=t * S, device=0, gpm_interval_ns=long * S, tensor_active_pct=value, sm_active_pct=2 * value)
        for t, long, value in ((12, 4, 40.0), (20, 8, 60.0), (24, 4, 0.0))
    ]
    found = gpu_use([with_readings(trained, *readings)])
    assert found.tensor_active_pct == pytest.approx((2 * 40 + 8 * 60) / 10)
    assert found.sm_active_pct == pytest.approx((2 * 80 + 8 * 120) / 10)
    assert found.missing["dram_bandwidth_pct"] == "no reading during training has it"


def energies(device: int, *points: tuple[int, int]) -> list[Sample]:
    return [GpuSample(t_ns=t * S, device=device, energy_mj=joules * 1000) for t, joules in points]


def test_energy_is_of_all_gpus_with_the_share_of_the_first_and_last_interval_that_is_training(trained: Run) -> None:
    # GPU 0: 100 J from 8 to 12, half of it in training; 700 J from 12 to 19; 200 J from 19 to 21, half of it.
    first = energies(0, (8, 5000), (12, 5100), (19, 5800), (21, 6000))
    second = energies(1, (10, 0), (20, 1000))
    assert gpu_use([with_readings(trained, *first, *second)]).energy_j == pytest.approx(50 + 700 + 100 + 1000)
    runs = [with_readings(trained, *first), with_readings(trained, *second)]
    assert gpu_use(runs).energy_j == pytest.approx((850 + 1000) / 2)


@pytest.mark.parametrize(
    "points",
    [
        ((8, 100), (12, 50), (21, 900)),  # the counter fell: the driver was loaded anew
        ((11, 100), (21, 900)),  # the first reading came after training had begun
        ((8, 100), (19, 900)),  # the last one, before its end
    ],
)
def test_energy_that_is_not_whole_is_not_told(trained: Run, points: tuple[tuple[int, int], ...]) -> None:
    found = gpu_use([with_readings(trained, *energies(0, *points))])
    assert found.energy_j is None
    assert "do not span training" in found.missing["energy_j"]


def test_power_is_the_mean_over_time_of_one_gpu(trained: Run) -> None:
    readings = [
        GpuSample(t_ns=t * S, device=device, power_mw=watts * 1000)
        for t, device, watts in ((9, 0, 100), (15, 0, 500), (20, 0, 700), (20, 1, 200))
    ]
    assert gpu_use([with_readings(trained, *readings)]).power_w == pytest.approx((600 + 200) / 2)


def test_what_the_driver_lacks_is_told_with_its_reason(trained: Run) -> None:
    lacks = Unavailable(t_ns=10 * S, counter="gpm", reason="NVML: Not Supported", device=0)
    found = gpu_use([with_readings(trained, lacks, GpuSample(t_ns=15 * S, device=0, power_mw=1000))])
    assert (found.tensor_active_pct, found.power_w) == (None, 1.0)
    assert found.missing["tensor_active_pct"] == "NVML: Not Supported"


def test_a_cpu_has_none_of_it(trained: Run) -> None:
    manifest = msgspec.structs.replace(trained.manifest, devices=[Device(kind="cpu", name="a CPU", memory_bytes=None)])
    found = gpu_use([replace(trained, manifest=manifest, telemetry={0: (HostSample(t_ns=15 * S),)})])
    assert found == GpuUse(missing=dict.fromkeys(found.missing, "no GPU"))
    assert len(found.missing) == 5
