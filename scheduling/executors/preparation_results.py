"""Results of preparations. The project's account wrote them, so they are validated."""

from __future__ import annotations

from typing import Annotated, Any

from evenkeel.preparation.artifacts import MAX_NAME
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from scheduling.executors.base import Preparation

MAX_RESULT_BYTES, MAX_RESULT_NODES = 32 << 20, 1_000_000
MAX_COUNT = 2**31 - 1


def _relative(path: str) -> str:
    parts = path.split("/")
    if not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise ValueError("must be a path below the artifact directory, of printable characters")
    return path


Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Size = Annotated[int, Field(ge=0, lt=2**60)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class ListedFile(_Strict):
    path: Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_relative)]
    bytes: Size
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Listing(_Strict):
    files: list[ListedFile]
    left_out: Count = 0

    @property
    def total_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Code(_Strict):
    """`commit` only for git."""

    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")] = ""
    files: Count = 0
    bytes: Size


class Environment(_Strict):
    bytes: Size


_MODELS: dict[str, type[Listing | Code | Environment]] = {
    "artifacts": Listing,
    "git": Code,
    "bundle": Code,
    "environment": Environment,
}


def checked_detail(preparation: Preparation, detail: Any) -> dict[str, Any]:
    """The validated `detail`. ValueError names the field that is wrong, and how."""
    try:
        found = _MODELS[preparation.kind].model_validate(detail)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'detail'}: {first['msg']}") from None
    if isinstance(found, Listing):
        _check_listing(found, preparation)
    elif found.bytes > preparation.max_bytes:
        raise ValueError(f"bytes: {found.bytes:,}, of at most {preparation.max_bytes:,}")
    return found.model_dump()


def _check_listing(found: Listing, preparation: Preparation) -> None:
    most, most_bytes = preparation.options["max_files"], preparation.options["max_bytes"]
    if len(found.files) > most:
        raise ValueError(f"files: {len(found.files):,}, of at most {most:,}")
    if len({file.path for file in found.files}) < len(found.files):
        raise ValueError("files: a path is listed twice")
    if found.total_bytes > most_bytes:
        raise ValueError(f"files: {found.total_bytes:,} bytes, of at most {most_bytes:,}")
