"""A column of text as numbers: TF-IDF of words and word pairs with a truncated SVD, or a model in a local folder.

Both are kept as plain values and arrays; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from mogd.datasets.delimited import first_line

Arrays = dict[str, np.ndarray]
TOKEN = r"\w+|[!?]+|[:;]-?[()dp]"  # words of any length, and the marks by which people show what they feel


class TfidfText:
    """Word 1- and 2-grams weighted by TF-IDF, brought to `size` dimensions by a truncated SVD, each text to length 1.

    Parameters
    ----------
    size : the dimensions; None takes 256, or a quarter of the texts where they are few: as many directions as texts
        would set every text apart from every other once the features are scaled.
    most_words : the most frequent words and pairs that are kept.
    """

    kind = "tfidf"

    def __init__(self, size: int | None = None, most_words: int = 20_000) -> None:
        self.size = size
        self.most_words = most_words

    def fit(self, texts: Sequence[str], column: str) -> Self:
        """Learn the words, their weights and the directions in which the texts differ most."""
        rare = 2 if len(texts) >= 20 else 1  # a word of one text alone says nothing about another
        self.words_ = _vectorizer(max_features=self.most_words, min_df=rare)
        try:
            counts = self.words_.fit_transform(texts)
        except ValueError:
            raise ValueError(f"column {column!r} holds no words, so it is no text") from None
        size = min(self.size or min(256, max(2, len(texts) // 4)), min(counts.shape) - 1)
        if size < 1:
            raise ValueError(f"column {column!r} holds too few texts or words to tell them apart")
        self.directions_ = TruncatedSVD(size, random_state=0).fit(counts).components_
        return self

    @property
    def width(self) -> int:
        return len(self.directions_)

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        return normalize(self.words_.transform(texts) @ self.directions_.T)

    def to_json(self) -> dict[str, Any]:
        order = sorted(self.words_.vocabulary_, key=self.words_.vocabulary_.__getitem__)
        return {"kind": self.kind, "size": self.size, "most_words": self.most_words, "vocabulary": order}

    def arrays(self) -> Arrays:
        return {"idf": self.words_.idf_, "directions": self.directions_}

    @classmethod
    def from_json(cls, state: Mapping[str, Any], arrays: Arrays) -> Self:
        text = cls(state["size"], state["most_words"])
        text.words_ = _vectorizer(vocabulary={str(word): i for i, word in enumerate(state["vocabulary"])})
        text.words_.idf_ = arrays["idf"]
        text.directions_ = arrays["directions"]
        return text


class FolderText:
    """A model2vec or sentence-transformers model in a local folder; the saved encoder names the folder and its content.

    Only the folder is read: nothing is downloaded, and weights must be safetensors.
    """

    kind = "folder"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def fit(self, texts: Sequence[str], column: str) -> Self:
        self.checksum_ = _checksum(self.folder)
        self.width = int(self.transform(texts[:1]).shape[1])
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        with self._damage_named():
            features = np.asarray(self._model.encode(list(texts)), dtype=np.float64)
            if features.ndim != 2 or len(features) != len(texts) or not np.isfinite(features).all():
                raise ValueError("its features are not finite numbers, a row for each text")
        return features

    @cached_property
    def _model(self) -> Any:
        return _load(self.folder)

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Whatever the package says of a damaged folder is one sentence."""
        try:
            yield
        except (ImportError, FileNotFoundError):
            raise
        except Exception as error:  # damage can raise nearly anything
            raise ValueError(f"the text model {self.folder} cannot be used: {first_line(error)}") from None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "folder": str(self.folder), "checksum": self.checksum_, "width": self.width}

    def arrays(self) -> Arrays:
        return {}

    @classmethod
    def from_json(cls, state: Mapping[str, Any], folder: str | os.PathLike[str] | None = None) -> Self:
        """The same model; `folder` is where it is now. One with another content is refused."""
        text = cls(folder or str(state["folder"]))
        if not text.folder.is_dir():
            raise FileNotFoundError(
                f"the text model {text.folder} is not there: name its folder (text_model=…, in the shell --text-model)"
            )
        text.checksum_, text.width = str(state["checksum"]), int(state["width"])
        if _checksum(text.folder) != text.checksum_:
            raise ValueError(f"{text.folder} is not the text model that the features were made with")
        return text


TextFeatures = TfidfText | FolderText


def from_json(state: Mapping[str, Any], arrays: Arrays, folder: str | os.PathLike[str] | None = None) -> TextFeatures:
    return (
        FolderText.from_json(state, folder) if state["kind"] == FolderText.kind else TfidfText.from_json(state, arrays)
    )


def _vectorizer(**more: Any) -> TfidfVectorizer:
    return TfidfVectorizer(token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True, **more)


def _checksum(folder: Path) -> str:
    """Of the weights, the tokenizer and the settings, whatever else lies beside them."""
    digest = hashlib.sha256()
    files = sorted(file for file in folder.rglob("*") if file.suffix in (".safetensors", ".json", ".txt", ".model"))
    for file in files:
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _is_model2vec(folder: Path) -> bool:
    """By its settings; a model2vec model may also carry the files of a sentence-transformers one."""
    settings = folder / "config.json"
    if not all(file.is_file() for file in (settings, folder / "model.safetensors", folder / "tokenizer.json")):
        return False
    try:
        found = json.loads(settings.read_text("utf-8")).get("model_type")
    except (ValueError, AttributeError):
        raise ValueError(f"{settings} is damaged: it is no JSON object") from None
    return found == "model2vec" or (found is None and not (folder / "modules.json").is_file())


def _load(folder: Path) -> Any:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} with a text model")
    if _is_model2vec(folder):
        try:
            from model2vec import StaticModel
        except ImportError:
            raise ImportError("a model2vec model needs model2vec: pip install 'mogd[model2vec]'") from None
        return StaticModel.from_pretrained(folder)
    if not (folder / "modules.json").is_file():
        raise ValueError(f"{folder} holds neither a model2vec nor a sentence-transformers model")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ImportError(
            "a sentence-transformers model needs that package: pip install 'mogd[sentence-transformers]'"
        ) from None
    safe = {"use_safetensors": True}
    return SentenceTransformer(str(folder), local_files_only=True, trust_remote_code=False, model_kwargs=safe)
