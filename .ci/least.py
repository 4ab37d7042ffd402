"""Install the least versions that pyproject.toml allows into the folder `.least`, which shadows those of .venv.

    .venv/bin/python .ci/least.py

torch stays as it is: other versions of it take gigabytes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ("torch", "sentence-transformers", "distributed", "ray")  # the last three are large, and not in every .venv
OF_TESTS = ("pandas", "pyarrow")  # what the tests need of the extra `dev` to go with the rest
NEEDED = ("pytz",)  # by the least pandas


def least() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict(project["optional-dependencies"])
    extras["dev"] = [bound for bound in extras["dev"] if bound.partition(">=")[0] in OF_TESTS]
    bounds = [*project["dependencies"], *(bound for extra in extras.values() for bound in extra)]
    return [bound.replace(">=", "==") for bound in bounds if bound.partition(">=")[0] not in KEPT]


def main() -> None:
    shutil.rmtree(ROOT / ".least", ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", str(ROOT / ".least"), *least(), *NEEDED], check=True)
    print(*least())


if __name__ == "__main__":
    main()
