"""The ground floor: files that appear whole, run folders that never collide, numbers as people read them."""

import errno
import io
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.record.atomic import write_atomically
from stepscope.record.errors import ConfigError, TraceError, UserError, plain_reason
from stepscope.record.jsonl import JsonlWriter, read_jsonl
from stepscope.record.manifest import Device, Manifest, Outcome, World, without_home
from stepscope.record.program import run, single
from stepscope.record.recipes import RECIPES, recipe
from stepscope.record.run import RunDir, default_run_name, find_runs, new_run
from stepscope.record.steps import Step, timed
from stepscope.record.sweep import Sweep, write_sweep
from stepscope.record.units import show_bytes, show_count, show_loss, show_ns, show_pct


def a_manifest(**changes: object) -> Manifest:
    manifest = Manifest(
        run="bf16-1",
        recipe=recipe("bf16"),
        emulated=False,
        config={"steps": 20},
        world=World(size=2, nodes=1, backend="gloo"),
        devices=[Device(kind="cpu", name="a CPU", memory_bytes=1 << 34)] * 2,
        model={"name": "pico"},
        versions={"torch": "2.13.0"},
        argv=["profile-train"],
        started_ns=1_000,
    )
    return msgspec.structs.replace(manifest, **changes)


def a_step(number: int, **changes: object) -> Step:
    step = Step(step=number, rank=0, start_ns=number * 100, duration_ns=90, tokens=7, positions=8)
    return msgspec.structs.replace(step, **changes)


def test_a_failed_atomic_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    run_folder = RunDir(tmp_path)
    manifest = a_manifest(outcome=Outcome(state="failed", message="rank 1 …", rank=1, exit_code=1, steps=4))
    run_folder.write_manifest(manifest)
    assert run_folder.manifest() == manifest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is not a stepscope manifest"),
        (b'{"schema": "stepscope.run/1"', "is not a stepscope manifest"),
        (b'{"schema": "stepscope.run/1"}', "missing required field"),
        (b"\xff\xfe", "is not a stepscope manifest"),
    ],
)
def test_a_manifest_that_is_none_is_one_line_with_its_path(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(TraceError, match=says) as caught:
        RunDir(tmp_path).manifest()
    assert str(caught.value).startswith(str(tmp_path / "run.json"))
    assert "\n" not in str(caught.value)


def test_a_manifest_of_a_later_program_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    RunDir(tmp_path).write_manifest(a_manifest(schema="stepscope.run/2"))
    with pytest.raises(TraceError, match=r"is of schema stepscope.run/2, and this program reads stepscope.run/1"):
        RunDir(tmp_path).manifest()


def test_a_missing_manifest_says_what_a_run_folder_is(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"a run folder holds a run\.json"):
        RunDir(tmp_path).manifest()


def test_steps_are_read_back_and_a_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.rank0.jsonl"
    with JsonlWriter(path) as writer:
        writer.write(a_step(1, loss=2.5, marks=("first",)))
        writer.write(a_step(2))
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]), len(whole)):
        path.write_bytes(whole[:cut])
        assert RunDir(tmp_path).steps() == {0: [a_step(1, loss=2.5, marks=("first",))]}


@pytest.mark.parametrize("cut", [1, 20, 70_000, 200_000])
def test_a_line_cut_by_a_crash_is_gone_once_its_file_is_written_on(tmp_path: Path, cut: int) -> None:
    path = RunDir(tmp_path).steps_path(0)
    with JsonlWriter(path) as writer:
        writer.write(a_step(1))
    with path.open("ab") as file:
        file.write(b"x" * cut)
    with JsonlWriter(path) as writer:
        writer.write(a_step(2))
    assert RunDir(tmp_path).steps() == {0: [a_step(1), a_step(2)]}


def test_a_file_of_nothing_but_half_a_line_is_begun_anew(tmp_path: Path) -> None:
    RunDir(tmp_path).steps_path(0).write_bytes(b'{"step":')
    with JsonlWriter(RunDir(tmp_path).steps_path(0)) as writer:
        writer.write(a_step(1))
    assert RunDir(tmp_path).steps() == {0: [a_step(1)]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/ann", "~"),
        ("--out=/data/ann/x", "--out=~/x"),
        ("in /data/ann. It", "in ~. It"),
        ("/data/annabel/x", "/data/annabel/x"),
        ("/mnt/data/ann/x", "/mnt/data/ann/x"),
    ],
)
def test_a_home_is_written_as_a_tilde_and_only_where_it_is_one(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.setenv("HOME", "/data/ann")
    assert without_home([text]) == [shown]


def test_no_text_of_a_manifest_or_a_sweep_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/ann")
    made = a_manifest()
    made.argv, made.config = ["--data", "/data/ann/a.jsonl"], {"data": "/data/ann/a.jsonl", "more": ["/data/ann"]}
    made.model, made.outcome = {"name": "/data/ann/m"}, Outcome(state="failed", message="/data/ann/x: is none")
    RunDir(tmp_path).write_manifest(made)
    plan = Sweep(settings={"data": "/data/ann/a.jsonl"}, cells=[], argv=["/data/ann/a"], started_ns=1)
    write_sweep(tmp_path, plan)
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert [("/data/ann" in text, "~/a.jsonl" in text) for text in texts] == [(False, True)] * 2
    assert made.argv[1] == "/data/ann/a.jsonl"


def test_words_with_bytes_that_are_no_text_do_not_keep_a_manifest_from_being_written(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.write_manifest(a_manifest(argv=["a\udcff", "é"], config={"data": "\udce9.jsonl", "n": 1.5}))
    assert run.manifest() == a_manifest(argv=["a?", "é"], config={"data": "?.jsonl", "n": 1.5})


def test_a_broken_line_in_the_middle_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(msgspec.json.encode(a_step(1)) + b"\nnonsense\n" + msgspec.json.encode(a_step(2)) + b"\n")
    with pytest.raises(TraceError, match="line 2 is not a record"):
        list(read_jsonl(path, Step))


def test_marked_steps_are_not_timed_steps() -> None:
    steps = [a_step(1, marks=("first",)), a_step(2), a_step(3, marks=("profiled",)), a_step(4, marks=("eval",))]
    assert [step.step for step in timed(steps)] == [2]


def test_no_two_runs_get_the_same_folder(tmp_path: Path) -> None:
    made = [new_run(tmp_path / "traces", "mxtw").name for _ in range(3)]
    assert made == ["mxtw", "mxtw-2", "mxtw-3"]


def test_a_place_that_takes_no_run_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((UserError, OSError)) as caught:
        new_run(tmp_path / "file" / "traces", "mxtw")
    assert isinstance(caught.value, UserError)
    assert "--out" in str(caught.value)


def test_the_default_name_sorts_by_time_within_a_recipe() -> None:
    assert default_run_name("mxtw", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)) == "mxtw-20260304-050607"


def test_runs_are_found_below_folders_each_once_and_nothing_below_a_run(tmp_path: Path) -> None:
    for name in ("b/one", "b/two", "a"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        RunDir(folder).write_manifest(a_manifest())
    (tmp_path / "a" / "nested").mkdir()
    RunDir(tmp_path / "a" / "nested").write_manifest(a_manifest())
    found = [run_folder.path.relative_to(tmp_path).as_posix() for run_folder in find_runs([tmp_path, tmp_path / "a"])]
    assert found == ["a", "b/one", "b/two"]
    with pytest.raises(UserError, match="no such file or folder"):
        list(find_runs([tmp_path / "absent"]))


def test_traces_are_listed_by_rank_then_step_and_half_written_ones_are_not(tmp_path: Path) -> None:
    for name in ("rank10.6", "rank2.6", "rank2.16", ".rank0.6"):
        (tmp_path / f"{name}.pt.trace.json.gz").write_bytes(b"")
    names = [path.name.removesuffix(".pt.trace.json.gz") for path in RunDir(tmp_path).traces()]
    assert names == ["rank2.6", "rank2.16", "rank10.6"]


def test_every_recipe_is_found_by_its_name_and_aliases_and_an_unknown_one_lists_them() -> None:
    for row in RECIPES:
        assert all(recipe(name) is row for name in (row.name, *row.aliases))
    with pytest.raises(ConfigError, match="bf16, tensorwise, rowwise, rowwise_with_gw_hp, mxtw"):
        recipe("fp4")


def test_a_recipe_that_claims_the_casts_of_another_has_them() -> None:
    operands = ("input", "weight", "grad_output")
    operands += ("input_for_grad_weight", "weight_for_grad_input", "grad_output_for_grad_weight")
    for row in RECIPES:
        if row.same_casts_as:
            other = recipe(row.same_casts_as)
            assert [getattr(row, name) for name in operands] == [getattr(other, name) for name in operands]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "not measured"), (0, "0 ns"), (834, "834 ns"), (12_340, "12.3 µs"), (4_560_000, "4.56 ms"),
        (1_234_000_000, "1.23 s"), (119_900_000_000, "120 s"), (125_000_000_000, "2 min 05 s"), (-1_500, "-1.50 µs"),
        (999_999, "1.00 ms"), (999.7, "1.00 µs"), (59_999_600_000_000, "1000 min 00 s"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_the_unit_that_suits_it(value: float | None, shown: str) -> None:
    assert show_ns(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "not measured"), (0, "0 B"), (512, "512 B"), (1536, "1.50 KiB"), (3.25 * 2**30, "3.25 GiB"),
     (2**20 - 1, "1.00 MiB"), (2**41, "2.00 TiB")],
)  # fmt: skip
def test_bytes_are_shown_in_binary_units(value: float | None, shown: str) -> None:
    assert show_bytes(value) == shown


def test_percentages_counts_and_losses_have_one_form_each() -> None:
    assert [show_pct(12.34), show_pct(5, signed=True), show_pct(None)] == ["12.3 %", "+5.0 %", "not measured"]
    assert [show_count(18_320.4), show_count(None)] == ["18,320", "not measured"]
    assert [show_loss(1.23456), show_loss(None)] == ["1.2346", "not measured"]


@given(st.integers(1, 10**15))
def test_a_shown_duration_is_within_half_a_percent_of_the_value(value: int) -> None:
    text = show_ns(value)
    if " min " in text:
        minutes, _, seconds, _ = text.split()
        back = (int(minutes) * 60 + int(seconds)) * 1e9
    else:
        number, unit = text.split()
        back = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert back == pytest.approx(value, rel=0.0051)


def exit_code(error: BaseException | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def command() -> None:
        """Do something."""
        if error:
            raise error

    return run(single(command, "thing"), []), capsys.readouterr().err


def test_a_users_mistake_is_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(None, capsys) == (0, "")
    assert exit_code(UserError("no data"), capsys) == (1, "thing: no data\n")
    assert exit_code(ConfigError("--x: no"), capsys) == (2, "thing: --x: no\n")
    assert exit_code(KeyboardInterrupt(), capsys) == (130, "thing: interrupted\n")
    assert exit_code(PermissionError(13, "Permission denied", "/x"), capsys) == (1, "thing: Permission denied (/x)\n")


def test_misuse_of_a_command_line_is_one_line_that_names_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    def command(*, steps: int = 1) -> None:
        """Do something."""

    assert run(single(command, "thing"), ["--steps", "many"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--steps" in line
    assert line.endswith("See thing --help.")


def test_a_bug_keeps_its_traceback() -> None:
    def command() -> None:
        """Do something."""
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(single(command, "thing"), [])


def test_a_line_that_the_disk_takes_only_a_part_of_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullAfterFourBytes:
        def __init__(self, file: io.FileIO) -> None:
            self.file, self.left = file, 4
            self.fileno, self.truncate, self.close = file.fileno, file.truncate, file.close

        def write(self, data: memoryview) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken, self.left = self.left, 0
            return self.file.write(data[:taken])

    path = tmp_path / "steps.rank0.jsonl"
    with JsonlWriter(path) as writer:
        writer.write(a_step(1))
        whole = path.read_bytes()
        monkeypatch.setattr(writer, "_file", FullAfterFourBytes(writer._file))
        with pytest.raises(OSError, match="No space left"):
            writer.write(a_step(2))
    assert path.read_bytes() == whole


def test_a_file_that_was_removed_or_replaced_under_its_writer_counts_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "steps.rank0.jsonl"
    with JsonlWriter(path) as writer:
        assert not writer.lost
        path.rename(tmp_path / "elsewhere")
        assert writer.lost
        path.touch()
        assert writer.lost


def test_where_a_full_disk_has_no_room_for_two_manifests_the_new_one_is_written_over_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = RunDir(tmp_path)
    monkeypatch.setattr("stepscope.record.document.write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        run.write_manifest(a_manifest())
    run.manifest_path.write_bytes(b"{}" * 5000)
    run.write_manifest(a_manifest(outcome=Outcome(state="failed", message="the disk is full")))
    assert run.manifest().outcome.message == "the disk is full"


def test_what_the_system_refused_is_said_in_plain_words_with_the_place() -> None:
    assert plain_reason(OSError(errno.ENOSPC, "No space left on device", "a/b")) == "the disk is full (a/b); make room"
    assert plain_reason(OSError(errno.EDQUOT, "Disk quota exceeded")) == "the disk is full; make room"
    assert plain_reason(OSError(errno.EACCES, "Permission denied", "a/b")) == "Permission denied (a/b)"
