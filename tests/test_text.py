"""Text columns: TF-IDF with a truncated SVD by default, a local model on request; saved without pickles."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file
from shell_tools import run

from mogd.datasets.encoder import TableEncoder
from mogd.datasets.tables import read_table
from mogd.datasets.text import TfidfText
from mogd.saving import load_encoder

TOPICS = {
    "refund": ["please send my money back", "the refund never came", "I want my money", "charged twice and no refund"],
    "login": ["the password does not work", "cannot sign in", "locked out of my account", "reset my password please"],
    "praise": ["great service thank you", "I love this shop", "very friendly people", "thank you for the quick help"],
}


def tickets(path: Path, n: int = 240) -> pl.DataFrame:
    """Texts of three topics, each with one or two candidate labels, every ninth with its true one."""
    rng = np.random.default_rng(0)
    names = list(TOPICS)
    truth = [names[i % 3] for i in range(n)]
    texts = [" ".join(rng.choice(TOPICS[t], 2, replace=False)) + f" {i}" for i, t in enumerate(truth)]
    sets = ["|".join(dict.fromkeys([t, names[rng.integers(3)]])) for t in truth]
    sure = [t if i % 9 == 0 else None for i, t in enumerate(truth)]
    frame = pl.DataFrame({"message": texts, "length": [len(t) for t in texts], "labels": sets, "sure": sure})
    frame.write_csv(path)
    return frame.with_columns(truth=pl.Series(truth))


def test_text_is_learned_saved_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = tickets(tmp_path / "t.csv")["truth"].to_list()
    fit = ["fit", "t.csv", "--clean", "sure", "--epochs", "30", "-q", "--out", "model"]
    assert run(monkeypatch, tmp_path, *fit) == 1
    assert "free text, a name or an id and no category: --text message learns" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path, *fit, "--text", "message") == 0
    assert run(monkeypatch, tmp_path, "predict", "model", "t.csv", "--out", "labels.csv") == 0
    predicted = pl.read_csv(tmp_path / "labels.csv")["label"].to_list()
    assert np.mean([p == t for p, t in zip(predicted, truth, strict=True)]) > 0.9
    state = json.loads((tmp_path / "model" / "model.json").read_text())["encoder"]["texts"]["message"]
    assert "refund" in state["vocabulary"]
    assert "my money" in state["vocabulary"]  # pairs, too
    (file,) = (tmp_path / "model").glob("encoder*.safetensors")
    arrays = load_file(file)
    assert arrays["0.directions"].shape[1] == len(state["vocabulary"]) == len(arrays["0.idf"])
    data = read_table(tmp_path / "t.csv", clean="sure", text="message")
    frame = pl.read_csv(tmp_path / "t.csv").filter(pl.col("sure").is_null())
    assert np.array_equal(load_encoder(tmp_path / "model").transform(frame), data.X)
    assert data.feature_names[:2] == ["length", "message#0"]


def test_tfidf_is_that_of_the_formula() -> None:
    texts = ["red red apple", "green apple", "red car", "fast green car"]
    text = TfidfText(size=3).fit(texts, "t")
    words = text.to_json()["vocabulary"]
    pairs = {"red red", "red apple", "green apple", "red car", "fast green", "green car"}
    assert words == sorted({"red", "apple", "green", "car", "fast"} | pairs)
    counts = np.zeros((4, len(words)))
    for i, line in enumerate(texts):
        parts = line.split()
        for gram in [*parts, *(" ".join(pair) for pair in pairwise(parts))]:
            counts[i, words.index(gram)] += 1
    idf = np.log(5 / (1 + (counts > 0).sum(axis=0))) + 1
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    gram = text.transform(texts) @ text.transform(texts).T
    left, size, _ = np.linalg.svd(weights, full_matrices=False)
    scores = left[:, :3] * size[:3]
    scores /= np.linalg.norm(scores, axis=1, keepdims=True)
    assert np.allclose(gram, scores @ scores.T)  # directions may be turned round
    again = TfidfText.from_json(json.loads(json.dumps(text.to_json())), text.arrays())
    assert np.array_equal(again.transform(["red apple pie"]), text.transform(["red apple pie"]))


def test_short_words_and_marks_are_words_too() -> None:
    text = TfidfText().fit(["I win :)", "why?! :D", "a b c", "Ä!"], "t")
    assert {"i", "win", ":)", "why", "?!", ":d", "ä", "!"} <= set(text.to_json()["vocabulary"])


def test_text_that_is_missing_or_empty(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": ["one two", None, "two three", ""], "x": [1, 2, 3, 4]})
    encoder = TableEncoder(text=["t"]).fit(frame)
    features = encoder.transform(frame)
    assert np.isfinite(features).all()
    assert not features[1, 1:].any()
    with pytest.raises(ValueError, match="column 't' holds no words"):
        TableEncoder(text=["t"]).fit(pl.DataFrame({"t": ["-", "…"]}))
    with pytest.raises(ValueError, match="no column 'note' for the text"):
        TableEncoder(text=["note"]).fit(frame)
    with pytest.raises(ValueError, match="lacks column 't'"):
        encoder.transform(frame.drop("t"))
    path = tmp_path / "t.csv"
    path.write_text("file,t,labels\na.png,some words,a\n")
    with pytest.raises(ValueError, match="either text or pictures"):
        read_table(path, images=tmp_path, text="t")


def test_a_few_sentences_are_no_category(tmp_path: Path) -> None:
    rows = [f"this is sentence number {i} of a small table" for i in range(8)]
    pl.DataFrame({"t": rows, "x": range(8), "labels": ["a", "b"] * 4}).write_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match='text="t" learns from its words'):
        read_table(tmp_path / "t.csv")


def save_model2vec(folder: Path) -> None:
    """A model2vec folder of a dozen words, by its own package."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["[UNK]", *sorted({word for texts in TOPICS.values() for text in texts for word in text.split()})]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.random.default_rng(0).normal(size=(len(words), 12)).astype(np.float32)
    StaticModel(vectors, tokenizer, config={"model_type": "model2vec"}).save_pretrained(folder)


@pytest.fixture(scope="module")
def tiny_model2vec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("model2vec", reason="pip install 'mogd[model2vec]'")
    folder = tmp_path_factory.mktemp("model2vec")
    save_model2vec(folder)
    return folder


def test_a_model2vec_folder(tiny_model2vec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model2vec import StaticModel

    frame = tickets(tmp_path / "t.csv")
    model = tmp_path / "words"
    tiny_model2vec.rename(model)
    arguments = ["--text", "message", "--text-model", "words", "--ignore", "length", "--clean", "sure"]
    fit = ["fit", "t.csv", *arguments, "--epochs", "30", "-q", "--out", "model"]
    assert run(monkeypatch, tmp_path, *fit) == 0
    features = load_encoder(tmp_path / "model").transform(frame)
    assert np.allclose(features, StaticModel.from_pretrained(model).encode(frame["message"].to_list()))
    model.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="the text model words is not there: name its folder"):
        load_encoder(tmp_path / "model")
    predict = ["predict", "model", "t.csv", "--text-model", "moved", "--out", "labels.csv"]
    assert run(monkeypatch, tmp_path, *predict) == 0
    right = pl.read_csv(tmp_path / "labels.csv")["label"].to_numpy() == frame["truth"].to_numpy()
    assert right.mean() > 0.9
    (tmp_path / "moved" / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    with pytest.raises(ValueError, match="is not the text model that the features were made with"):
        load_encoder(tmp_path / "model", text_model=tmp_path / "moved")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"no tensors"),
        ("tokenizer.json", b"{}"),
        ("config.json", b'{"model_type": "model2vec", "normalize": []}'),
        ("config.json", b"\xff"),
        ("README.md", b"---\na: [\n---"),
    ],
)
def test_a_damaged_model2vec_folder_is_one_sentence(file: str, content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("model2vec", reason="pip install 'mogd[model2vec]'")
    save_model2vec(tmp_path / "words")
    (tmp_path / "words" / file).write_bytes(content)
    frame = pl.DataFrame({"t": ["please send my money back", "cannot sign in"]})
    try:
        encoded = TableEncoder(text=["t"], text_model=tmp_path / "words").fit_transform(frame)
    except ValueError as error:
        assert str(error).startswith(f"the text model {tmp_path / 'words'} cannot be used: ")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
    else:  # a setting that the package does not look at
        assert np.isfinite(encoded).all()


def test_a_text_model_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("model2vec", reason="pip install 'mogd[model2vec]'")
    save_model2vec(tmp_path / "words")
    vectors = load_file(tmp_path / "words" / "model.safetensors")
    name = next(iter(vectors))
    save_file({**vectors, name: np.full_like(vectors[name], np.nan)}, tmp_path / "words" / "model.safetensors")
    with pytest.raises(ValueError, match="its features are not finite"):
        TableEncoder(text=["t"], text_model=tmp_path / "words").fit_transform(pl.DataFrame({"t": ["money", "back"]}))


def test_a_sentence_transformers_folder(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="pip install 'mogd[sentence-transformers]'")
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "cat": 1, "dog": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    made = package.SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=5)])
    made.save(str(tmp_path / "st"))
    frame = pl.DataFrame({"t": ["cat dog", "dog", "cat"]})
    encoder = TableEncoder(text=["t"], text_model=tmp_path / "st").fit(frame)
    assert np.allclose(encoder.transform(frame), made.encode(frame["t"].to_list()), atol=1e-6)


def test_a_folder_that_is_no_text_model(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": ["cat dog", "dog", "cat"]})
    with pytest.raises(ValueError, match="holds neither a model2vec nor a sentence-transformers model"):
        TableEncoder(text=["t"], text_model=tmp_path).fit(frame)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        TableEncoder(text=["t"], text_model=tmp_path / "none").fit(frame)
