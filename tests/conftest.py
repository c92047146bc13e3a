from __future__ import annotations

import os
import signal
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
settings.register_profile(
    "default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skips = {}
    if not config.getoption("--slow"):
        skips["slow"] = pytest.mark.skip(reason="slow: runs with --slow")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        skips["compiled"] = pytest.mark.skip(reason="compiled: NUMBA_DISABLE_JIT is set")
    for item in items:
        for name, skip in skips.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory of reference tables beside the repository; skip where there is none."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no ../shared/data beside the repository")
    return path
