"""The odd traces of another project's tests, against what it states of them."""

import json
from pathlib import Path

import pytest
from kineto_rows import rows

from stepscope.analyzers.breakdown import breakdown
from stepscope.analyzers.kineto.read import read_trace


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("all_categories", {"void cunn_ClassNLLCriterion_updateGradInput_kernel<float>": (1, 15)}),
        ("self_time", {"void cunn_ClassNLLCriterion_updateGradInput_kernel<float>": (2, 20 + 16)}),
        ("top_level_runtime", {"void gemmSN_TN_kernel_64addr": (1, 8)}),
        (
            "tensor_core",
            {
                "kernel_no_tc": (1, 10),
                "volta_fp16_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1": (1, 15),
            },
        ),
    ],
)
def test_kernels_of_the_odd_cases_are_what_their_own_project_states(
    fixtures: Path, name: str, kernels: dict[str, tuple[int, int]]
) -> None:
    timeline = read_trace(fixtures / "odd" / f"kineto_test_{name}_0.json")
    [device] = breakdown(timeline).ranks[0].devices
    assert {row.name: (row.count, row.total_ns // 1000) for row in device.kernels} == kernels


def test_kinds_of_work_of_the_odd_case_are_what_its_own_project_states(fixtures: Path) -> None:
    report = breakdown(read_trace(fixtures / "odd" / "kineto_test_all_categories_0.json"))
    [device] = report.ranks[0].devices
    assert {row.kind: row.total_ns for row in device.kinds} == {
        "softmax and loss": 15_000, "memcpy": 10_000, "memset": 5_000
    }  # fmt: skip
    operators = {row.name: row.total_ns for row in report.ranks[0].operators}
    assert (operators["aten::to"], operators["aten::nll_loss_backward"]) == (60_000, 70_000)


def test_self_time_of_the_odd_case_differs_from_its_projects_by_the_launches_alone(fixtures: Path) -> None:
    """It takes the CUDA calls that an operator makes off its self time (35 and 30 µs are left); here they stay in."""
    timeline = read_trace(fixtures / "odd" / "kineto_test_self_time_0.json")
    operators = {row.name: row for row in breakdown(timeline).ranks[0].operators}
    launches = {row["correlation"]: row["end"] - row["start"] for row in rows(timeline, "launches")}
    assert operators["aten::mat_mul"].total_ns == 100_000
    assert operators["aten::mat_mul"].self_ns - launches[335] == 35_000
    assert operators["aten::mm"].total_ns == 40_000
    assert operators["aten::mm"].self_ns - launches[334] == 30_000


def test_every_odd_case_reads_and_holds_the_invariants(fixtures: Path) -> None:
    paths = sorted((fixtures / "odd").glob("*.json"))
    assert len(paths) > 20
    for path in paths:
        timeline = read_trace(path)
        timeline.check()
        breakdown(timeline)


def test_the_odd_cases_memory_is_its_allocations_and_releases(fixtures: Path) -> None:
    path = fixtures / "odd" / "kineto_test_memory_view_0.json"
    raw = [event["args"] for event in json.loads(path.read_text()) if event["name"] == "[memory]"]
    found = rows(read_trace(path), "memory")
    assert [row["delta_bytes"] for row in found] == [args["Bytes"] for args in raw]
    assert [row["device"] for row in found] == [args["Device Id"] if args["Device Type"] else -1 for args in raw]
    assert {row["device"] for row in found} == {-1, 0}
