"""The data set that is shipped: well-formed Turkish, no line twice, nothing that reads like a statute."""

import json
import re
import unicodedata
from pathlib import Path

import pytest

from stepscope.trainer.batches import load_dataset
from stepscope.trainer.examples import data_source, read_conversations
from stepscope.trainer.resolve import SHIPPED_DATA
from stepscope.trainer.tokens import byte_tokenizer

TEXT = SHIPPED_DATA.read_text(encoding="utf-8")
LINES = [json.loads(line) for line in TEXT.splitlines()]


def test_every_line_is_a_question_and_an_answer_in_whole_sentences() -> None:
    assert len(LINES) >= 150
    for line in LINES:
        assert set(line) == {"question", "answer"}
        assert line["question"][-1] in "?."
        assert line["answer"][-1] == "."
        assert line["answer"][0].isupper()
        assert line["question"] == line["question"].strip()


def test_no_question_is_asked_twice() -> None:
    assert len({line["question"].casefold() for line in LINES}) == len(LINES)


def test_letters_are_turkish_and_composed() -> None:
    assert unicodedata.normalize("NFC", TEXT) == TEXT
    assert all(TEXT.count(letter) > 50 for letter in "çğıöşü")
    strange = {letter for letter in TEXT if letter.isalpha()} - set(
        "abcçdefgğhıijklmnoöprsştuüvyzâîûwxqABCÇDEFGĞHIİJKLMNOÖPRSŞTUÜVYZWXQ"
    )
    assert strange == set()


def test_nothing_in_it_cites_or_invents_a_law() -> None:
    assert not re.search(r"\b(?:kanun|yasa|yönetmelik|TCK|TMK|HMK|CMK)\w*\b|\bmadde\s*\d", TEXT, re.IGNORECASE)
    assert not re.search(r"\d+\s*(?:sayılı|inci|nci|üncü|ncu)", TEXT)


@pytest.mark.parametrize("pack", [True, False])
def test_it_fits_the_default_length_with_some_to_hold_out(pack: bool) -> None:  # noqa: FBT001
    assert sum(1 for _ in read_conversations(data_source(SHIPPED_DATA))) == len(LINES)
    data = load_dataset(SHIPPED_DATA, byte_tokenizer(), seq_len=256, held_out=32, pack=pack)
    assert data.facts["truncated"] == 0
    assert data.facts["training_rows"] >= (60 if pack else 100)


def test_it_is_shipped_beside_the_trainer() -> None:
    assert Path(__file__).parent.parent / "trainer" / "turkish_qa.jsonl" == SHIPPED_DATA
