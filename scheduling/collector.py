"""Settings of the garbage collector for processes that plan rounds."""

import gc


def freeze_loaded_objects() -> None:
    """Modules and settings last as long as the process; scanning them delayed rounds by a tenth of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # a round creates hundreds of thousands of objects that live until its end
