"""What traces are said to show: every figure worked out by hand, in µs."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import AUTOGRAD, GEMM, MAIN, NCCL, Event, call, kernel, launched, note, on_host, op, report_of

from stepscope.analyzers.kineto.read import read_trace, read_traces
from stepscope.analyzers.trace_answers import answers
from stepscope.analyzers.trace_result import TraceRank, TraceReport

US = 1000


def only(report: TraceReport) -> TraceRank:
    [rank] = report.ranks
    return rank


def us(struct: object, *names: str) -> tuple[Any, ...]:
    return tuple(value if (value := getattr(struct, name)) is None else value / US for name in names)


ALL_REDUCE: dict[str, Any] = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4,
    "dtype": "BFloat16", "Process Group Name": "dp",
}  # fmt: skip
PATH = ("compute_ns", "communication_ns", "memory_ns", "launch_ns", "waiting_ns", "host_ns", "synchronisation_ns")
ALL_REDUCE: dict[str, Any] = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4,
    "dtype": "BFloat16", "Process Group Name": "dp",
}  # fmt: skip
PATH = ("compute_ns", "communication_ns", "memory_ns", "launch_ns", "waiting_ns", "host_ns", "synchronisation_ns")
CAUSES = ("host_bound_ns", "synchronisation_ns", "communication_ns", "data_ns", "after_launch_ns", "unknown_ns")


def test_idle_time_is_split_by_what_the_host_did_before_it_launched(tmp_path: Path) -> None:
    events = [
        *launched(GEMM, 0, 10, 20, 1),
        *launched(GEMM, 50, 60, 70, 2),  # gap 20..60: launched at 50; the host was in nothing: 30, then 10 after
        note("enumerate(DataLoader)#_SingleProcess.__next__", 75, 95),
        *launched(GEMM, 100, 101, 110, 3),  # gap 70..101: data 75..95, host 10, after 1
        call("cudaStreamSynchronize", 105, 111, 90),  # the host waits until the device is dry, at 110
        *launched(GEMM, 140, 142, 150, 4),  # gap 110..142: all 30 before the launch is synchronisation, after 2
        op("c10d::barrier", 155, 175),
        *launched(GEMM, 180, 180, 190, 5),  # gap 150..180: communication 155..175, host 10
        kernel(GEMM, 200, 210, 6),  # gap 190..200: launch not recorded
    ]
    [device] = only(report_of(tmp_path, events)).devices
    assert us(device.idle, *CAUSES) == (30 + 10 + 10, 30, 20, 20, 10 + 1 + 2, 10)
    assert us(device.idle, "before_launch_ns", "idle_ns") == (120, 143)
    assert us(device, "span_ns", "compute_ns", "idle_ns") == (200, 57, 143)


def test_a_copy_that_returned_after_it_was_done_is_waiting_for_the_device(tmp_path: Path) -> None:
    copy = {**kernel("Memcpy DtoH (Device -> Pageable)", 20, 22, 2), "cat": "gpu_memcpy"}
    events = [*launched(GEMM, 0, 10, 20, 1), call("cudaMemcpyAsync", 5, 30, 2), copy, *launched(GEMM, 40, 41, 50, 3)]
    [device] = only(report_of(tmp_path, events)).devices
    assert us(device.idle, "host_bound_ns", "synchronisation_ns", "after_launch_ns") == (0, 40 - 22, 1)


def test_gaps_inside_one_launch_of_a_graph_are_told_apart_and_warned_of(tmp_path: Path) -> None:
    """Tracing kernels of graphs singly puts gaps between them: 26 % idle in a job 99 % busy (TraceLens#728)."""
    events = [call("cudaGraphLaunch", 0, 1, 1), *(kernel(GEMM, 10 * n, 10 * n + 7, 1) for n in range(1, 11))]
    report = report_of(tmp_path, events)
    [device] = only(report).devices
    assert us(device.idle, "idle_ns", "after_launch_ns", "in_graph_ns") == (27, 27, 27)
    assert "idle-inside-graphs" in {finding.code for finding in report.findings}


def test_launches_of_graphs_without_any_kernel_are_said(tmp_path: Path) -> None:
    events = [*launched(GEMM, 0, 10, 20, 1), call("cudaGraphLaunch", 30, 31, 2), call("cudaGraphLaunch", 40, 41, 3)]
    [finding] = [f for f in report_of(tmp_path, events).findings if f.code == "graphs-without-activity"]
    assert finding.evidence == {"rank": 0, "launches": 2, "without_activity": 2}


def training_step() -> list[Event]:
    """One step: forward on the main thread, backward on autograd's, the optimizer; 3 GEMMs and one all-reduce."""
    return [
        note("ProfilerStep#5", 0, 200),
        note("forward", 10, 40),
        on_host("python_function", "nn.Module: Linear_0", 12, 38),
        op("aten::linear", 14, 36),
        op("aten::addmm", 16, 34, **{"Sequence number": 7, "Input Dims": [[4, 8], [8, 2]]}),
        *launched(GEMM, 20, 30, 50, 1),
        note("backward", 50, 120),
        op("autograd::engine::evaluate_function: AddmmBackward0", 60, 90, AUTOGRAD, **{"Sequence number": 7}),
        op("AddmmBackward0", 62, 88, AUTOGRAD, **{"Sequence number": 7}),
        op("aten::mm", 64, 80, AUTOGRAD),
        *launched(GEMM, 70, 80, 110, 2, AUTOGRAD),
        op("record_param_comms", 92, 98, AUTOGRAD, **ALL_REDUCE),
        *launched(NCCL, 94, 100, 140, 3, AUTOGRAD, stream=20),
        note("Optimizer.step#AdamW.step", 130, 180),
        op("aten::_fused_adamw_", 132, 150),
        *launched("multi_tensor_apply_kernel", 140, 150, 160, 4),
    ]


def test_a_steps_device_time_is_that_of_its_launches_not_of_the_annotation_around_its_first_kernel(
    tmp_path: Path,
) -> None:
    """Work that autograd's thread launches belongs to the step too: by its launch call, as kineto#1022 had it wrong."""
    [step] = only(report_of(tmp_path, training_step())).steps or []
    assert step.name == "ProfilerStep#5"
    parts = ("span_ns", "compute_ns", "comm_overlapped_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
    # 30..50 GEMM, 80..110 GEMM, 100..140 all-reduce (30 alone), 150..160 optimizer: 130 = 60 + 30 + 40
    assert us(step, *parts) == (130, 60, 10, 30, 0, 40)
    assert us(step, "launched_ns", "host_ns") == (100, 200)


def test_phases_have_what_they_launched_whatever_the_thread(tmp_path: Path) -> None:
    found = {row.phase: us(row, "device_ns", "host_ns") for row in only(report_of(tmp_path, training_step())).phases}
    assert found == {
        "forward": (20, 30), "backward": (70, 70), "optimizer": (10, 50), "data": (0, 0), "other": (0, None)
    }  # fmt: skip


def test_the_backward_of_an_operator_and_of_its_module_is_found_by_the_sequence_number(tmp_path: Path) -> None:
    rank = only(report_of(tmp_path, training_step()))
    operators = {
        row.name: us(row, "self_ns", "device_self_ns", "device_total_ns", "backward_ns") for row in rank.operators
    }
    assert operators["aten::addmm"] == (18, 20, 20, 30)
    assert operators["aten::linear"] == (4, 0, 20, 30)
    assert operators["AddmmBackward0"] == (10, 0, 30, 0)
    [module] = rank.modules
    assert module.name == "nn.Module: Linear_0"
    assert us(module, "inclusive_ns", "exclusive_ns", "backward_ns", "host_ns") == (20, 20, 30, 26)


def test_a_range_that_waits_for_autograd_has_its_kernels_by_time_and_says_so(tmp_path: Path) -> None:
    projection = only(report_of(tmp_path, training_step())).projection
    assert projection is not None
    found = {row.name: us(row, "inclusive_ns", "by_time_ns") for row in projection.ranges}
    assert found["backward"] == (70, 70)
    assert found["forward"] == (20, 0)
    assert found["ProfilerStep#5"] == (100, 70)
    assert us(projection, "gpu_ns", "attributed_ns", "outside_ns", "unlaunched_ns") == (100, 100, 0, 0)


def test_collectives_have_their_size_algorithm_and_bus_bandwidth(tmp_path: Path) -> None:
    [row] = only(report_of(tmp_path, training_step())).communication
    assert (row.collective, row.algorithm, row.protocol) == ("AllReduce", "RING", "LL")
    assert (row.dtype, row.group, row.group_size, row.count) == ("BFloat16", "dp", 4, 1)
    assert row.bytes == 2000
    assert row.alg_bytes_per_s == pytest.approx(2000 / 40e-6)
    assert row.bus_bytes_per_s == pytest.approx(2000 / 40e-6 * 2 * 3 / 4)


def test_what_a_kernel_itself_says_of_its_collective_needs_no_operator(tmp_path: Path) -> None:
    """As RCCL's generic kernel, whose name says nothing, and torch since 2.4, which says it beside the kernel."""
    told = {"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 80, "Group size": 8}
    generic = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    events = [kernel(generic, 10, 20, 1, dtype="Float8_e4m3fn", **told)]
    [row] = only(report_of(tmp_path, events)).communication
    assert (row.collective, row.algorithm, row.dtype, row.bytes) == ("AllGather", None, "Float8_e4m3fn", 10)
    assert row.alg_bytes_per_s == pytest.approx(80 / 10e-6)
    assert row.bus_bytes_per_s == pytest.approx(80 / 10e-6 * 7 / 8)


def test_sizes_and_bandwidths_that_are_not_known_of_every_collective_are_not_measured(tmp_path: Path) -> None:
    events = [kernel(NCCL, 10, 20, 1, **{"Collective name": "allreduce"})]
    [row] = only(report_of(tmp_path, events)).communication
    assert (row.collective, row.bytes, row.alg_bytes_per_s, row.bus_bytes_per_s) == ("AllReduce", None, None, None)


def test_fsdps_collectives_are_told_by_layer_and_phase_exposed_and_hidden(tmp_path: Path) -> None:
    gather, scatter = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
    events = [
        note("FSDP::pre_forward (layers.0)", 0, 20),
        note("FSDP::all_gather (layers.0)", 1, 15),
        *launched(gather, 5, 10, 30, 1, stream=9),  # alone until 20, then under the GEMM
        *launched(GEMM, 18, 20, 60, 2),
        note("FSDP::pre_backward (layers.0)", 70, 90, AUTOGRAD),
        note("FSDP::all_gather (layers.0)", 71, 80, AUTOGRAD),
        *launched(gather, 75, 80, 100, 3, AUTOGRAD, stream=9),
        note("FSDP::post_backward_reduce (layers.0)", 100, 110, AUTOGRAD),
        *launched(scatter, 105, 110, 130, 4, AUTOGRAD, stream=10),
        *launched(GEMM, 106, 110, 125, 5, AUTOGRAD),
    ]
    found = {
        (row.layer, row.phase): (row.count, *us(row, "host_ns", "comm_ns", "exposed_ns", "overlapped_ns"))
        for row in only(report_of(tmp_path, events)).fsdp
    }
    assert found == {
        ("layers.0", "all-gather forward"): (1, 14, 20, 10, 10),
        ("layers.0", "all-gather backward"): (1, 9, 20, 20, 0),
        ("layers.0", "reduce-scatter"): (1, 10, 20, 5, 15),
    }


def test_without_gpus_operators_compute_and_gloos_threads_communicate(tmp_path: Path) -> None:
    worker = 105
    shapes = {"Input Dims": [[50]], "Input type": ["float"]}
    events = [
        note("step", 0, 100),
        op("aten::mm", 0, 30),
        op("c10d::allreduce_", 30, 32),
        note("gloo:all_reduce", 32, 60, worker, **shapes),
        op("aten::add_", 35, 40, worker),
        op("aten::mul", 40, 50),
        op("_c10d_functional::wait_tensor", 50, 60),
        op("aten::mm", 70, 100),
    ]
    report = report_of(tmp_path, events)
    rank = only(report)
    assert rank.devices == []
    assert rank.processor is not None
    # 0..30, 40..50 and 70..100 compute; 32..40 and 50..60 communication alone
    parts = ("span_ns", "compute_ns", "comm_exposed_ns", "comm_overlapped_ns", "memory_ns", "idle_ns")
    assert us(rank.processor, *parts) == (100, 70, 18, 10, 0, 12)
    assert [us(step, "span_ns", "comm_exposed_ns") for step in rank.steps or []] == [(100, 18)]
    [row] = rank.communication
    assert (row.collective, row.dtype, row.bytes, row.bus_bytes_per_s) == ("AllReduce", "float", 200, None)
    assert [row.device_ns for row in rank.phases] == [None] * 5
    assert "no-device-activity" in {finding.code for finding in report.findings}


def test_memory_has_its_peak_and_the_phases_in_which_it_grew(tmp_path: Path) -> None:
    def change(ts: int, size: int, total: int, device: int = 0) -> Event:
        args = {"Bytes": size, "Total Allocated": total, "Total Reserved": 4096, "Device Id": device, "Device Type": 1}
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": MAIN,
            "tid": MAIN,
            "ts": ts,
            "args": args,
        }

    events = [
        note("forward", 0, 20), note("backward", 20, 40), op("aten::mm", 0, 50),
        change(5, 100, 1100), change(10, 50, 1150), change(25, -30, 1120), change(30, 200, 1320), change(45, -9, 1311),
    ]  # fmt: skip
    [curve] = only(report_of(tmp_path, events)).memory
    assert (curve.first_bytes, curve.peak_bytes, curve.last_bytes, curve.reserved_peak_bytes) == (
        1000,
        1320,
        1311,
        4096,
    )
    assert curve.peak_time_ns == 30 * US
    assert curve.by_phase == {"forward": 150, "backward": 170}
    assert curve.first_bytes + sum(curve.by_phase.values()) == curve.peak_bytes
    assert [point.allocated_bytes for point in curve.points] == [1100, 1150, 1120, 1320, 1311]


def test_the_critical_path_goes_from_work_to_launch_to_the_host_and_to_what_it_waited_for(tmp_path: Path) -> None:
    events = [
        note("ProfilerStep#1", 0, 100),
        *launched(GEMM, 10, 15, 40, 1),  # host 0..10, launch 10..15, compute 15..40
        call("cudaDeviceSynchronize", 20, 42, 90),  # returns 2 after the work: synchronisation 40..42
        *launched(GEMM, 50, 53, 70, 2),  # host 42..50, launch 50..53, compute 53..70
        *launched(NCCL, 55, 72, 90, 3, stream=9),  # queued before 70: waiting 70..72, communication 72..90
    ]
    [path] = only(report_of(tmp_path, events)).critical_paths
    assert us(path, "span_ns", *PATH) == (90, 42, 18, 0, 8, 2, 18, 2)
    longest = [(part.name, part.kind, part.total_ns / US) for part in path.longest[:3]]
    assert longest == [(GEMM, "compute", 42), (NCCL, "communication", 18), ("host", "host", 18)]


def test_the_queue_is_what_was_launched_and_had_not_begun(tmp_path: Path) -> None:
    events = [*launched(GEMM, 0, 10, 20, 1), *launched(GEMM, 4, 20, 30, 2), *launched(GEMM, 40, 50, 60, 3)]
    [queue] = only(report_of(tmp_path, events)).queues
    # 0..4 one waits, 4..10 two, 10..20 one, 20..40 none, 40..50 one: (4 + 12 + 10 + 0 + 10) / 50
    assert (queue.most, queue.mean, queue.empty_pct) == (2, 36 / 50, 40.0)
    assert (queue.latency_median_ns, queue.device) == (10 * US, 0)


def ranks_of(late_by: int) -> tuple[list[Event], list[Event], list[Event]]:
    """Three ranks with two all-reduces each; rank 2 computes longer, and its clock is 1000 µs ahead."""

    def rank(more: int, clock: int) -> list[Event]:
        events = [note("ProfilerStep#1", clock, 400 + clock)]
        for n in range(2):
            at = 10 + 200 * n + clock
            events += launched(GEMM, at, at + 5, at + 50 + more, 2 * n)
            events += launched(NCCL, at + 6, at + 50 + more, at + 120, 2 * n + 1, stream=9)
        return events

    return rank(0, 0), rank(0, 0), rank(late_by, 1000)


def test_the_rank_that_others_wait_for_is_named_with_what_it_has_more_of(tmp_path: Path) -> None:
    report = report_of(tmp_path, *ranks_of(30), world=3)
    assert report.straggler is not None
    late = report.straggler
    assert (late.rank, late.last_in, late.collectives, late.cause) == (2, 2, 2, "compute")
    assert us(late, "cause_ns", "others_ns", "waited_ns") == (2 * 75, 2 * 45, 2 * 2 * 30)
    assert report.skew is not None
    assert [row.offset_ns for row in report.skew.workers] == [0, 0, 1000 * US]
    assert "straggler" in {finding.code for finding in report.findings}


def test_ranks_alike_have_no_straggler(tmp_path: Path) -> None:
    assert report_of(tmp_path, *ranks_of(0)).straggler is None


def test_ranks_that_are_missing_or_unequal_are_said(tmp_path: Path) -> None:
    first, second, third = ranks_of(0)
    more = [note("ProfilerStep#2", 500, 600), *launched(GEMM, 510, 515, 520, 90)]
    report = report_of(tmp_path, first, second + more, third, world=5)
    found = {finding.code: finding.evidence for finding in report.findings}
    assert found["ranks-missing"] == {"missing": [3, 4]}
    assert found["ranks-unequal"] == {"steps": {0: 1, 1: 2, 2: 1}}


def test_communication_that_is_partly_hidden_is_reported_exposed_for_the_rest(tmp_path: Path) -> None:
    """No share of overlap is below or above a threshold: what is exposed is always told."""
    for hidden in (0, 40, 99, 100):
        events = [*launched(NCCL, 0, 10, 110, 1, stream=9), *launched(GEMM, 1, 10, 10 + hidden, 2)]
        [device] = only(report_of(tmp_path, events)).devices
        assert us(device, "comm_exposed_ns", "comm_overlapped_ns") == (100 - hidden, hidden)


def test_without_communication_there_is_none_and_no_share_of_nothing(tmp_path: Path) -> None:
    report = report_of(tmp_path, launched(GEMM, 0, 10, 20, 1))
    [device] = only(report).devices
    assert (device.comm_exposed_ns, device.comm_overlapped_ns) == (0, 0)
    assert only(report).communication == []


def test_operators_that_begin_together_nest_with_the_longest_outside(tmp_path: Path) -> None:
    events = [op("inner", 10, 20), op("outer", 10, 40), op("middle", 10, 30)]
    found = {row.name: row.self_ns / US for row in only(report_of(tmp_path, events)).operators}
    assert found == {"outer": 10, "middle": 10, "inner": 10}


def test_a_step_that_ends_within_an_operator_is_tolerated(tmp_path: Path) -> None:
    """torchtune#2323 had "ranges on the same thread should not intersect" of a ProfilerStep and an operator."""
    events = [note("ProfilerStep#1", 0, 50), op("aten::mm", 40, 60), *launched(GEMM, 45, 48, 55, 1)]
    rank = only(report_of(tmp_path, events))
    assert [us(step, "launched_ns") for step in rank.steps or []] == [(7,)]
    assert us(rank.operators[0], "self_ns", "device_self_ns") == (20, 7)


def test_activities_without_launches_or_operators_are_counted_and_the_rest_is_not_measured(tmp_path: Path) -> None:
    report = report_of(tmp_path, [kernel(GEMM, 0 + 1, 10, 1), kernel(GEMM, 20, 30, 2)])
    rank = only(report)
    assert (rank.launches, rank.projection, rank.phases, rank.operators, rank.steps) == (None, None, [], [], None)
    assert rank.devices[0].idle.unknown_ns == rank.devices[0].idle_ns == 10 * US
    assert "no-launches" in {finding.code for finding in report.findings}


def test_work_without_length_overlaps_nothing_and_spoils_no_sum(tmp_path: Path) -> None:
    events = [*launched(GEMM, 0, 10, 20, 1), *launched("empty", 2, 15, 15, 2), *launched(GEMM, 4, 20, 30, 3)]
    report = report_of(tmp_path, events)
    [device] = only(report).devices
    assert us(device, "span_ns", "compute_ns", "idle_ns") == (20, 20, 0)
    assert "overlap-on-a-stream" not in {finding.code for finding in report.findings}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([GEMM, NCCL, "Memcpy"]),
        st.integers(1, 60),
        st.integers(0, 30),
        st.integers(0, 20),
        st.integers(7, 8),
    ),
    min_size=1,
    max_size=12,
)


def events_of(rows: list[tuple[str, int, int, int, int]]) -> list[Event]:
    found = [
        note("ProfilerStep#1", 0, 40),
        note("FSDP::all_gather (a)", 5, 30),
        op("aten::mm", 3, 25),
        note("data", 26, 35),
    ]
    for number, (name, at, wait, lasts, stream) in enumerate(rows):
        pair = launched(name, at, at + wait, at + wait + lasts, number, stream=stream)
        if name == "Memcpy":
            pair[1]["cat"] = "gpu_memcpy"
        found += pair
    return found


@settings(deadline=None, max_examples=60)
@given(rows=EVENTS, order=st.randoms(use_true_random=False))
def test_parts_sum_to_the_whole_unions_are_no_more_than_sums_and_the_order_of_events_means_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int, int, int]], order: Any
) -> None:
    events = events_of(rows)
    report = report_of(tmp_path_factory.mktemp("a"), events)
    rank = only(report)
    [device] = rank.devices
    assert device.span_ns == device.compute_ns + device.comm_exposed_ns + device.memory_ns + device.idle_ns
    assert device.busy_ns <= sum(lasts for _, _, _, lasts, _ in rows) * US
    idle = device.idle
    assert idle.before_launch_ns == idle.host_bound_ns + idle.synchronisation_ns + idle.communication_ns + idle.data_ns
    assert idle.idle_ns == device.idle_ns == idle.before_launch_ns + idle.after_launch_ns + idle.unknown_ns
    assert min(us(idle, *CAUSES, "in_graph_ns")) >= 0
    for step in rank.steps or []:
        assert step.span_ns == step.compute_ns + step.comm_exposed_ns + step.memory_ns + step.idle_ns
    for path in rank.critical_paths:
        assert path.span_ns == sum(getattr(path, part) for part in PATH)
    assert rank.projection is not None
    assert sum(row.device_ns or 0 for row in rank.phases) == rank.projection.gpu_ns
    for row in rank.fsdp:
        assert (row.comm_ns or 0) == (row.exposed_ns or 0) + (row.overlapped_ns or 0)
    order.shuffle(events)
    shuffled = only(report_of(tmp_path_factory.mktemp("a"), events))
    for name in rank.__struct_fields__:
        if name != "source":
            assert getattr(shuffled, name) == getattr(rank, name), name


REAL = [
    "backward_thread.json", "cpu_only_rank34.pt.trace.json.gz", "gpu_only.json.gz", "torch_compile_triton.json.gz",
    "h100_gaunernst_bert-small-uncased.json.gz", "large_integer.json.gz", "mi250_minitoy.json.gz",
    "mi300_ddp_resnet18.json.gz", "mi300_resnet_act_checkpoint.json.gz", "no_distributed_info.json.gz",
    "v100_ddp_test.json.gz", "v100_resnet50_2021.pt.trace.json.gz",
]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_parts_of_real_traces_sum_to_their_wholes(fixtures: Path, name: str) -> None:
    rank = only(answers(read_trace(fixtures / "torch" / name)))
    for device in rank.devices + ([rank.processor] if rank.processor else []):
        idle = device.idle
        assert device.span_ns == device.compute_ns + device.comm_exposed_ns + device.memory_ns + device.idle_ns
        assert idle.idle_ns == device.idle_ns == idle.before_launch_ns + idle.after_launch_ns + idle.unknown_ns
        assert min(us(idle, *CAUSES)) >= 0
    if rank.projection:
        whole = rank.projection.gpu_ns
        assert sum(row.device_ns or 0 for row in rank.phases) == whole - rank.projection.unlaunched_ns
        assert sum(row.device_self_ns or 0 for row in rank.operators) <= whole
    for path in rank.critical_paths:
        assert path.span_ns == sum(getattr(path, part) for part in PATH)
    for curve in rank.memory:
        assert curve.first_bytes + sum(curve.by_phase.values()) == curve.peak_bytes


def test_every_odd_case_has_an_answer(fixtures: Path) -> None:
    for path in sorted((fixtures / "odd").glob("*.json")):
        answers(read_trace(path))


def test_kernels_find_the_operator_that_the_peer_says_launched_them(fixtures: Path) -> None:
    """TraceLens' parent operator of each kernel: the sums by operator are the device time of its own here."""
    for name in ("Falconsai_nsfw_image_detection", "gaunernst_bert-small-uncased"):
        stem = fixtures / "torch" / f"h100_{name}"
        peers: dict[str, float] = {}
        with Path(f"{stem}.peer_kernel_summary.csv").open() as file:
            for row in csv.DictReader(file):
                peers[row["Parent cpu_op"]] = peers.get(row["Parent cpu_op"], 0) + float(
                    row["Kernel duration (µs)_sum"]
                )
        rank = only(answers(read_trace(Path(f"{stem}.json.gz"))))
        ours = {row.name: (row.device_self_ns or 0) / 1e3 for row in rank.operators if row.device_self_ns}
        apart = {name: time_us - peers.get(name, 0) for name, time_us in ours.items()}
        others = {name: time_us for name, time_us in apart.items() if abs(time_us) > 0.01}
        assert len(others) == 1, "the one that also sets or copies, which that table leaves out"
        copies = sum(row.total_ns for row in rank.devices[0].kinds if row.kind in ("memset", "memcpy"))
        assert sum(others.values()) == pytest.approx(copies / 1e3, abs=0.01)
        assert peers.keys() <= ours.keys()


def test_operators_of_the_odd_cases_have_the_device_time_that_their_project_states(fixtures: Path) -> None:
    stated = {
        "self_time": {"aten::mat_mul": (20 + 16, 16), "aten::mm": (20, 20)},
        "all_categories": {"aten::to": (0, 0), "aten::nll_loss_backward": (30, 30)},
        "top_level_runtime": {"aten::mm": (0, 0)},  # launched by a thread that is in no operator
        "group_by_kernel_columns": {"op1": (15 + 10 + 13, 38), "op2": (17, 17)},  # found by their External ids
    }
    for name, wanted in stated.items():
        rank = only(answers(read_trace(fixtures / "odd" / f"kineto_test_{name}_0.json")))
        found = {row.name: us(row, "device_total_ns", "device_self_ns") for row in rank.operators if row.name in wanted}
        assert found == wanted


@pytest.mark.parametrize(
    ("worker", "computing", "overlapping", "communicating", "other"), [(0, 47, 74, 35, 0), (1, 36, 64, 34, 12)]
)
def test_computing_and_communication_of_the_odd_cpu_case_are_what_its_project_states(
    fixtures: Path, worker: int, computing: int, overlapping: int, communicating: int, other: int
) -> None:
    rank = only(answers(read_trace(fixtures / "odd" / f"kineto_test_distributed_gloo_cpu_{worker}.json")))
    parts = ("compute_ns", "comm_overlapped_ns", "comm_exposed_ns", "idle_ns")
    assert rank.processor is not None
    assert us(rank.processor, *parts) == (computing + overlapping, overlapping, communicating, other)
    assert sum(row.count for row in rank.communication) == 5


def test_modules_of_the_odd_case_are_those_that_its_project_states(fixtures: Path) -> None:
    rank = only(answers(read_trace(fixtures / "odd" / "kineto_test_build_module_hierarchy_0.json")))
    ranges = {row.name for row in rank.ranges if row.kind == "module"}
    assert ranges == {"nn.Module: MyModule", "nn.Module: Linear", "nn.Module: Conv2"}
    assert read_traces([fixtures / "odd" / "kineto_test_build_module_hierarchy_0.json"]).findings == ()
