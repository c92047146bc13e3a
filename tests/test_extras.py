"""Packages that only some calls need."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastbayes.core.errors import DataError
from fastbayes.core.extras import needed


def test_needed__says_how_to_install_what_is_not_there() -> None:
    with pytest.raises(DataError, match="install it"):
        needed("not_there.inner", "install it", DataError)


def test_needed__a_package_that_is_there_is_not_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_there.py").write_text("import not_there")
    (tmp_path / "broken_there.py").write_text("raise ImportError('libfoo.so: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        needed("half_there", "install it")
    with pytest.raises(ImportError, match="libfoo"):
        needed("broken_there", "install it")
