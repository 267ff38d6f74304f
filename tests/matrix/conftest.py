"""The counts of the matrix, printed at the end; and files for it."""

import collections

import pytest


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Inputs and models."""
    import matrix_pairs  # starts TensorFlow, before devices are configured

    return matrix_pairs.Files(tmp_path_factory)


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints how many pairs came to what."""
    reports = [one for ended in ("passed", "failed") for one in terminalreporter.getreports(ended)]
    told = [dict(report.user_properties) for report in reports if report.when == "call"]
    counts = collections.Counter(one["outcome"] for one in told if "outcome" in one)
    if counts:
        listed = ", ".join(f"{counts[name]} {name}" for name in ("equal", "refused", "other"))
        terminalreporter.write_line(f"matrix: {counts.total()} pairs: {listed}")
