"""Tables on a terminal, as CSV and as JSON."""

import io

import pytest

from stepscope.dashboards.tables import Column, Table, csv_text, json_text, print_all, print_table, terminal
from stepscope.record.units import show_ns

TABLE = Table(
    title="Kernels [bold]",
    columns=[
        Column(name="total_ns", heading="time", show=show_ns),
        Column(name="name", heading="kernel", right=False, fold=True),
    ],
    rows=[(1_500_000, "a" * 60), (None, "evil\x1b[31m,\n[red]name")],
    note="How to read it.",
)


def drawn(width: int) -> list[str]:
    out = io.StringIO()
    print_table(TABLE, terminal(width=width, file=out))
    return out.getvalue().splitlines()


def test_only_names_are_cut_to_fit_and_numbers_never() -> None:
    lines = drawn(60)
    assert any("1.50 ms" in line and line.rstrip().endswith("…") for line in lines)
    assert any("not measured" in line for line in lines)
    assert max(len(line.rstrip()) for line in lines) <= 60


def test_a_table_is_wider_than_the_terminal_rather_than_with_a_number_cut() -> None:
    lines = drawn(12)
    assert any("1.50 ms" in line for line in lines)
    assert any("not measured" in line for line in lines)


def test_a_table_that_begins_with_a_name_is_drawn_in_parts_rather_than_too_wide() -> None:
    columns = [Column(name="name", heading="name", right=False), *(Column(name=n, heading=n * 9) for n in "abc")]
    out = io.StringIO()
    print_table(Table(title="T", columns=columns, rows=[("x", 1, 2, 3)]), terminal(width=32, file=out))
    lines = [line.split() for line in out.getvalue().splitlines() if line.strip() and "─" not in line]
    assert lines == [["T"], ["name", "a" * 9, "b" * 9], ["x", "1", "2"], ["name", "c" * 9], ["x", "3"]]


def a_wide_table() -> Table:
    columns = [
        Column(name="a", heading="a" * 9),
        Column(name="b", heading="b" * 9, less=1),
        Column(name="c", heading="c" * 9, less=2),
        Column(name="d", heading="d" * 9, less=2),
        Column(name="name", heading="name", right=False, fold=True),
    ]
    return Table(title="T", columns=columns, rows=[(1, 2, 3, 4, "n" * 40)])


@pytest.mark.parametrize(
    ("width", "left_out"),
    # nine of each number and at least 28 of the name: with gaps of 3 all need 79 columns, with gaps of 2 they need 74
    [(79, ""), (78, ""), (74, ""), (73, "d"), (63, "d"), (62, "cd"), (52, "cd"), (51, "bcd"), (20, "bcd")],
)
def test_columns_that_matter_less_go_where_a_tight_table_is_too_wide_and_their_headings_are_told(
    width: int, left_out: str
) -> None:
    out = io.StringIO()
    assert print_table(a_wide_table(), terminal(width=width, file=out)) == [letter * 9 for letter in left_out]
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= max(width, 41)
    assert [letter for letter in "bcd" if letter * 9 not in text] == list(left_out)
    assert "nnn…" in text


def test_what_is_left_out_is_said_once_below_all_tables_and_texts_stand_together() -> None:
    out = io.StringIO()
    print_all([a_wide_table(), "one", "two", a_wide_table()], terminal(width=62, file=out))
    text = out.getvalue()
    assert "\none\ntwo\n\nT\n" in text
    assert " ".join(text.split()).count("Too narrow for: ccccccccc, ddddddddd (in a pipe nothing is cut).") == 1
    out = io.StringIO()
    print_all([a_wide_table()], terminal(width=300, file=out))
    assert "Too narrow" not in out.getvalue()
    assert "n" * 40 in out.getvalue()


def test_a_table_without_a_column_has_neither_its_heading_nor_its_cells() -> None:
    table = a_wide_table().without("b", "d")
    assert [column.name for column in table.columns] == ["a", "c", "name"]
    assert table.rows == [[1, 3, "n" * 40]]


def test_in_a_pipe_no_line_ends_in_blanks() -> None:
    assert all(line == line.rstrip() for line in drawn(200))


def test_nothing_is_cut_where_there_is_room() -> None:
    assert any("a" * 60 in line for line in drawn(200))


def test_names_from_inputs_are_text_and_neither_markup_nor_control_codes() -> None:
    text = "\n".join(drawn(200))
    assert "evil·[31m,·[red]name" in text
    assert "Kernels [bold]" in text


def test_csv_holds_raw_values_and_an_empty_field_for_what_is_missing() -> None:
    assert csv_text(TABLE) == f'total_ns,name\n1500000,{"a" * 60}\n,"evil\x1b[31m,\n[red]name"\n'


def test_json_has_null_for_what_is_missing_and_for_what_is_no_number() -> None:
    assert json_text({"a": None, "b": float("nan")}) == '{\n  "a": null,\n  "b": null\n}\n'
