# SPDX-License-Identifier: Apache-2.0
"""Checks that the Pythons of Debian sid are among those that are tested. .ci/sid-pythons.sh installs them for `make test-all`."""
import os
import pathlib

import pytest

SID = pathlib.Path(os.environ.get("PROBING_SID") or "/nonexistent")


@pytest.mark.slow
def test_newest_pythons(pythons):
    """All tests ran with 3.14 and 3.15 as well; if these cannot be installed, the test is skipped and says why."""
    have = {p.version[:2] for p in pythons}
    missing = [v for v in ((3, 14), (3, 15)) if v not in have]
    if missing:
        why = SID / "why-not"
        reason = why.read_text().strip() if why.exists() else "tests/run.sh BUILD all makes them"
        pytest.skip("no Python %s: %s" % (", ".join("%d.%d" % v for v in missing), reason))
    assert {(3, 14), (3, 15)} <= have
