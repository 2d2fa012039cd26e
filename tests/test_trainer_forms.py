"""What `--data` reads: rows of every known form, in files of every known kind, in folders, and on the hub."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepscope.record.errors import ConfigError, TraceError
from stepscope.trainer import hub
from stepscope.trainer.batches import load_dataset
from stepscope.trainer.examples import data_source, read_conversations
from stepscope.trainer.forms import Message, reading
from stepscope.trainer.tokens import byte_tokenizer

AB_C = [Message("user", "ab"), Message("assistant", "c")]
ROWS = [{"question": f"q{number}", "answer": f"a{number}"} for number in range(5)]
QUESTIONS = [f"q{number}" for number in range(5)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def conversations(path: Path, columns: str | None = None) -> list[list[Message]]:
    return list(read_conversations(data_source(path), reading(columns)))


def questions(path: Path) -> list[str]:
    return [turns[0].content for turns in conversations(path)]


def one_line(tmp_path: Path, row: object) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text(f"\n{json.dumps(row)}\n")
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]},
        {"conversations": [{"from": "human", "value": "ab"}, {"from": "gpt", "value": "c"}]},
        {"conversations": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c", "more": 1}]},
        {"question": "ab", "answer": "c"},
        {"instruction": "ab", "output": "c", "extra": 1},
        {"instruction": "ab", "input": "", "output": "c"},
        {"instruction": "ab", "input": None, "output": "c"},
        {"prompt": "ab", "completion": "c"},
        {"prompt": "ab", "response": "c"},
        {"messages": None, "question": "ab", "answer": "c"},
    ],
)
def test_the_known_forms_of_a_row_mean_the_same(tmp_path: Path, row: dict[str, Any]) -> None:
    assert conversations(one_line(tmp_path, row)) == [AB_C]


def test_an_instructions_input_stands_below_it(tmp_path: Path) -> None:
    path = one_line(tmp_path, {"instruction": "a", "input": "b", "output": "c"})
    assert conversations(path) == [[Message("user", "a\n\nb"), Message("assistant", "c")]]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"soru": "ab", "cevap": "c"}, "question=soru,answer=cevap"),
        ({"question": "ab", "cevap": "c"}, "answer=cevap"),
        ({"instruction": "ab", "context": "", "response": "c"}, "input=context, output=response"),
        ({"turns": [{"from": "human", "value": "ab"}, {"from": "gpt", "value": "c"}]}, "messages=turns"),
        ({"soru": "ab", "cevap": "c", "messages": 3}, "question=soru,answer=cevap"),
    ],
)
def test_columns_of_other_names_are_read_as_they_are_told(tmp_path: Path, row: dict[str, Any], columns: str) -> None:
    assert conversations(one_line(tmp_path, row), columns) == [AB_C]


@pytest.mark.parametrize(
    "columns", ["question", "question=", "soru=question", "question=a,output=b", "answer=a,answer=b"]
)
def test_names_that_make_no_form_are_refused(columns: str) -> None:
    with pytest.raises(ConfigError, match="--data-columns"):
        reading(columns)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 2 is no JSON"),
        ('{"question": ' + "[" * 100_000, "line 2 is no JSON"),
        ("3", "line 2 is no object with columns but a number"),
        (
            '{"question": "a"}',
            "line 2 fits no form: it has question, and known are messages; conversations; question, answer",
        ),
        ("{}", "line 2 fits no form: it has nothing"),
        ('{"question": 3, "answer": "b"}', "line 2 has a number in question, not a text"),
        ('{"messages": "a"}', "line 2 has a text in messages, not a list of turns"),
        ('{"messages": [{"role": "user"}]}', "line 2 has a turn 1 in messages without role and content"),
        ('{"messages": [{"role": null, "content": "a"}]}', "line 2 has null as role of turn 1 in messages, not a text"),
    ],
)
def test_a_row_of_no_form_is_named_by_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(f'{{"question": "a", "answer": "b"}}\n{text}\n')
    with pytest.raises(TraceError) as refused:
        conversations(path)
    assert f"{path}: {says}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_parquet_file_with_a_broken_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"question": ["a"] * 50, "answer": ["b"] * 50}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    with pytest.raises(TraceError, match="does not read as Parquet") as refused:
        conversations(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_refused_before_anything_waits_for_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "part.jsonl"
    if kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"part\.jsonl is no file"):
        data_source(tmp_path)


def test_a_column_that_was_named_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it has question, answer, and wanted are soru and answer"):
        conversations(one_line(tmp_path, {"question": "a", "answer": "b"}), "question=soru")


@pytest.mark.parametrize(
    "row",
    [
        {"question": "a", "answer": None},
        {"question": "a", "answer": " \n"},
        {"question": "", "answer": "b"},
        {"messages": []},
        {"messages": None},
        {"messages": [{"role": "user", "content": "a"}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]},
    ],
)
def test_a_row_without_an_answer_is_counted_and_left_out(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(LINES + json.dumps(row) + "\n")
    data = load_dataset(path, byte_tokenizer(), seq_len=64, held_out=2, pack=False)
    facts = {name: data.facts[name] for name in ("examples", "without_answer", "without_answer_in_seq_len")}
    assert facts == {"examples": 6, "without_answer": 1, "without_answer_in_seq_len": 0}
    assert (len(data.training), len(data.held_out)) == (3, 2)


def test_every_kind_of_file_reads_the_same(tmp_path: Path) -> None:
    names = ("a.jsonl", "lines.json", "array.json", "a.jsonl.gz", "a.parquet")
    lines, lines_json, array, packed, parquet = (tmp_path / name for name in names)
    lines.write_text(LINES)
    lines_json.write_text(LINES)
    array.write_text("\n " + json.dumps(ROWS, indent=1))
    packed.write_bytes(gzip.compress(LINES.encode()))
    pq.write_table(pa.Table.from_pylist([row | {"n": 1} for row in ROWS]), parquet, row_group_size=2)
    for path in (lines, lines_json, array, packed, parquet):
        assert questions(path) == QUESTIONS, path.name


def test_turns_in_parquet_read_as_those_in_json(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "ab"}, {"from": "gpt", "value": "c"}]
    pq.write_table(pa.table({"conversations": [turns, None]}), tmp_path / "a.parquet")
    assert conversations(tmp_path / "a.parquet") == [AB_C, []]


def test_a_row_of_parquet_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["a"] * 1500, "answer": [1] * 1500}), tmp_path / "a.parquet")
    with pytest.raises(TraceError, match=r"a\.parquet: row 1 has a number in answer"):
        conversations(tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "b.parquet")
    with pytest.raises(TraceError, match=r"row 1 fits no form: it has text, label, and known are"):
        conversations(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.parquet", b"PAR1 not really", "does not read as Parquet"),
        ("a.jsonl.gz", b"{}", "does not unpack"),
        ("a.jsonl.gz", gzip.compress(LINES.encode())[:-12], "does not unpack"),
        ("a.json", b"[{]", "is no JSON array"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_costs_one_line(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=says) as refused:
        conversations(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_folder_is_its_shards_in_the_order_of_their_names_and_hashed_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    half = LINES.index('{"question": "q3"')
    (folder / "part-2.jsonl").write_text(LINES[half:])
    (folder / "part-1.jsonl").write_text(LINES[:half])
    for beside in (".gitattributes", "_SUCCESS", "README.md"):
        (folder / beside).write_text("no data")
    assert questions(folder) == QUESTIONS
    facts = load_dataset(folder, byte_tokenizer(), seq_len=64, held_out=0, pack=False).facts
    assert (facts["file"], facts["files"]) == ("set", 2)
    assert facts["sha256"] == hashlib.sha256(LINES.encode()).hexdigest()


def test_shards_may_be_of_several_kinds_and_the_one_at_fault_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_text(LINES)
    pq.write_table(pa.table({"question": ["q"], "answer": [1]}), tmp_path / "1.parquet")
    with pytest.raises(TraceError, match=r"1\.parquet: row 1 has a number"):
        conversations(tmp_path)


def test_a_folder_with_anything_else_or_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no \.jsonl"):
        data_source(tmp_path)
    (tmp_path / "a.csv").write_text("question,answer\n")
    with pytest.raises(ConfigError, match=r"a\.csv is of no known kind; known are .jsonl, .jsonl.gz, .json, .parquet"):
        data_source(tmp_path)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigError, match="holds the folder train"):
        data_source(tmp_path)


def test_what_is_neither_here_nor_a_name_on_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets").mkdir()
    for name in ("nowhere.jsonl", "owner/qa.jsonl", "sets/qa", "/owner/name", "a/b/c"):
        with pytest.raises(ConfigError, match="--data: there is no file or folder"):
            data_source(Path(name))


def test_a_name_on_the_hub_without_the_package_names_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"owner/name; to read it from the hub: pip install 'stepscope\[datasets\]'"):
        data_source(Path("owner/name"))


def test_a_split_is_for_the_hub_only(qa_file: Path) -> None:
    with pytest.raises(ConfigError, match="--data-split"):
        data_source(qa_file, "train")


# The package imports what warns, and keeps settings for the whole process: it is tried in a process of its own.
_ON_THE_HUB = """
import json, sys
from pathlib import Path
from stepscope.record.errors import ConfigError
from stepscope.trainer.batches import load_dataset
from stepscope.trainer.tokens import byte_tokenizer
try:
    found = load_dataset(Path(sys.argv[1]), byte_tokenizer(), seq_len=64, held_out=1, pack=False, split=sys.argv[2])
    print(json.dumps(found.facts))
except ConfigError as error:
    print(error)
"""


def from_hub(name: str, split: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _ON_THE_HUB, name, split],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of `datasets` in which owner/name lies, two splits, as a download leaves it."""
    pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hub")
    (folder / "name").mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[:3])):
        pq.write_table(pa.Table.from_pylist(rows), folder / "name" / f"{split}-00000-of-00001.parquet")
    load = "import datasets, sys; datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2])"
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", load, str(folder / "name"), str(folder / "cache")]
    subprocess.run(command, env=offline, capture_output=True, check=True)
    shutil.move(folder / "cache" / "name", folder / "cache" / "owner___name")
    return folder / "cache"


def test_a_data_set_of_the_hub_is_read_from_the_cache(cache: Path) -> None:
    facts = json.loads(from_hub("owner/name", "train", HF_DATASETS_CACHE=str(cache)))
    read = "".join(f'{{"answer":"{row["answer"]}","question":"{row["question"]}"}}\n' for row in ROWS)
    assert (facts["file"], facts["split"], facts["examples"]) == ("owner/name", "train", 5)
    assert facts["sha256"] == hashlib.sha256(read.encode()).hexdigest()
    assert json.loads(from_hub("owner/name", "test", HF_DATASETS_CACHE=str(cache)))["examples"] == 3


def test_a_split_that_is_not_there_costs_one_line(cache: Path) -> None:
    line = from_hub("owner/name", "validation", HF_DATASETS_CACHE=str(cache))
    assert line.startswith("--data owner/name: split validation does not load: Unknown split")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("environment", "why"),
    [({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"), ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "refused")],
)
def test_a_hub_out_of_reach_is_said_at_once(cache: Path, environment: dict[str, str], why: str) -> None:
    line = from_hub("owner/other", "train", HF_DATASETS_CACHE=str(cache), HF_HOME=str(cache), **environment)
    assert "--data owner/other: there is no such file, no copy in the cache of datasets, and the hub is out of" in line
    assert why in line
    assert "\n" not in line
