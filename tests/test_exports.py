"""Exports of labelling tools in their documented schemas: read as rows, votes and clean labels, and written back."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from shell_tools import run

from mogd.cli.exports import write_back
from mogd.datasets.exports import FORMATS, read_export, write_export
from mogd.datasets.exports.common import Resolved
from mogd.datasets.tables import read_table

USERS = ("3f2a0c1e-6f55-4a51-9d6b-2b7f7a0c5a11", "9bd1e0f4-0e5c-4f4b-8e1a-5d2c1f0b7c22")


def choice(label: str, name: str = "sentiment", id: str = "Dx_aB91ISN") -> dict[str, Any]:
    """A result of Label Studio's Choices tag."""
    return {
        "id": id,
        "from_name": name,
        "to_name": "text",
        "type": "choices",
        "origin": "manual",
        "value": {"choices": [label]},
    }


def annotation(label: str, by: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": 1001,
        "completed_by": by,
        "result": [choice(label)],
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2021-03-09T22:16:08.728353Z",
        "updated_at": "2021-03-09T22:16:08.728378Z",
        "draft_created_at": None,
        "lead_time": 4.288,
        "prediction": {},
        "result_count": 1,
        "unique_id": "7b3c8f0a-0000-0000-0000-000000000000",
        "import_id": None,
        "last_action": None,
        "task": 1,
        "project": 83,
        "parent_prediction": None,
        "parent_annotation": None,
    } | more


def task(id: int, text: str, annotations: list[Any], predictions: list[Any] | None = None) -> dict[str, Any]:
    return {
        "id": id,
        "annotations": annotations,
        "file_upload": "a1b2-rows.csv",
        "drafts": [],
        "predictions": predictions or [],
        "data": {"text": text, "length": len(text)},
        "meta": {},
        "created_at": "2021-03-09T21:52:49.513742Z",
        "updated_at": "2021-03-09T22:16:08.746926Z",
        "inner_id": id,
        "total_annotations": len(annotations),
        "cancelled_annotations": 0,
        "total_predictions": len(predictions or []),
        "comment_count": 0,
        "project": 83,
        "updated_by": 10,
        "comment_authors": [],
    }


LABEL_STUDIO = [
    task(
        7,
        "good one",
        [
            annotation("Positive", 10),
            annotation("Negative", {"id": 11, "email": "bob@example.com", "first_name": "Bob"}),
        ],
        [{"model_version": "model 1", "created_ago": "3 hours", "score": 0.8, "result": [choice("Positive")]}],
    ),
    task(8, "bad one", [annotation("Negative", 10), annotation("Positive", 12, was_cancelled=True)]),
    task(9, "so so", [annotation("Neutral", 10, ground_truth=True), annotation("Positive", 11)]),
    task(10, "nobody has seen this", []),
]


def argilla_record(id: str, text: str, responses: list[Any], suggestion: Any = None) -> dict[str, Any]:
    """As `Record.to_dict` gives it."""
    return {
        "id": id,
        "fields": {"text": text},
        "metadata": {"pages": len(text)},
        "suggestions": {} if suggestion is None else {"topic": suggestion},
        "responses": {"topic": responses} if responses else {},
        "vectors": {},
        "status": "completed",
        "_server_id": "a5a5a5a5-0000-0000-0000-000000000000",
    }


ARGILLA = [
    argilla_record(
        "a", "refund please", [{"value": "money", "user_id": USERS[0]}, {"value": "login", "user_id": USERS[1]}]
    ),
    argilla_record("b", "cannot sign in", [], {"value": "login", "score": 0.9, "agent": "gpt"}),
]
FLAT = [  # as `to_datasets` flattens them
    {
        "id": "a",
        "status": "completed",
        "_server_id": "x",
        "text": "refund please",
        "pages": 13,
        "topic.responses": ["money", "login", "money"],
        "topic.responses.users": [*USERS, "c"],
        "topic.responses.status": ["submitted", "submitted", "discarded"],
        "topic.suggestion": None,
        "topic.suggestion.agent": None,
        "topic.suggestion.score": None,
    },
    {
        "id": "b",
        "status": "pending",
        "_server_id": "y",
        "text": "cannot sign in",
        "pages": 14,
        "topic.responses": None,
        "topic.responses.users": None,
        "topic.responses.status": None,
        "topic.suggestion": "login",
        "topic.suggestion.agent": "gpt",
        "topic.suggestion.score": 0.9,
    },
]


def answer(hash: int, text: str, accept: list[str], by: str, answer: str = "accept", **more: Any) -> dict[str, Any]:
    """A line of `prodigy db-out` for the choice interface."""
    return {
        "text": text,
        "meta": {"source": "mail"},
        "options": [{"id": "money", "text": "Money"}, {"id": "login", "text": "Login"}],
        "_input_hash": hash,
        "_task_hash": hash + 1,
        "_view_id": "choice",
        "config": {"choice_style": "single"},
        "accept": accept,
        "answer": answer,
        "_timestamp": 1707211049,
        "_annotator_id": by,
        "_session_id": by,
    } | more


PRODIGY = [
    answer(-5, "refund please", ["money"], "mail-ann"),
    answer(-5, "refund please", ["login"], "mail-bob"),
    answer(6, "cannot sign in", ["login"], "mail-ann"),
    answer(6, "cannot sign in", [], "mail-bob", "ignore"),
    answer(
        7,
        "charged twice",
        ["money"],
        "review",
        _view_id="review",
        sessions=["mail-ann", "mail-bob"],
        versions=[
            {
                "text": "charged twice",
                "accept": ["money"],
                "answer": "accept",
                "sessions": ["mail-ann"],
                "default": True,
            },
            {
                "text": "charged twice",
                "accept": ["login"],
                "answer": "accept",
                "sessions": ["mail-bob"],
                "default": False,
            },
        ],
    ),
]


def votes_of(found: Any) -> list[tuple[Any, ...]]:
    return found.votes.rows()


def test_label_studio_is_read() -> None:
    found = read_export(LABEL_STUDIO)
    assert found.format == "label-studio"
    assert votes_of(found) == [
        (7, "10", "Positive"),
        (7, "bob@example.com", "Negative"),
        (7, "model 1", "Positive"),
        (8, "10", "Negative"),
        (9, "11", "Positive"),
    ]
    assert found.frame.to_dict(as_series=False) == {
        "id": [7, 8, 9, 10],
        "text": ["good one", "bad one", "so so", "nobody has seen this"],
        "length": [8, 7, 5, 20],
        "ground_truth": [None, None, "Neutral", None],
    }


def test_label_studio_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(LABEL_STUDIO))
    with pytest.warns(UserWarning, match="'Neutral' is a label of clean rows alone"):
        data = read_table(path, text="text", empty="drop")
    assert data.ids.tolist() == [7, 8]
    assert data.candidates.label_sets() == [["Negative", "Positive"], ["Negative"]]
    assert (data.clean_ids.tolist(), data.clean_y.tolist()) == ([9], ["Neutral"])
    assert data.id_name == "id"


def test_label_studio_is_written_back() -> None:
    resolved = {
        "7": Resolved("Positive", 0.75, "Negative"),
        "8": Resolved("Negative", 1),
        "9": Resolved("Neutral", 1, clean=True),
    }
    written = write_export("label-studio", LABEL_STUDIO, resolved)
    assert written[0]["predictions"][0] == LABEL_STUDIO[0]["predictions"][0]
    assert written[0]["predictions"][1] == {
        "model_version": "mogd",
        "score": 0.75,
        "result": [
            {
                "id": "mogd-7",
                "from_name": "sentiment",
                "to_name": "text",
                "type": "choices",
                "value": {"choices": ["Positive"]},
            }
        ],
    }
    assert [len(t["predictions"]) for t in written] == [2, 1, 0, 0]
    assert [{**t, "predictions": None} for t in written] == [{**t, "predictions": None} for t in LABEL_STUDIO]
    assert votes_of(read_export(written)) == votes_of(read_export(LABEL_STUDIO))  # our own predictions are no votes
    again = write_export("label-studio", written, resolved)
    assert again == written


def test_several_questions_need_a_name() -> None:
    other = choice("spam", "kind")
    tasks = [task(1, "x", [annotation("Positive", 10, result=[choice("Positive"), other])])]
    with pytest.raises(
        ValueError, match=r'2 questions \(sentiment, kind\): name the one to learn, such as question="sent'
    ):
        read_export(tasks)
    assert votes_of(read_export(tasks, "kind")) == [(1, "10", "spam")]
    with pytest.raises(ValueError, match="has no question 'topic'; it has sentiment, kind"):
        read_export(tasks, "topic")
    with pytest.raises(ValueError, match="holds no answer that is a choice"):
        read_export([task(1, "x", [])])


@pytest.mark.parametrize(
    ("records", "ending"),
    [(ARGILLA, "json"), (ARGILLA, "jsonl"), (FLAT, "json"), (FLAT, "jsonl"), (FLAT, "parquet")],
    ids=["nested json", "nested jsonl", "flat json", "flat jsonl", "flat parquet"],
)
def test_argilla_is_read_and_written_back(tmp_path: Path, records: list[Any], ending: str) -> None:
    path = tmp_path / f"export.{ending}"
    if ending == "parquet":
        pl.DataFrame(records).write_parquet(path)
    else:
        lines = [json.dumps(record) for record in records]
        path.write_text("\n".join(lines) if ending == "jsonl" else f"[{','.join(lines)}]")
    data = read_table(path, text="text")
    assert data.candidates.label_sets() == [["login", "money"], ["login"]]
    assert data.ids.tolist() == ["a", "b"]
    assert data.feature_names[0] == "pages"
    found: Any = pl.read_parquet(path) if ending == "parquet" else records
    assert votes_of(read_export(found)) == [("a", USERS[0], "money"), ("a", USERS[1], "login"), ("b", "gpt", "login")]
    written = write_export(
        "argilla", found, {"a": Resolved("money", 0.5, "login"), "b": Resolved("login", 1, clean=True)}
    )
    if records is ARGILLA:
        assert written[0]["suggestions"] == {"topic": {"value": "money", "score": 0.5, "agent": "mogd"}}
    else:
        own = {key: value for key, value in written[0].items() if key.startswith("topic.suggestion")}
        assert own == {"topic.suggestion": "money", "topic.suggestion.agent": "mogd", "topic.suggestion.score": 0.5}
    assert written[1]["id"] == "b"
    assert votes_of(read_export(written)) == votes_of(read_export(found))


def test_prodigy_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, PRODIGY)))
    found = read_export(PRODIGY)
    assert votes_of(found) == [
        (-5, "mail-ann", "money"),
        (-5, "mail-bob", "login"),
        (6, "mail-ann", "login"),
        (7, "mail-ann", "money"),
        (7, "mail-bob", "login"),
    ]
    assert found.frame.columns == ["id", "text", "ground_truth"]
    data = read_table(path, text="text")
    assert data.candidates.label_sets() == [["login", "money"], ["login"]]
    assert (data.clean_ids.tolist(), data.clean_y.tolist()) == ([7], ["money"])
    written = write_export("prodigy", PRODIGY, {"-5": Resolved("money", 0.5, "login"), "6": Resolved("login", 1)})
    assert [(line["_input_hash"], line["accept"], line["answer"]) for line in written] == [
        (-5, ["money"], "accept"),
        (6, ["login"], "accept"),
    ]
    assert written[0]["meta"] == {"source": "mail", "confidence": 0.5, "runner_up": "login"}
    assert {line["_annotator_id"] for line in written} == {"mogd"}
    assert votes_of(read_export([*PRODIGY, *written])) == votes_of(found)


def test_binary_answers_of_prodigy() -> None:
    binary = {"text": "x", "label": "money", "_input_hash": 1, "_task_hash": 2, "score": 0.6, "_session_id": "mail-ann"}
    lines = [{**binary, "answer": "accept"}, {**binary, "label": "login", "answer": "reject"}]
    with pytest.warns(UserWarning, match="1 answers that reject a label are left out"):
        found = read_export(lines)
    assert votes_of(found) == [(1, "mail-ann", "money")]
    (written,) = write_export("prodigy", lines, {"1": Resolved("login", 0.7)})
    assert (written["label"], "_task_hash" in written) == ("login", False)


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "data": "text", "annotations": [{"result": [choice("a")]}]},
        {"id": 1, "data": {}, "annotations": [{"result": [{**choice("a"), "value": None}]}]},
        {"id": "a", "fields": None, "responses": {"topic": [{"value": "x"}]}},
        {"id": "a", "fields": {}, "responses": {"topic": ["x"]}},
        {"text": "x", "answer": "accept", "_input_hash": 1, "versions": ["x"]},
    ],
)
def test_a_damaged_export_is_one_sentence(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a record is not as (label-studio|argilla|prodigy) writes it"):
        read_export([record])


def test_other_tables_are_no_exports(tmp_path: Path) -> None:
    assert read_export(pl.DataFrame({"data": [1], "labels": ["a"]})) is None
    assert read_export([{"text": "x", "labels": ["a"]}]) is None
    with pytest.raises(ValueError, match="the file is no export of prodigy: it is label-studio"):
        write_export("prodigy", LABEL_STUDIO, {})
    path = tmp_path / "t.csv"
    path.write_text("x,labels\n1,a\n")
    with pytest.raises(ValueError, match="question is for exports of labelling tools"):
        read_table(path, question="topic")


@pytest.mark.parametrize("tool", FORMATS)
def test_from_an_export_to_resolved_labels_written_back(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    words = {"money": "refund money charged twice", "login": "password sign in locked"}
    records: list[Any] = []
    truth = {}
    for i in range(60):
        label = ("money", "login")[i % 2]
        text = " ".join(rng.permutation(words[label].split()))
        said = [label if rng.random() < 0.8 else ("login", "money")[i % 2] for _ in range(3)]
        truth[str(i + 100)] = label
        if tool == "label-studio":
            sure = [annotation(label, 10, ground_truth=True)] if i < 12 else []
            records.append(task(i + 100, text, [*sure, *(annotation(s, n) for n, s in enumerate(said))]))
            for a in records[-1]["annotations"]:
                a["result"] = [choice(a["result"][0]["value"]["choices"][0])]
        elif tool == "argilla":
            records.append(
                argilla_record(str(i + 100), text, [{"value": s, "user_id": f"u{n}"} for n, s in enumerate(said)])
            )
            records[-1]["metadata"] = {"checked": label if i < 12 else None}
        else:
            records += [answer(i + 100, text, [s], f"u{n}") for n, s in enumerate(said)]
            if i < 12:
                records.append(
                    answer(i + 100, text, [label], "review", versions=[{"accept": [label], "sessions": ["u9"]}])
                )
    name = "export.jsonl" if tool == "prodigy" else "export.json"
    lines = [json.dumps(record) for record in records]
    (tmp_path / name).write_text("\n".join(lines) if tool == "prodigy" else f"[{','.join(lines)}]")
    clean = ["--clean", "checked"] if tool == "argilla" else []
    ignore = ["--ignore", "length"] if tool == "label-studio" else []
    fit = ["fit", name, "--text", "text", *clean, *ignore, "--epochs", "20", "-q", "--out", "model"]
    assert run(monkeypatch, tmp_path, *fit) == 0
    assert "48 with candidates, 12 clean" in capsys.readouterr().out
    assert run(monkeypatch, tmp_path, "predict", "model", name, "--out", "new.csv") == 0
    capsys.readouterr()
    assert run(monkeypatch, tmp_path, "next", "model", "--table", name, "-n", "5", "--json") == 0
    following = json.loads(capsys.readouterr().out)
    assert len(following) == 5
    assert {str(row["id"]) for row in following} < set(truth)
    (tmp_path / "other.csv").write_text("id,text\n1,refund\n")
    assert run(monkeypatch, tmp_path, "next", "model", "--table", "other.csv") == 1
    assert "other.csv has no row" in capsys.readouterr().err
    out = f"back.{name.split('.')[1]}"
    assert run(monkeypatch, tmp_path, "disambiguate", "model", "--format", tool, "--out", out) == 1
    assert "name it by --from FILE" in capsys.readouterr().err
    back = ["disambiguate", "model", "--format", tool, "--from", name, "--out", out]
    assert run(monkeypatch, tmp_path, *back) == 0
    content = (tmp_path / out).read_text()
    written = [json.loads(line) for line in content.splitlines()] if tool == "prodigy" else json.loads(content)
    found = {
        "label-studio": lambda r: [p["result"][0]["value"]["choices"][0] for p in r["predictions"]],
        "argilla": lambda r: [s["value"] for s in r["suggestions"].values()],
        "prodigy": lambda r: r["accept"],
    }[tool]
    labels = {str(r.get("id", r.get("_input_hash"))): found(r) for r in written}
    given = {id: label[0] for id, label in labels.items() if label}
    assert len(given) == (60 if tool == "prodigy" else 48)
    assert np.mean([truth[id] == label for id, label in given.items()]) > 0.95


def resolved_rows(*ids: Any) -> dict[str, Any]:
    """What `disambiguate` has of each row."""
    columns = {"id": ids, "label": ["money"] * len(ids), "confidence": [0.9] * len(ids), "runner_up": [None] * len(ids)}
    return {name: np.array(values) for name, values in (columns | {"clean": [False] * len(ids)}).items()}


def test_what_cannot_be_written_back_is_one_sentence(tmp_path: Path) -> None:
    export, table, out = tmp_path / "export.json", tmp_path / "t.csv", tmp_path / "back.json"
    export.write_text(json.dumps(ARGILLA))
    table.write_text("x,labels\n1,a\n")
    rows = resolved_rows("a", "b")
    with pytest.raises(ValueError, match=r"--format must be one of .*prodigy.*; got 'excel'"):
        write_back(rows, "excel", export, None, out)
    with pytest.raises(ValueError, match=r"t\.csv is no export of .*argilla"):
        write_back(rows, None, table, None, out)
    for records in (LABEL_STUDIO, PRODIGY, ARGILLA):  # an export of other tasks would go back as it came
        export.write_text(json.dumps(records))
        with pytest.raises(ValueError, match=r"no task of .*export\.json is a row of the model"):
            write_back(resolved_rows("c"), None, export, None, out)
    with pytest.raises(ValueError, match=r"--format argilla writes \.json or \.jsonl; got 'back\.csv'"):
        write_back(rows, None, export, None, tmp_path / "back.csv")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["export.json", "t.csv"]


def test_the_kind_of_the_written_file(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Lines on the standard output are Prodigy's alone; an export that is a table becomes one."""
    rows, lines = resolved_rows("a", "b"), resolved_rows(-5, 6, 7)
    (tmp_path / "argilla.json").write_text(json.dumps(ARGILLA))
    (tmp_path / "prodigy.jsonl").write_text("\n".join(map(json.dumps, PRODIGY)))
    pl.DataFrame(FLAT).write_parquet(tmp_path / "flat.parquet")
    assert write_back(rows, None, tmp_path / "argilla.json", None, Path("-")) == "2 records for argilla"
    found = json.loads(capsysbinary.readouterr().out)
    assert [record["suggestions"]["topic"]["value"] for record in found] == ["money", "money"]
    assert write_back(lines, None, tmp_path / "prodigy.jsonl", None, Path("-")) == "3 records for prodigy"
    found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [record["accept"] for record in found] == [["money"]] * 3
    write_back(rows, None, tmp_path / "flat.parquet", None, tmp_path / "back.parquet")
    assert pl.read_parquet(tmp_path / "back.parquet")["id"].to_list() == [record["id"] for record in FLAT]


def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "exports.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    commands = 0
    for kind, block in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        if kind == "python":
            exec(block, names)
        for line in block.splitlines() if kind == "sh" else []:
            commands += 1
            assert run(monkeypatch, tmp_path, *shlex.split(line)[1:]) == 0, line
    assert commands == 4
    right, rows = map(int, re.findall(r"(\d+) of (\d+) are right", capsys.readouterr().out)[-1])
    said, of = map(int, re.findall(r"prints `(\d+) of (\d+)", page)[0])
    assert rows == of
    assert abs(right - said) <= 3  # another machine may round otherwise


def test_an_unknown_format_and_a_question_to_prodigy_are_refused() -> None:
    with pytest.raises(ValueError, match="format must be one of label-studio, argilla, prodigy; got 'excel'"):
        write_export("excel", PRODIGY, {})
    with pytest.raises(ValueError, match="Prodigy asks one question in each file; got question='topic'"):
        read_export(PRODIGY, "topic")


def test_a_review_that_accepts_two_labels_is_not_sure() -> None:
    both = PRODIGY[-1] | {"accept": ["money", "login"]}
    found = read_export([*PRODIGY[:-1], both])
    assert found is not None
    assert found.clean is None
    assert (7, "mail-ann", "money") in votes_of(found)
