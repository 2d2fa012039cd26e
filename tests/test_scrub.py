"""Scrubbed copies: what was planted is nowhere in their bytes, and every number is where it was."""

import gzip
import json
import os
import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest

from stepscope.analyzers.breakdown import breakdown
from stepscope.analyzers.kineto.find import find_traces
from stepscope.analyzers.kineto.read import read_traces
from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.scrub.files import scrub
from stepscope.dashboards.cli import main
from stepscope.record.errors import TraceError, UserError
from stepscope.record.private import Cleaner, Names
from stepscope.record.run import RunDir

TOKEN, USER, HOST = "planted-T0ken-9f8e7d6c5b4a", "zplanteduser", "zplantedhost42"
PLANTED = (TOKEN, USER, HOST)
ENVIRONMENT = f'PROCESS_0:ENVIRONMENT_VARIABLE\0MY_API_KEY="{TOKEN}"'.split("\0")
SAMPLE = Path(__file__).parent.parent / "traces" / "sample" / "mxtw"


def plant(path: Path) -> None:
    """Put token, user and host into every place of an export that has text."""
    said = f"/home/{USER}/run {TOKEN} on {HOST}.example.org by {USER}"
    with sqlite3.connect(path) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = {
            "META_DATA_CAPTURE": [
                ENVIRONMENT, ("PROCESS_0:ENVIRONMENT_VARIABLE", f"USER={USER}"), ("DEVICE_DISPLAY_NAME", HOST),
                ("PROCESS_0:ARGUMENT_7", f"--key={TOKEN}"), ("PROCESS_0:COMMAND", f"/home/{USER}/bin/python"),
                ("PROCESS_0:WORKING_DIR", f"/data/{USER}/project"), ("PROCESS_0:USER_NAME", USER),
            ],
            "META_DATA_EXPORT": [("EXPORT_HOST", HOST), ("EXPORT_USER", USER),
                                 ("EXPORT_PARAM_INPUT_PATH_ABS", f"/data/{USER}/x.nsys-rep")],
        }  # fmt: skip
        for table, pairs in rows.items():
            if table not in tables:
                database.execute(f"CREATE TABLE {table} (name TEXT, value TEXT)")
            database.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", pairs)
        last = database.execute("SELECT max(id) FROM StringIds").fetchone()[0]
        database.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (last + 1, said))
        database.execute("CREATE TABLE added (number INTEGER, words TEXT, bytes BLOB)")
        database.execute("INSERT INTO added VALUES (7, ?, ?)", (said, b"\xff\n" + said.encode()))
        database.execute("CREATE TABLE gone (words TEXT)")
        database.executemany("INSERT INTO gone VALUES (?)", [(said,)] * 500)
        database.execute("DROP TABLE gone")  # its pages stay in the file
    database.close()


def planted_in(path: Path) -> list[str]:
    data = path.read_bytes()
    texts = [data, gzip.decompress(data)] if data[:2] == b"\x1f\x8b" else [data]
    return [name for name in PLANTED if any(name.encode() in text for text in texts)]


def small_export(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'printed by the program'), (3, 'root');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                                                     correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 7, 1, {5 << 24}, 1),
                                                          (30, 50, 0, 7, 2, {5 << 24}, 3);
            CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
            INSERT INTO PROCESSES VALUES ({5 << 24}, 5, 'python'), ({6 << 24}, 6, 'zsh of somebody');
            CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
            INSERT INTO ProcessStreams VALUES ({5 << 24}, 2, 2);
            """
        )
    database.close()
    return path


def test_what_was_planted_in_a_built_export_is_nowhere_in_the_copys_bytes(tmp_path: Path) -> None:
    path = small_export(tmp_path / "x.sqlite")
    plant(path)
    before = path.read_bytes()
    assert planted_in(path) == list(PLANTED)
    result = scrub(path, tmp_path / "y.sqlite", force=False)
    assert planted_in(result.output) == []
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.sqlite", "y.sqlite"]
    with sqlite3.connect(result.output) as database:
        assert database.execute("SELECT value FROM StringIds WHERE id < 4").fetchall() == [("gemm",), ("",), ("root",)]
        assert database.execute("SELECT name FROM PROCESSES").fetchall() == [("python",)]
        assert database.execute("SELECT number, typeof(bytes) FROM added").fetchall() == [(7, "blob")]
    database.close()
    assert result.removed["environment variable"] == 2
    assert not any(name in repr(result.removed) for name in PLANTED)


@pytest.mark.parametrize(
    "name", ["a100_2.7b_nvtx", "h100x2_after", "pre2021_rtx6000", "nvtx_only_2022", "wsl_rtx3080_tiny"]
)
def test_a_real_export_loses_what_was_planted_and_no_number(fixtures: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.sqlite"
    shutil.copyfile(fixtures / "nsys" / f"{name}.sqlite", path)
    plant(path)
    once = scrub(path, tmp_path / "once.sqlite", force=False).output
    assert planted_in(once) == []
    old, new = answers([path]), answers([once])
    for field in set(old.ranks[0].__struct_fields__) - {"source"}:
        assert getattr(old.ranks[0], field) == getattr(new.ranks[0], field), field
    assert "carries-environment" not in [finding.code for finding in new.findings]
    again = scrub(once, tmp_path / "twice.sqlite", force=False)
    assert not again.removed
    with sqlite3.connect(once) as first, sqlite3.connect(again.output) as second:
        first.text_factory = second.text_factory = bytes
        for (table,) in first.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            query = f'SELECT * FROM "{table.decode()}"'
            assert first.execute(query).fetchall() == second.execute(query).fetchall()
    first.close()
    second.close()


def planted_trace(plain: str) -> str:
    """The document with a head that tells everything, and an event that says it again."""
    head = {
        "host_name": HOST, "user": USER, "environment": {"MY_API_KEY": TOKEN, "HOME": f"/data/{USER}", "N": 4},
        "argv": ["train.py", f"--key={TOKEN}"], "traceName": f"/data/{USER}/trace.json",
    }  # fmt: skip
    event = {
        "ph": "X",
        "cat": "python_function",
        "name": f"/home/{USER}/a.py({HOST}): é {TOKEN}",
        "ts": 1.5,
        "dur": 0.25,
    }
    start = plain.index("{") + 1
    plain = plain[:start] + json.dumps(head)[1:-1] + "," + plain[start:]
    at = plain.index("[", plain.index('"traceEvents"')) + 1
    return plain[:at] + json.dumps(event) + "," + plain[at:]


def test_a_trace_loses_what_was_planted_and_no_number(tmp_path: Path) -> None:
    source = next(iter(sorted(SAMPLE.glob("rank0*.json.gz"))))
    path = tmp_path / "t.pt.trace.json.gz"
    path.write_bytes(gzip.compress(planted_trace(gzip.decompress(source.read_bytes()).decode()).encode()))
    once = scrub(path, tmp_path / "once.pt.trace.json.gz", force=False)
    assert planted_in(path) == list(PLANTED)
    assert planted_in(once.output) == []
    document = json.loads(gzip.decompress(once.output.read_bytes()))
    assert document["environment"] == {"removed_1": "", "removed_2": "", "removed_3": 4}
    assert document["argv"] == ["", ""]
    assert document["traceName"] == "rank0.7.pt.trace.json.gz"  # the last one of the two
    assert document["traceEvents"][0]["name"] == "~/a.py(<host>): é <removed>"
    assert document["traceEvents"][0]["dur"] == 0.25
    old, new = (read_traces(find_traces([file])) for file in (path, once.output))
    numbers = [column for column in old.ops.column_names if column != "name"]
    assert old.ops.select(numbers).equals(new.ops.select(numbers))
    again = scrub(once.output, tmp_path / "twice.pt.trace.json.gz", force=False)
    assert again.output.read_bytes() == once.output.read_bytes()
    assert not again.removed


@pytest.mark.parametrize(
    "name",
    [pytest.param("v100_resnet50_2021.pt.trace", marks=pytest.mark.slow), "gpu_only", "cpu_only_rank34.pt.trace"],
)
def test_a_real_traces_report_stays_the_same(fixtures: Path, tmp_path: Path, name: str) -> None:
    path = fixtures / "torch" / f"{name}.json.gz"
    copy = scrub(path, tmp_path / path.name, force=False).output
    text = gzip.decompress(copy.read_bytes())
    assert b"/home/" not in text
    assert b"facebook.com" not in text
    old, new = (breakdown(read_traces(find_traces([file]))).ranks[0].devices for file in (path, copy))
    assert old == new


def test_a_runs_folder_is_copied_file_by_file_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run)
    manifest = RunDir(run).manifest()
    manifest.argv += ["--out", f"/home/{USER}/traces"]
    manifest.environment = {"SLURM_JOB_ID": "12", "MY_API_KEY": TOKEN}
    RunDir(run).write_manifest(manifest)
    (run / "error.rank1.txt").write_text(f'File "/home/{USER}/train.py"\non {HOST}: {TOKEN}\n')
    (run / "memory.rank0.pickle").write_bytes(pickle.dumps({"frames": [{"filename": f"/home/{USER}/a.py", "line": 3}]}))
    plant(small_export(run / f"{HOST}.sqlite"))
    (run / "run.nsys-rep").write_bytes(TOKEN.encode())
    (run / "model").mkdir()
    (run / "model" / "model.safetensors").write_bytes(USER.encode())
    result = scrub(run, tmp_path / "copy", force=False)
    files = [file for file in result.output.rglob("*") if file.is_file()]
    assert {file.name: planted_in(file) for file in files if planted_in(file)} == {}
    assert not any(HOST in file.name for file in files)
    assert len(files) == len(list(SAMPLE.iterdir())) + 3
    assert [line.partition(":")[0] for line in result.left_out] == ["model", "run.nsys-rep"]
    assert "nsys export" in result.left_out[1]
    copied = RunDir(result.output).manifest()
    assert manifest.argv
    assert copied.argv == [""] * len(manifest.argv)
    assert copied.environment["SLURM_JOB_ID"] == "12"
    assert RunDir(result.output).steps() == RunDir(run).steps()
    loaded = pickle.loads((result.output / "memory.rank0.pickle").read_bytes())
    assert loaded == {"frames": [{"filename": "~/a.py", "line": 3}]}


def test_a_folder_where_event_files_tell_a_home_keeps_their_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    run = tmp_path / "run"
    run.mkdir()
    shutil.copyfile(SAMPLE / "run.json", run / "run.json")
    path = run / f"events.out.tfevents.1.{USER}"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        parts = text_pb("t", f"in /home/{USER}/x"), hparams_pb({"out": f"/home/{USER}/x"}), scalar_pb("loss", 2.5)
        for summary in parts:
            writer.write(Event(step=3, summary=summary).SerializeToString())
    (run / "log.rank0.txt").write_text(f"/home/{USER}/x")
    copy = scrub(run, tmp_path / "copy", force=False)
    [events] = copy.output.glob("*tfevents*")
    assert planted_in(events) == []
    assert not copy.removed["event record"]
    kept = list(EventFileLoader(str(events)).Load())
    assert [event.summary.value[0].tag for event in kept][::2] == ["t", "loss"]


def test_a_copy_that_exists_is_kept_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_export(tmp_path / "x.sqlite")
    plant(path)
    assert main(["scrub", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'x.scrubbed.sqlite'}\n"
    assert "2 × environment variable" in shown.err
    assert not any(name in shown.err for name in PLANTED)
    assert main(["scrub", str(path)]) == 1
    assert "add --force" in capsys.readouterr().err
    assert main(["scrub", str(path), "--force"]) == 0
    assert main(["scrub", str(path), "-o", str(path), "--force"]) == 2
    assert main(["scrub", str(path), "-o", str(tmp_path)]) == 1  # into the folder, where the copy lies already


def test_a_sealed_report_is_refused_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(b"NVID")
    assert main(["scrub", str(path)]) == 1
    said = capsys.readouterr().err
    assert "nsys export" in said
    assert "--discard-environment=true" in said


def test_names_that_are_words_of_every_trace_stay() -> None:
    names = Names()
    for name in ("root", "nvidia", "max"):
        names.user(name)
    cleaner = Cleaner(names)
    kept = "void at::native::max_pool<nvidia::root>(max, /opt/nvidia/lib) 12.8.4.1"
    assert cleaner.text(kept) == kept
    assert cleaner.text("/scratch/max/x https://bob:hunter2x@host/ api_key=abcdefgh") == (
        "/scratch/<user>/x https://<removed>@host/ api_key=<removed>"
    )


def test_a_packed_trace_that_was_cut_short_keeps_what_there_is_and_loses_what_was_planted(tmp_path: Path) -> None:
    event = json.dumps({"name": f"a {TOKEN}", "host": HOST, "n": 1})
    document = f'{{"env": {{"MY_API_KEY": "{TOKEN}"}}, "traceEvents": [{", ".join([event] * 5000)}]}}'
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(document.encode(), compresslevel=0)[:-1000])
    result = scrub(path, tmp_path / "b.json.gz", force=False)
    assert planted_in(result.output) == []
    kept = gzip.decompress(result.output.read_bytes()).decode()
    assert kept.startswith('{"env": {"removed_1": ""}, "traceEvents": [{"name": "a <removed>", "host": "", "n": 1}')
    assert kept.count('"n": 1') > 4900


@pytest.mark.parametrize("name", ["a.json", "steps.rank0.jsonl", "log.rank0.txt", "a.json.gz"])
def test_a_text_that_is_none_is_refused_for_nothing_could_be_found_in_it(tmp_path: Path, name: str) -> None:
    data = f'{{"env": {{"MY_API_KEY": "{TOKEN}"}}}}'.encode("utf-16-le")
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(TraceError, match="is no text in UTF-8"):
        scrub(path, tmp_path / "copy", force=False)
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_one_file_that_cannot_be_cleaned_does_not_keep_a_folder_from_being_copied(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"environment": {"MY_API_KEY": TOKEN}, "n": 1}))
    (run / "memory.rank0.pickle").write_bytes(pickle.dumps({"a": f"x {TOKEN}", "b": b"\xff " + TOKEN.encode()}))
    (run / "log.rank1.txt").write_bytes(TOKEN.encode("utf-16-le"))
    result = scrub(run, tmp_path / "copy", force=False)
    assert sorted(path.name for path in result.output.iterdir()) == ["memory.rank0.pickle", "run.json"]
    assert [line.partition(":")[0] for line in result.left_out] == ["log.rank1.txt"]
    assert [planted_in(path) for path in result.output.iterdir()] == [[], []]
    assert pickle.loads((result.output / "memory.rank0.pickle").read_bytes())["b"] == b"\xff <removed>"


@pytest.mark.parametrize(
    "name", ["README.md", "settings.toml", "notes.txt", "data.jsonl", "program.py", "package.json"]
)
def test_a_file_that_is_no_capture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_text('{"words": 1}')
    assert main(["scrub", str(tmp_path / name)]) == 1
    assert (
        "exports (.sqlite, *_pqtdir), traces (.json, .json.gz), run folders can be scrubbed" in capsys.readouterr().err
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_name_with_a_slash_at_its_end_is_a_folder_for_the_copy_whether_it_exists_or_not(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copyfile(SAMPLE / "run.json", run / "run.json")
    assert main(["scrub", str(run), "-o", f"{tmp_path}/to/send/"]) == 0
    assert [path.name for path in (tmp_path / "to" / "send").iterdir()] == ["run.scrubbed"]
    assert main(["scrub", str(run), "-o", f"{tmp_path}/named"]) == 0
    assert (tmp_path / "named" / "run.json").is_file()


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(UserError, match="no such file or folder"):
        scrub(tmp_path / "a.json", tmp_path / "b.json", force=False)
