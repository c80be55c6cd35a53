"""What all tests share: a cache of their own, so that no compiled code is read from or left in the user's.

Design choice: the folder is made once by the main process and inherited through the environment by the
workers of pytest-xdist and by every process that a test starts.  Real models are large and checked by hash:
those of the user's cache are used in place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hwsdk.frontends import catalogue

ROOT = Path(__file__).resolve().parent.parent
_MINE = "HWSDK_TESTS_OWN_CACHE"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and "HWSDK_CACHE_DIR" not in os.environ:
        models = catalogue.cache_dir()
        models.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="hwsdk-tests-"))
        (own / "models").symlink_to(models, target_is_directory=True)
        os.environ["HWSDK_CACHE_DIR"] = os.environ[_MINE] = str(own)
    # A process that a test starts must find the package that is being tested.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        own = os.environ.pop(_MINE, None)
        if own:
            shutil.rmtree(own, ignore_errors=True)
            os.environ.pop("HWSDK_CACHE_DIR", None)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the checkout."""
    return ROOT
