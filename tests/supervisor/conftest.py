import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.config.layout import Layout


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory outside pytest's own 0700 one, which the servers' account could not enter."""
    path = Path(tempfile.mkdtemp(prefix="evenkeel-data-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def layout(data: Path) -> Layout:
    layout = Layout(data)
    layout.prepare()
    return layout
