"""Settings of the whole test run."""

import os
import signal

from hypothesis import settings

from tests.browser.missing_browser import pytest_terminal_summary  # noqa: F401  # says loudly when no browser was there

# No deadlines: a busy machine is not a bug. In CI the examples are always the same; elsewhere each run looks further.
settings.register_profile("inlayer", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("inlayer")

# A shell starts background jobs with Ctrl-C ignored, and tests of interrupts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
