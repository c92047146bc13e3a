from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A job in the background begins with these ignored, and so would every process the tests start.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_IGN
    ):
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)

ROOT = Path(__file__).resolve().parent.parent

# A first call compiles, so an example has no deadline.
# The same examples in every run; who changes a kernel or a model looks for new ones with
# `--hypothesis-profile=thorough`. CI, with --slow, takes more.
settings.register_profile(
    "default",
    max_examples=30,
    deadline=None,
    derandomize=True,
    # `kernels` sets a variable once for all examples, which is what it is for.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=1000, derandomize=False
)
settings.register_profile("slow", settings.get_profile("default"), max_examples=60)
settings.load_profile("default")


# The quick tier: what finds most faults in about a minute, in numpy, without the compiler.
QUICK = (
    *("architecture", "adding", "docstrings", "imports", "public_api", "recorded", "smoke"),
    *("model_laws", "statistics_laws"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--quick", action="store_true", help="run a minute's worth, in numpy")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        os.environ["FASTBAYES_KERNELS"] = "never"
    if config.getoption("--slow") and config.getoption("--hypothesis-profile", None) is None:
        settings.load_profile("slow")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once, before several processes would each do so."""
    config = session.config
    several = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not several or config.getoption("--quick") or config.getoption("collectonly"):
        return
    if {"NUMBA_DISABLE_JIT", "FASTBAYES_CACHE"} & {*os.environ} or os.environ.get(
        "FASTBAYES_KERNELS"
    ) == "never":
        return
    kernels = sorted((ROOT / "fastbayes" / "kernels").rglob("*.py"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in kernels)).hexdigest()
    state += os.environ.get("NUMBA_CACHE_DIR", "") + os.environ.get("NUMBA_BOUNDSCHECK", "")
    if config.cache is not None and config.cache.get("fastbayes/kernels", None) != state:
        subprocess.run([sys.executable, "-m", "fastbayes", "warmup"], check=True, cwd=ROOT)
        config.cache.set("fastbayes/kernels", state)


def is_quick(item: pytest.Item) -> bool:
    """Return whether a test is of the quick tier."""
    if item.path.parent.name == "kernels":
        return "numpy" in item.name and item.get_closest_marker("compiled") is None
    return item.path.stem.removeprefix("test_") in QUICK


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = [item for item in items if is_quick(item)]
    skips = {}
    if not config.getoption("--slow"):
        skips["slow"] = pytest.mark.skip(reason="slow: runs with --slow")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        skips["compiled"] = pytest.mark.skip(reason="compiled: NUMBA_DISABLE_JIT is set")
    for item in items:
        for name, skip in skips.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)


@pytest.fixture(params=["always", pytest.param("never", marks=pytest.mark.slow)])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test on compiled kernels and, with --slow, on their numpy twins."""
    choice = "never" if request.config.getoption("--quick") else str(request.param)
    monkeypatch.setenv("FASTBAYES_KERNELS", choice)
    return choice


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory of reference tables beside the repository; skip where there is none."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no ../shared/data beside the repository")
    return path
