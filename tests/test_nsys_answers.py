"""What analyze-nsys says beyond the official reports, worked out by hand on small exports and read off real ones."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_export import Made

from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.nsys.result import NsysRank, NsysReport
from stepscope.analyzers.precision import precision_of

NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FP8, BF16 = "nvjet_qqtst_128x256_128x4_2x1_v_bz_TNN", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
REAL = ["a100_2.7b_clean", "a100_2.7b_nvtx", "a100x4_mpi_2024.5", "h100x2_1s", "h100x2_after", "pre2021_rtx6000"]


def report_of(made: Made, folder: Path) -> NsysReport:
    return answers([made.write(folder / "x.sqlite")])


def only_rank(made: Made, folder: Path) -> NsysRank:
    [rank] = report_of(made, folder).ranks
    return rank


def codes(report: NsysReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_the_span_is_split_into_parts_that_sum_to_it(tmp_path: Path) -> None:
    made = Made().kernel(0, 10).kernel(5, 20, NCCL, streamId=13).copy(18, 30).kernel(40, 50)
    [device] = only_rank(made, tmp_path).devices
    assert (device.span_ns, device.compute_ns, device.comm_exposed_ns, device.memory_ns, device.idle_ns) == (
        50, 20, 10, 10, 10,
    )  # fmt: skip
    assert (device.busy_ns, device.comm_overlapped_ns) == (40, 5)


def test_fp8s_share_is_of_gemm_time_and_gemms_are_told_by_precision(tmp_path: Path) -> None:
    rank = only_rank(Made().kernel(0, 30, FP8).kernel(30, 40, BF16).kernel(40, 100, "softmax_forward"), tmp_path)
    assert rank.devices[0].fp8_gemm_pct == 75.0
    assert [(row.precision, row.total_ns) for row in rank.devices[0].gemms] == [("fp8", 30), ("bf16", 10)]
    assert [(row.kind, row.share_pct) for row in rank.kinds] == [
        ("softmax and loss", 60.0), ("gemm fp8", 30.0), ("gemm bf16", 10.0),
    ]  # fmt: skip


def test_where_no_gemm_ran_fp8_has_no_share(tmp_path: Path) -> None:
    assert only_rank(Made().kernel(0, 1, NCCL), tmp_path).devices[0].fp8_gemm_pct is None


def test_processes_that_each_call_their_gpu_0_are_told_apart_where_the_export_says_which_it_is(tmp_path: Path) -> None:
    made = Made().kernel(0, 10, pid=1).kernel(5, 20, pid=2)
    for pid in (1, 2):
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=pid + 3, cudaId=0, pid=pid)
    assert [(device.device, device.span_ns) for device in only_rank(made, tmp_path).devices] == [(4, 10), (5, 15)]


def test_copies_are_told_by_direction_and_memory_with_their_rate(tmp_path: Path) -> None:
    made = Made().copy(0, 10, 1000).copy(20, 30, 3000).copy(40, 41, 500, srcKind=1)
    made.add("CUPTI_ACTIVITY_KIND_MEMSET", start=50, end=52, deviceId=0, bytes=64, memKind=2)
    found = only_rank(made, tmp_path).transfers
    assert found is not None
    assert [(row.direction, row.source, row.destination, row.count, row.total_ns, row.bytes) for row in found] == [
        ("HtoD", "Pageable", "Device", 2, 20, 4000),
        ("memset", None, "Device", 1, 2, 64),
        ("HtoD", "Pinned", "Device", 1, 1, 500),
    ]
    assert found[0].bytes_per_s == 4000 / 20e-9


def test_without_a_table_of_copies_they_are_not_measured_and_without_kernels_device_time_is_not(tmp_path: Path) -> None:
    assert only_rank(Made().kernel(0, 1), tmp_path).transfers is None
    (tmp_path / "x.sqlite").unlink()
    report = report_of(Made().call(0, 1), tmp_path)
    assert report.ranks[0].devices == []
    assert codes(report) == ["no-device-activity"]


def test_rows_that_are_no_intervals_stretch_no_span_and_are_counted(tmp_path: Path) -> None:
    made = Made().kernel(100, 110).kernel(0, 0).kernel(120, 119).kernel(5, 90_000 * 10**9).copy(7, 6)
    report = report_of(made, tmp_path)
    assert report.ranks[0].devices[0].span_ns == 10
    assert [finding.evidence for finding in report.findings] == [{"kernels": 3, "copies": 1}]


def test_a_graph_recorded_whole_is_charged_once_and_the_way_to_see_its_kernels_is_told(tmp_path: Path) -> None:
    made = Made().add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=90, deviceId=0, graphId=4, globalPid=5 << 24)
    report = report_of(made.kernel(95, 100), tmp_path)
    assert [(row.name, row.total_ns) for row in report.ranks[0].kernels] == [("CUDA graph 4", 90), ("gemm", 5)]
    [finding] = [found for found in report.findings if found.code == "graphs-recorded-whole"]
    assert finding.evidence == {"graphs": 1, "launches": 1}
    assert "--cuda-graph-trace=node" in finding.text


def test_a_graph_whose_kernels_were_recorded_is_not_charged_beside_them(tmp_path: Path) -> None:
    made = Made().kernel(0, 10, corr=3).kernel(10, 30, corr=3)
    for corr, start in ((3, 0), (4, 50)):
        made.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=start, end=start + 30, deviceId=0, graphId=corr, globalPid=5 << 24, correlationId=corr,
        )  # fmt: skip
    [device] = only_rank(made, tmp_path).devices
    assert [(row.name, row.total_ns) for row in device.kernels] == [("CUDA graph 4", 30), ("gemm", 30)]


@pytest.mark.parametrize("name", REAL)
def test_the_parts_of_real_exports_sum_to_the_span_and_what_ran_to_what_the_tables_hold(
    fixtures: Path, name: str
) -> None:
    path = fixtures / "nsys" / f"{name}.sqlite"
    [rank] = answers([path]).ranks
    assert rank.devices
    for device in rank.devices:
        assert device.span_ns == device.compute_ns + device.comm_exposed_ns + device.memory_ns + device.idle_ns
        assert device.busy_ns <= sum(row.total_ns for row in device.kinds)
        [(first, last)] = in_tables(path, f'SELECT min(start), max("end") FROM WORK WHERE deviceId = {device.device}')
        assert device.span_ns == last - first
    counted = sum(row.count for device in rank.devices for row in device.kinds)
    lasted = sum(row.total_ns for device in rank.devices for row in device.kinds)
    assert [(counted, lasted)] == in_tables(path, 'SELECT count(*), sum("end" - start) FROM WORK')


def in_tables(path: Path, query: str) -> list[tuple[int, ...]]:
    """A query of all kernels, copies and sets, as sqlite3 answers it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        there = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
        parts = [f'SELECT start, "end", deviceId FROM {table}' for table in tables if table in there]
        return database.execute(query.replace("WORK", f"({' UNION ALL '.join(parts)})")).fetchall()


ACTIVITY = st.tuples(st.integers(1, 60), st.integers(0, 30), st.sampled_from([BF16, NCCL, "copy"]), st.integers(0, 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.lists(ACTIVITY, min_size=1, max_size=12), st.randoms())
def test_parts_sum_to_the_span_union_is_no_more_than_the_sum_and_the_order_of_rows_means_nothing(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, str, int]], luck: random.Random
) -> None:
    found = []
    for _ in range(2):
        made = Made()
        for start, length, name, device in drawn:
            if name == "copy":
                made.copy(start, start + length, deviceId=device)
            else:
                made.kernel(start, start + length, name, deviceId=device)
        rank = only_rank(made, tmp_path_factory.mktemp("made"))
        for row in rank.devices:
            assert row.span_ns == row.compute_ns + row.comm_exposed_ns + row.memory_ns + row.idle_ns
            assert min(row.compute_ns, row.comm_exposed_ns, row.memory_ns, row.idle_ns, row.comm_overlapped_ns) >= 0
            assert row.busy_ns <= sum(kind.total_ns for kind in row.kinds)
        found.append([rank.devices, rank.kinds, rank.kernels, rank.transfers])
        luck.shuffle(drawn)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn", "fp16"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8", "bf16"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128", "tf32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64", "bf16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4>", "tf32"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x128>", "fp32"),
        ("volta_h884gemm_128x128", "fp16"),
        ("turing_fp16_s1688gemm_fp16_128x128", "fp16"),
        ("ampere_dgemm_64x64", "fp64"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128", "bf16"),
        ("Cijk_Ailk_Bljk_HHS_BH_Bias", "fp16"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNT", "fp16"),
        ("nvjet_sm100_tst_128x256", "bf16"),
        (FP8, "fp8"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", "fp8"),
        ("nvjet_tss_128x192_64x4_1x2_h_bz_NNN", "bf16"),
        ("nvjet_ssss_64x8_64x16_4x1_v_bz_TNN", "fp32"),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize160x128x32", "fp16"),
        ("void gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false>", "bf16"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "fp32"),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl<1>", "fp8"),
        ("matmul_kernel", None),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_SG_SG_NS7_IS8_S8_Lb0EEES19_SG_N", None),
        ("triton_tem_fused_mm_3", None),
        (NCCL, None),
    ],
)
def test_a_gemms_precision_is_told_from_its_name(name: str, precision: str | None) -> None:
    assert precision_of(name) == precision
