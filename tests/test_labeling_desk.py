"""The rules of the labelling page without a server: who gets which row, what an answer does, what the store keeps."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from labeling_tools import LABELS, write_table

from mogd import read_table
from mogd.labeling.desk import Desk, Refused
from mogd.labeling.features import features
from mogd.labeling.pictures import find_picture
from mogd.labeling.ranker import results
from mogd.labeling.refit import HeldOut, Ranking
from mogd.labeling.rows import read_rows
from mogd.labeling.safety import Guard
from mogd.labeling.server import TableWriter, check_out
from mogd.labeling.store import Answer, Store, StoreError
from mogd.labeling.view import RowView
from mogd.labeling.worth import expected_gain


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_desk(folder: Path, n: int = 12, **options: Any) -> Desk:
    if not (folder / "rows.csv").exists():
        write_table(folder / "rows.csv", n)
    rows = read_rows(folder / "rows.csv")
    return Desk(rows, Store(folder / "clean.csv.db", rows.fingerprint), **options)


def first_choice(state: dict[str, Any]) -> dict[str, int]:
    return {"row": state["item"]["row"], "choice": state["item"]["candidates"][0]["index"]}


def test_a_row_is_with_one_person_until_it_is_answered_or_expires(tmp_path: Path) -> None:
    clock = Clock()
    desk = make_desk(tmp_path, lock_seconds=60, clock=clock)
    ann, bob = desk.next("ann", "1"), desk.next("bob", "1")
    assert ann["item"]["row"] != bob["item"]["row"]
    assert desk.next("ann", "1")["item"]["row"] == ann["item"]["row"]  # a reload
    assert desk.next("ann", "2")["item"]["row"] not in (ann["item"]["row"], bob["item"]["row"])  # a second tab
    clock.now += 50
    desk.status("ann", "1")  # her page is open, so her row stays hers
    clock.now += 20
    given = {desk.next(f"p{i}", "1")["item"]["row"] for i in range(11)}
    assert ann["item"]["row"] not in given
    assert bob["item"]["row"] in given


def test_everyone_done_says_so(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, n=2)
    desk.next("ann", "1")
    desk.next("bob", "1")
    assert desk.next("cem", "1")["item"] is None  # both rows are with others
    assert desk.next("cem", "1")["progress"]["open"] == 2


def test_an_answer_sent_twice_is_kept_once(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    given = first_choice(desk.next("ann", "1"))
    following = desk.answer("ann", "1", **given)
    assert desk.answer("ann", "1", **given)["item"]["row"] == following["item"]["row"]
    assert len(desk.answers()) == 1 == following["progress"]["answers"]


def test_the_first_of_two_answers_counts(tmp_path: Path) -> None:
    clock = Clock()
    desk = make_desk(tmp_path, lock_seconds=60, clock=clock)
    given = first_choice(desk.next("ann", "1"))
    clock.now += 61
    for name in ("bob", "cem"):
        desk.next(name, "1")
    desk.answer("bob", "1", **given)
    with pytest.raises(Refused, match="bob answered this row already"):
        desk.answer("ann", "1", **given)
    assert [answer.name for answer in desk.answers()] == ["bob"]


def test_none_of_these_and_any_label_by_typing(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    state = desk.next("ann", "1")
    inside = state["item"]["candidates"][0]["label"]
    state = desk.answer("ann", "1", state["item"]["row"], typed=inside)
    named = [candidate["label"] for candidate in state["item"]["candidates"]]
    other = next(label for label in LABELS.tolist() if label not in named)
    for text in (other, "  emu ", ""):
        state = desk.answer("ann", "1", state["item"]["row"], typed=text)
    kept = [(answer.label, answer.outside) for answer in desk.answers()]
    assert kept == [(inside, False), (other, True), ("emu", True), (None, True)]
    with pytest.raises(Refused, match="at most 10000 characters"):
        desk.answer("ann", "1", state["item"]["row"], typed="x" * 10_001)
    with pytest.raises(Refused, match="no label number 9"):
        desk.answer("ann", "1", state["item"]["row"], choice=9)
    with pytest.raises(Refused, match="no row 99"):
        desk.answer("ann", "1", 99, choice=0)


def test_skipped_rows_come_back_last_in_their_order(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, n=5)
    state = desk.next("ann", "1")
    skipped = []
    for _ in range(2):
        skipped.append(state["item"]["row"])
        state = desk.skip("ann", "1", state["item"]["row"])
    assert desk.next("bob", "1")["item"]["row"] in skipped  # bob may know it
    desk.skip("bob", "1", desk.next("bob", "1")["item"]["row"])
    seen = []
    for _ in range(5):
        seen.append(state["item"]["row"])
        state = desk.answer("ann", "1", **first_choice(state))
        if state["item"] is None:
            break
    assert [row for row in seen if row in skipped][-1:] == [row for row in skipped if row in seen][-1:]
    assert not set(seen[:2]) & set(skipped)


def test_undo_takes_back_answers_and_skips_in_turn(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    with pytest.raises(Refused, match="nothing to undo"):
        desk.undo("ann", "1")
    first = desk.next("ann", "1")
    second = desk.answer("ann", "1", **first_choice(first))
    desk.skip("ann", "1", second["item"]["row"])
    assert desk.undo("ann", "1")["item"]["row"] == second["item"]["row"]
    back = desk.undo("ann", "1")
    assert back["item"]["row"] == first["item"]["row"]
    assert back["progress"]["answers"] == 0
    assert desk.answers() == []
    assert desk.next("ann", "1")["item"]["row"] == first["item"]["row"]


def test_only_ones_own_answers_are_undone_and_changed(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    state = desk.next("ann", "1")
    given = first_choice(state)
    other = state["item"]["candidates"][1]["index"]
    desk.answer("ann", "1", **given)
    desk.next("bob", "1")
    with pytest.raises(Refused, match="nothing to undo"):
        desk.undo("bob", "1")
    with pytest.raises(Refused, match="none of your answers"):
        desk.open("bob", given["row"])
    assert desk.open("ann", given["row"])["editing"]["label"] == LABELS[given["choice"]]
    with pytest.raises(Refused, match="answered this row already"):
        desk.answer("ann", "1", given["row"], choice=other)
    at = desk.answers()[0].at
    desk.answer("ann", "1", given["row"], choice=other, edit=True)
    assert [(a.label, a.at) for a in desk.answers()] == [(LABELS[other], at)]


def test_the_last_ten_answers_are_shown(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, n=14)
    state, rows = desk.next("ann", "1"), []
    for _ in range(12):
        rows.append(state["item"]["row"])
        state = desk.answer("ann", "1", **first_choice(state))
    assert [answer["row"] for answer in state["last"]] == rows[:1:-1]


def test_answers_outlive_the_desk(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    state = desk.next("ann", "1")
    desk.answer("ann", "1", **first_choice(state))
    held = desk.next("ann", "1")["item"]["row"]
    desk.store.close()
    again = make_desk(tmp_path)
    assert [answer.row for answer in again.answers()] == [state["item"]["row"]]
    assert again.next("bob", "1")["item"]["row"] not in (held, state["item"]["row"])
    assert again.next("ann", "1")["item"]["row"] == held


def test_a_store_of_another_table_and_one_in_use_are_refused(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    with pytest.raises(ValueError, match="another `mogd label` has it open"):
        Store(tmp_path / "clean.csv.db", desk.rows.fingerprint)
    desk.store.close()
    with pytest.raises(ValueError, match="holds answers to another table"):
        Store(tmp_path / "clean.csv.db", "other")
    (tmp_path / "text.db").write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(ValueError, match=r"text\.db cannot be used as a store"):
        Store(tmp_path / "text.db", "any")


def test_a_damaged_store_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db", "table")
    with store.transaction():
        for row in range(200):
            store.put(Answer(row, "a", False, "ann", float(row)))
    store.close()
    whole = (tmp_path / "a.db").read_bytes()
    at = whole.rindex(b"aann")
    for content in (whole[: len(whole) // 2], whole.replace(b"aann", b"\xffann")):  # cut; letters that are none
        (tmp_path / "a.db").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.db (is damaged|cannot be used as a store)"):
            Store(tmp_path / "a.db", "table")
    (tmp_path / "a.db").write_bytes(whole[:at] + b"bann" + whole[at + 4 :])  # another label: no damage to be seen
    again = Store(tmp_path / "a.db", "table")
    assert sum(answer.label == "b" for answer in again.answers()) == 1
    again.connection.execute("UPDATE answers SET label = x'00ff', at = 'now' WHERE row = 3")
    again.close()
    with pytest.raises(ValueError, match=r"a\.db is damaged"):
        Store(tmp_path / "a.db", "table")


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    state = desk.next("ann", "1")
    desk.store.connection.execute("PRAGMA max_page_count = 1")  # what SQLite finds on a full disk
    given = {"row": state["item"]["row"], "typed": "x" * 9_000}
    with pytest.raises(StoreError, match="is the disk full"):
        desk.answer("ann", "1", **given)
    assert desk.answers() == []
    desk.store.connection.execute("PRAGMA max_page_count = 100000")
    assert desk.answer("ann", "1", **given)["progress"]["answers"] == 1


def test_every_answer_is_synchronised(tmp_path: Path) -> None:
    store = make_desk(tmp_path).store
    assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_the_written_table_is_what_fit_takes_as_clean(tmp_path: Path) -> None:
    for folder, drop in (("named", []), ("numbered", ["id"])):
        (tmp_path / folder).mkdir()
        truth = write_table(tmp_path / folder / "rows.csv", 12)
        pl.read_csv(tmp_path / folder / "rows.csv").drop(drop).write_csv(tmp_path / folder / "rows.csv")
        desk = make_desk(tmp_path / folder)
        out = tmp_path / folder / "clean.csv"
        writer = TableWriter(desk, out)
        state, rows = desk.next("ann", "1"), []
        for _ in range(4):
            rows.append(state["item"]["row"])
            state = desk.answer("ann", "1", rows[-1], typed=truth[rows[-1]])
        desk.answer("ann", "1", state["item"]["row"], typed="")
        writer.close()
        written = pl.read_csv(out)
        assert written.columns == [(drop and "row") or "id", "label", "outside", "answered_by", "answered_at"]
        assert written.height == 5
        data = read_table(tmp_path / folder / "rows.csv", clean=out)
        assert data.clean_y is not None
        assert data.clean_y.tolist() == truth[rows].tolist()
        assert np.array_equal(data.clean_ids, desk.rows.ids[rows])
        assert len(data) == 8
        again = read_rows(tmp_path / folder / "rows.csv", clean=out)
        assert sorted(again.known) == sorted(rows)
        desk.store.close()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "clean.csv").write_text("mine\n")
    with pytest.raises(FileExistsError, match="was not made by `mogd label`"):
        check_out(tmp_path / "clean.csv")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_out(tmp_path / "nowhere" / "clean.csv")
    with pytest.raises(ValueError, match="must end in one of"):
        check_out(tmp_path / "clean")


def test_answers_make_a_model_a_guess_and_a_curve(tmp_path: Path) -> None:
    truth = write_table(tmp_path / "rows.csv", 120)
    desk = make_desk(tmp_path)
    X = features(desk.rows)
    start = list(results(desk.rows, X, {}, first=True))
    assert len(start) == 1
    assert isinstance(start[0], Ranking)
    assert sorted(start[0].order) == list(range(120))
    desk.use(start[0])
    state = desk.next("ann", "1")
    assert "spread over classes and clusters" in state["item"]["reason"]
    assert state["item"]["guess"] is None
    for _ in range(20):
        state = desk.answer("ann", "1", state["item"]["row"], typed=truth[state["item"]["row"]])
    ranking, held_out = results(desk.rows, X, desk.labels())
    assert isinstance(ranking, Ranking)
    assert isinstance(held_out, HeldOut)
    assert held_out.n_answers == 20
    assert 0.7 < held_out.accuracy <= 1
    desk.use(ranking)
    desk.use(held_out)
    state = desk.answer("ann", "1", state["item"]["row"], typed=truth[state["item"]["row"]])
    item = state["item"]
    assert item["guess"] in [c["index"] for c in item["candidates"]]
    assert sum(c["probability"] for c in item["candidates"]) == pytest.approx(1, abs=1e-3)
    assert "uncertain between" in item["reason"]
    assert state["progress"]["curve"] == [(20, held_out.accuracy)]
    desk.view.blind = True
    assert desk.next("ann", "1")["item"]["guess"] is None


def test_typed_labels_become_classes_of_the_model(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, n=60)
    names = desk.view.class_names
    answers = {row: names[row % 3] if row % 4 else "emu" for row in range(24)} | {30: None}
    ranking, held_out = results(desk.rows, features(desk.rows), answers)
    assert isinstance(ranking, Ranking)
    assert ranking.belief is not None
    assert ranking.belief.shape == (60, 4)  # the page knows the table's labels
    assert not set(ranking.order) & set(answers)
    assert held_out.n_answers == 25  # type: ignore[union-attr]


def test_expected_gain() -> None:
    assert expected_gain([(10, 0.5), (20, 0.6)]) is None
    curve = [(n, 0.9 - 0.8 / np.sqrt(n)) for n in (10, 20, 40, 80)]
    assert expected_gain(curve, 20) == pytest.approx(0.8 * (1 / np.sqrt(80) - 1 / np.sqrt(100)), rel=1e-6)
    assert expected_gain([(10, 0.9), (20, 0.8), (30, 0.7)]) == 0


def test_labels_are_never_shown_as_columns(tmp_path: Path) -> None:
    truth = write_table(tmp_path / "rows.csv", 20)
    frame = pl.read_csv(tmp_path / "rows.csv").with_columns(truth=pl.Series(truth.tolist()), note=pl.lit("seen"))
    frame.write_csv(tmp_path / "rows.csv")
    rows = read_rows(tmp_path / "rows.csv")
    assert rows.hidden == ("truth",)
    assert "truth" not in rows.frame.columns
    assert "labels" not in rows.frame.columns


def test_the_database_is_plain_sqlite(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    desk.answer("ann", "1", **first_choice(desk.next("ann", "1")))
    desk.store.close()
    with sqlite3.connect(tmp_path / "clean.csv.db") as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (1,)


def test_rows_that_cannot_be_labelled_are_refused_by_the_option(tmp_path: Path) -> None:
    path, votes, known = tmp_path / "t.csv", tmp_path / "votes.csv", tmp_path / "known.csv"
    path.write_text("id,x,labels,none\na,1,cat|dog,\nb,2,dog,\n")
    votes.write_text("task,worker,label\na,ann,cat\na,bob,cat\nb,ann,dog\na,cem,dog\n")
    with pytest.raises(ValueError, match=r"t\.csv names no label at all: check --candidates or --annotators"):
        read_rows(path, "none")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere of pictures"):
        read_rows(path, images=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="candidates come from --annotators or from --votes: give one of the two"):
        read_rows(path, annotators=["labels"], votes=votes)
    with pytest.raises(ValueError, match="name the column of candidate sets by --candidates, or the --annotators"):
        read_rows(path, None)
    known.write_text("id,label\na,cat\nz,dog\n")
    with pytest.raises(ValueError, match=r"known\.csv names 'z', which is no row of the table"):
        read_rows(path, clean=known)


def test_votes_are_counted_and_leave_the_old_sets_out(tmp_path: Path) -> None:
    path, votes = tmp_path / "t.csv", tmp_path / "votes.csv"
    path.write_text("id,x,labels\na,1,cat|dog\nb,2,dog\nc,3,\n")
    votes.write_text("task,worker,label\na,ann,cat\na,bob,cat\nb,ann,dog\na,cem,dog\n")
    rows = read_rows(path, votes=votes)
    assert rows.class_names == ["cat", "dog"]
    assert rows.said == [{0: 2, 1: 1}, {1: 1}, {}]
    assert rows.candidates.matrix.tolist() == [[True, True], [False, True], [True, True]]  # nobody has seen c
    assert rows.frame.columns == ["x"]


def test_the_longest_free_text_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [
        f"{i},a|b,short {i},this is the rather long text number {i},the same long text in every row" for i in range(40)
    ]
    path.write_text("\n".join(["id,labels,name,letter,foot", *lines]) + "\n")
    assert read_rows(path).text == "letter"
    assert read_rows(path, text="foot").text == "foot"
    assert read_rows(path, ignore=["letter"]).text is None


def test_a_fit_that_fails_is_told_and_a_later_one_mends_it(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    desk.use("too few labels")
    assert desk.refit_problem == "The answers could not be fitted (too few labels). Labelling goes on."
    desk.use(Ranking(np.arange(12), {}))
    assert desk.refit_problem is None


def test_a_row_that_was_answered_meanwhile_is_not_skipped(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    given = first_choice(desk.next("ann", "1"))
    desk.answer("bob", "1", **given)
    following = desk.skip("ann", "1", given["row"])
    assert desk.store.skips("ann") == {}
    assert following["item"]["row"] != given["row"]


def test_the_columns_come_by_how_far_the_row_is_from_the_others(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{i},a|b,7,{'red' if i else 'blue'},{100 if i == 0 else i % 2},{i % 2}" for i in range(20)]
    path.write_text("\n".join(["id,labels,same,colour,far,near", *lines]) + "\n")
    shown = RowView(read_rows(path)).of(0, None, None)
    names = [name for name, _ in shown["columns"]]
    assert (names[0], names[-1]) == ("far", "near")  # a category counts as one standard deviation
    assert dict(shown["columns"])["colour"] == "blue"


def test_a_picture_that_is_too_large_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,labels,file\n1,a|b,0.png\n")
    (tmp_path / "0.png").write_bytes(b"x" * 100)
    rows = read_rows(path, images=tmp_path)
    assert find_picture(rows, 0) == tmp_path.resolve() / "0.png"
    monkeypatch.setattr("mogd.labeling.pictures.MOST_BYTES", 99)
    with pytest.raises(FileNotFoundError, match=r"0\.png is larger than 0 MB, so it is not shown"):
        find_picture(rows, 0)


def test_a_place_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*new to write clean\.csv into: make it first"):
        check_out(tmp_path / "new" / "clean.csv")


def test_beyond_this_machine_its_own_name_is_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Desk")
    monkeypatch.setattr("socket.getfqdn", lambda: "desk.example.org")
    assert {"desk", "desk.example.org"} <= Guard("0.0.0.0", "x" * 32).hosts
    assert "desk" not in Guard().hosts
