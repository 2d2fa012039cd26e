"""The study's two W&B columns from our readings: worked out by hand, and against W&B itself on the fake driver."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from fake_driver import H200, FakeDriver

from stepscope.analyzers.telemetry import StudyColumns, study_columns
from stepscope.dashboards.cli import main
from stepscope.record.jsonl import JsonlWriter
from stepscope.record.manifest import Device, Manifest, Outcome, World
from stepscope.record.recipes import CAPTURED
from stepscope.record.run import RunDir
from stepscope.record.telemetry import GpuSample, HostSample, Sample, read_telemetry

S = 1_000_000_000


def readings(seconds: int, *, device: int = 0) -> list[Sample]:
    """One a second: utilisation is the second, memory 40 of 80 GB with 4 reserved besides."""
    gb = 10**9
    memory = {"memory_used_bytes": 40 * gb, "memory_reserved_bytes": 4 * gb, "memory_total_bytes": 80 * gb}
    return [GpuSample(t_ns=t * S, device=device, utilization_pct=t, **memory) for t in range(seconds)]


def test_a_column_is_the_mean_of_single_readings_every_15_s_without_one_at_the_start() -> None:
    found = study_columns({0: readings(51)}, 0, 50 * S)
    assert found == StudyColumns(utilization_pct=30.0, memory_allocated_pct=50.0, points=3)  # of 15, 30, 45


def test_newer_wandb_reads_at_the_start_too() -> None:
    assert study_columns({0: readings(51)}, 0, 50 * S, first=0).utilization_pct == 22.5  # of 0, 15, 30, 45


def test_a_column_is_the_mean_over_all_gpus_of_all_nodes() -> None:
    idle: list[Sample] = [GpuSample(t_ns=t * S, device=0, utilization_pct=0) for t in range(51)]
    found = study_columns({0: [*readings(51), *readings(51, device=1)], 1: idle}, 0, 50 * S)
    assert (found.utilization_pct, found.memory_allocated_pct, found.points) == (20.0, 50.0, 9)


def test_a_gpu_that_has_been_lost_gives_no_more_points() -> None:
    assert study_columns({0: readings(20)}, 0, 50 * S).utilization_pct == 15.0


@pytest.mark.parametrize(
    ("telemetry", "end", "why"),
    [
        ([HostSample(t_ns=0)], 50, "there are no GPU readings"),
        (readings(11), 10, "the run was over before the first point, at 15 s"),
        (
            [GpuSample(t_ns=15 * S, device=0, power_mw=1)],
            20,
            "no reading at these points has the counter; the telemetry file says why",
        ),
    ],
)
def test_a_column_that_cannot_be_says_why(telemetry: list[Sample], end: int, why: str) -> None:
    found = study_columns({0: telemetry}, 0, end * S)
    assert (found.utilization_pct, found.memory_allocated_pct, found.missing) == (None, None, why)


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run of 50 s with readings of one GPU."""

    def record(name: str, samples: list[Sample], *, ended: bool = True) -> Path:
        run = RunDir(tmp_path / "runs" / name)
        run.path.mkdir(parents=True)
        manifest = Manifest(
            run=name,
            recipe=CAPTURED,
            emulated=False,
            config={},
            world=World(size=1, nodes=1, backend="none"),
            devices=[Device(kind="cuda", name="NVIDIA H200", memory_bytes=80 * 10**9)],
            model={},
            versions={},
            argv=[],
            started_ns=0,
            ended_ns=50 * S if ended else None,
            outcome=Outcome(state="completed", exit_code=0),
        )
        run.write_manifest(manifest)
        with JsonlWriter(run.telemetry_path(0)) as file:
            for sample in samples:
                file.write(sample)
        return run.path.parent

    return record


def test_compare_shows_the_columns_on_demand_as_means_over_repeats(
    recorded: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded("a", readings(51))  # 15, 30, 45
    runs = recorded("b", readings(31), ended=False)  # 15, 30
    assert main(["compare", str(runs), "--wandb-compatible"]) == 0
    shown = capsys.readouterr().out
    title, heading, _, row, *_ = (line for line in shown[shown.index("As W&B has it") :].splitlines() if line.strip())
    assert heading.split("  ")[-1].strip() == "points"
    assert row.split() == ["captured", "26.2", "%", "50.0", "%", "5"]  # of 30 and 22.5
    assert main(["compare", str(runs)]) == 0
    assert title not in capsys.readouterr().out
    assert main(["compare", str(runs), "--format", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["recipes"]
    assert found["study_columns"] == {
        "utilization_pct": 26.25, "memory_allocated_pct": 50.0, "points": 5, "missing": None
    }  # fmt: skip
    assert main(["compare", str(runs), "--format", "csv"]) == 0
    [line] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (line["wandb_utilization_pct"], line["wandb_points"]) == ("26.25", "5")


def test_one_repeat_without_a_column_leaves_it_unmeasured_and_says_why(
    recorded: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded("a", readings(51))
    runs = recorded("b", [HostSample(t_ns=0)])
    assert main(["compare", str(runs), "--wandb-compatible"]) == 0
    shown = capsys.readouterr().out
    assert "Not measured: there are no GPU readings." in shown
    _, _, _, row, *_ = (line for line in shown[shown.index("As W&B has it") :].splitlines() if line.strip())
    assert row.split() == ["captured", "not", "measured", "not", "measured", "3"]


@pytest.mark.slow
def test_the_columns_and_the_gpm_means_are_wandbs_own(fake_driver: FakeDriver) -> None:
    pytest.importorskip("wandb")
    fake_driver.build()
    folder = fake_driver.folder
    steps = "".join(
        f"{1000 * k - 500} 0 utilization {37 * k % 101}\n{1000 * k - 500} 1 utilization {100 * (k % 2)}\n"
        for k in range(1, 60)
    )
    environment = fake_driver.environment(H200 + "0 * gpus 2\n0 1 memory_used 120000000000\n" + steps)
    environment |= {"FAKE_NVML_EPOCH": str(folder / "epoch"), "WANDB_ERROR_REPORTING": "false"}
    script = Path(__file__).with_name("wandb_beside.py")
    done = subprocess.run(
        [sys.executable, script, folder, "1.0", "7"], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    ours = read_telemetry(folder / "telemetry.jsonl")
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    theirs = [point for point in theirs if ours[0].t_ns + S // 4 < point[0] * S < ours[-1].t_ns]
    assert len(theirs) >= 4
    start, end = (round(theirs[at][0] * S) for at in (0, -1))
    found = study_columns({0: ours}, start, end + S // 2, period_ns=S, first=0)
    assert found.points == 2 * len(theirs)

    def of_both(key: str) -> float:
        return fmean(values[f"gpu.{gpu}.{key}"] for _, values in theirs for gpu in (0, 1))

    assert found.utilization_pct == pytest.approx(of_both("gpu"), abs=1e-9)
    assert found.memory_allocated_pct == pytest.approx(of_both("memoryAllocated"), abs=1e-9)
    means = [sample for sample in ours if isinstance(sample, GpuSample) and sample.gpm_interval_ns]
    for key, name in (("smActive", "sm_active_pct"), ("pipeTensorActive", "tensor_active_pct")):
        assert {getattr(sample, name) for sample in means} == {theirs[1][1][f"gpu.0.{key}"]}
