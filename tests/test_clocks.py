"""One clock: telemetry's Unix times fall where the trace says that they were read."""

from pathlib import Path

from torch.profiler import ProfilerActivity, profile, record_function

from stepscope.analyzers.kineto.read import read_trace
from stepscope.profiling.sampler import Sampler
from stepscope.record.telemetry import HostSample, read_telemetry

ERROR_NS = 5_000_000


def test_a_reading_taken_within_a_range_of_a_trace_is_stamped_within_it_to_5_ms(tmp_path: Path) -> None:
    paths = [tmp_path / f"telemetry.{number}.jsonl" for number in range(5)]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for path in paths:
            with record_function(path.stem), Sampler(path, 60):
                pass  # it reads on the way out, if not on the way in too
    trace = tmp_path / "rank0.trace.json"
    profiler.export_chrome_trace(str(trace))
    timeline = read_trace(trace)
    origin = timeline.sources[0].origin_ns
    assert origin
    ranges = {row["name"]: row for row in timeline.ranges.to_pylist()}
    for path in paths:
        start, end = (origin + ranges[path.stem][edge] for edge in ("start", "end"))
        read = [sample.t_ns for sample in read_telemetry(path) if isinstance(sample, HostSample)]
        assert read
        assert all(start - ERROR_NS <= t_ns <= end + ERROR_NS for t_ns in read), (start, read, end)
