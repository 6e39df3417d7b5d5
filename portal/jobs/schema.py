"""The job file: the one schema of a submission (DESIGN.md "Job file"). YAML, and JSON which is YAML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from evenkeel.store import DATA_PROTOCOLS, variable_of
from evenkeel.web_address import read_url
from evenkeel.yaml_loader import YamlProblem, load
from pydantic import (
    AfterValidator,
    AllowInfNan,
    AwareDatetime,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)

from accounts.text import several_lines, shown
from portal.jobs.fields import (
    Array,
    Cost,
    Line,
    Memory,
    OneLine,
    Part,
    Seconds,
    Text,
    Word,
    line_as_it_is,
)
from portal.jobs.slurm_options import SlurmOptions
from scheduling.validation import hint_at, known_keys

MAX_BYTES = 256 * 1024
WHOLE_PERCENT = 100
_LABEL_KEY = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}\Z")
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class FieldProblem:
    field: str
    message: str
    code: str


class Problems(Exception):
    """What is wrong with a job file, by field; nothing of it was stored."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems


def _relative(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.rstrip("/").split("/")):
        raise ValueError("must be a path below the root, without . and ..")
    return line_as_it_is(path.rstrip("/"))


def _glob(pattern: str) -> str:
    if pattern.count("*") > 8:
        raise ValueError("may have 8 asterisks at most")
    return line_as_it_is(pattern)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["9f86d0818" + "0" * 55])]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]


class Gpus(Part):
    """How many GPUs, all of one type at a time, or a part of one. A number alone is that many, or 0.5 of one."""

    min: int = Field(1, ge=1, le=100_000, description="The job does not start with fewer.")
    max: int | None = Field(None, ge=1, le=100_000, description="It never grows beyond; empty: as far as it gains.")
    types: list[Word] = Field([], max_length=20, description="Accelerator types allowed; empty: any it can run on.")
    share: Annotated[float, AllowInfNan(False)] | None = Field(
        None, ge=0.01, le=1, description="Part of one GPU, in steps of 0.01; others may have the rest. Empty: whole."
    )
    memory: Memory | None = Field(
        None, description="MiB of each GPU, or as 6GiB; of a part by default its share of the smallest GPU allowed."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_number(cls, given: Any) -> Any:
        if not isinstance(given, int | float) or isinstance(given, bool) or not isfinite(given):
            return given
        if 0 < given < 1:
            return {"share": given}
        if given < 1 or given != int(given):
            raise ValueError("is a number of whole GPUs, or a part of one as 0.5")
        return {"min": int(given), "max": int(given)}

    @model_validator(mode="after")
    def _ordered(self) -> Gpus:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be below min ({self.min})")
        if self.share is not None and abs(100 * self.share - self.share_percent) > 1e-6:
            raise ValueError("share is in steps of 0.01")
        if self.share_percent < WHOLE_PERCENT and (self.min, self.max or 1) != (1, 1):
            raise ValueError("share is a part of one GPU: leave min and max out, or the share")
        return self

    @property
    def share_percent(self) -> int:
        return WHOLE_PERCENT if self.share is None else round(100 * self.share)


def _or_a_number(schema: dict[str, Any]) -> None:
    whole = {"type": "integer", "minimum": 1, "description": "So many, neither more nor fewer."}
    part = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": "A part of one."}
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, whole, part]


def _git_url(url: str) -> str:
    if not url.startswith("file://"):
        read_url(url, most=1_000)
    return url


class Code(Part):
    """Where the program comes from: a shared path, a git repository, or an uploaded bundle."""

    path: Annotated[str, Field(max_length=1_000), AfterValidator(line_as_it_is)] | None = Field(
        None, description="A directory that the nodes can read; the job starts in it."
    )
    git: (
        Annotated[str, Field(max_length=1_000, pattern=r"^(https?|file)://[^\s@?#\"'\\]+$"), AfterValidator(_git_url)]
        | None
    ) = Field(
        None,
        description="https address of a repository, without user or password.",
        examples=["https://example.org/team/code.git"],
    )
    ref: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = Field(
        None, description="Branch, tag or commit; the commit it names when the job is taken in stays the job's."
    )
    subdir: Annotated[str, Field(max_length=500), AfterValidator(_relative)] | None = Field(
        None, description="Directory of the repository or bundle in which the job starts."
    )
    token_secret: SecretName | None = Field(None, description="Secret of the project with an access token for git.")
    bundle: Sha256 | None = Field(None, description="SHA-256 of a bundle that the project has.")

    @model_validator(mode="after")
    def _one_source(self) -> Code:
        given = [name for name in ("path", "git", "bundle") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of path, git and bundle, not {' and '.join(given)}")
        if bool(self.git) != bool(self.ref):
            raise ValueError("git and ref belong together")
        if self.token_secret and not self.git:
            raise ValueError("token_secret is for git")
        if self.subdir and not (self.git or self.bundle):
            raise ValueError("subdir is for git and bundle")
        return self


#: Never what a tool would take for an option.
_MODULE = r"[A-Za-z0-9_][A-Za-z0-9_.+/=@:-]*"
_IMAGE = r"(/|(docker|oras|library|shub)://)[A-Za-z0-9][A-Za-z0-9_.+/@:-]*"


def _module(name: str) -> str:
    if not re.fullmatch(_MODULE, name):
        raise ValueError("must be a module's name as `module avail` shows it: letters, digits and _.+/=@:-, no options")
    return name


def _image(name: str) -> str:
    if not re.fullmatch(_IMAGE, name) or ".." in name.split("/"):
        raise ValueError(
            "must be an absolute path on the nodes, or an address as docker://registry/name:tag (oras, library, shub): "
            "letters, digits and _.+/@:-, without .."
        )
    return name


Module = Annotated[
    str,
    Field(max_length=200, examples=["cuda/12.4"], json_schema_extra={"pattern": f"^{_MODULE}$"}),
    AfterValidator(_module),
]
Image = Annotated[str, Field(max_length=500, json_schema_extra={"pattern": f"^{_IMAGE}$"}), AfterValidator(_image)]


def _file_text(text: str) -> str:
    """Text of a file, its lines ended by line feeds. Raises ValueError naming the line of what no text file has."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):
        if "\ufffd" in line:
            raise ValueError(f"line {number}: it is not UTF-8 text; save the file as UTF-8")
        try:
            several_lines(line)
        except ValueError:
            raise ValueError(f"line {number}: it has a control character") from None
    return text


class EnvironmentRule(Part):
    """Packages on top of the portal's own, built once and kept for all jobs that ask for the same; or an image, which
    has all that the program needs. Modules of the site stand alone or beside packages."""

    requirements: Annotated[str, Field(min_length=1, max_length=65_536), AfterValidator(_file_text)] | None = Field(
        None, description="Text of a requirements file: packages only, no options.", examples=["einops==0.8.1"]
    )
    digest: Sha256 | None = Field(None, description="One that the project has.")
    modules: list[Module] = Field(
        [], max_length=20, description="Loaded in this order on each node, where the cluster has modules."
    )
    image: Image | None = Field(
        None,
        description="Path on the nodes, or an address as docker://, of a container image, where the cluster runs them.",
        examples=["/shared/images/pytorch.sif"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> EnvironmentRule:
        given = [name for name in ("requirements", "digest", "image") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of requirements, digest and image, not {' and '.join(given)}")
        if self.image and self.modules:
            raise ValueError("an image has its own software: leave the modules out")
        if not given and not self.modules:
            raise ValueError("give requirements, digest, modules or image")
        return self

    @property
    def is_built(self) -> bool:
        """Something is to be prepared before the job can start."""
        return bool(self.requirements or self.digest)


class SecretUse(Part):
    """A secret of the project, as a variable or as a file in EVENKEEL_SECRETS_DIR."""

    name: SecretName = Field(examples=["HF_TOKEN"])
    env: Annotated[str, Field(max_length=128), OneLine] | None = Field(
        None, description="Name of the variable.", examples=["HF_TOKEN"]
    )
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")] | None = Field(
        None, description="Name of the file."
    )

    @model_validator(mode="after")
    def _one_way(self) -> SecretUse:
        if bool(self.env) == bool(self.file):
            raise ValueError("give either env or file")
        if self.env and (not _ENV_NAME.match(self.env) or self.env.startswith("EVENKEEL_")):
            raise ValueError(f"{self.env!r} is no variable name that a job may set")
        return self


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("must be an absolute path, without ..")
    return line_as_it_is(path)


def _check_port(parts: SplitResult) -> None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("must have a port from 1 to 65535, or none")


def _data_url(url: str) -> str:
    line_as_it_is(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is no URL") from None
    if "://" not in url or parts.scheme not in DATA_PROTOCOLS or "::" in url:
        raise ValueError(f"must be a URL of {', '.join(DATA_PROTOCOLS)}, as s3://bucket/folder")
    _check_port(parts)
    if "@" in parts.netloc:
        raise ValueError("must hold neither user nor password: they belong in a secret of the project, named by secret")
    if "?" in url or "#" in url or any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError("must have no ?, no #, no . and no .. in its path")
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise ValueError("must be written as file:///path")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError("names no bucket or host")
    return url


class DataUse(Part):
    """What the job reads as EVENKEEL_DATA_DIR/<name>: a path of its nodes, or a URL that is fetched to them first."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")] = Field(examples=["imagenet"])
    path: Annotated[str, Field(max_length=1_000), AfterValidator(_absolute)] | None = Field(
        None, description="A file or folder of each node, opened as the job's account.", examples=["/shared/imagenet"]
    )
    url: Annotated[str, Field(max_length=1_000), AfterValidator(_data_url)] | None = Field(
        None,
        description="A file or folder in a store, kept in the node's cache.",
        examples=["s3://datasets/imagenet"],
    )
    secret: SecretName | None = Field(
        None, description="Secret of the project: a JSON object of the store's options, as key and secret."
    )
    read_only: bool = Field(True, description="False: of a path, the job's account must be able to write there, too.")

    @model_validator(mode="after")
    def _one_place(self) -> DataUse:
        if bool(self.path) == bool(self.url):
            raise ValueError("give either path or url")
        if self.url and not self.read_only:
            raise ValueError("read_only: false is for a path; what comes from a URL is a copy that others read, too")
        if self.secret and (not self.url or self.url.startswith("file:")):
            raise ValueError("secret is for the url of a store")
        if variable_of(self.name) == "EVENKEEL_DATA_DIR":
            raise ValueError("EVENKEEL_DATA_DIR is the folder of all of them: choose another name")
        return self


MAX_DATA = 16


class ArtifactRule(Part):
    """Which files that a run leaves in EVENKEEL_ARTIFACT_DIR are kept, and for how long."""

    paths: list[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_glob)]] = Field(
        ["**"], min_length=1, max_length=20, description="Patterns as in .gitignore: `*.csv`, `plots/`, `!*.tmp`."
    )
    keep_days: int | None = Field(None, ge=1, le=3_650, description="By default as long as the portal keeps them.")
    max_bytes: int | None = Field(None, ge=0, le=2**50, description="Of all together; what exceeds it is left out.")


class CheckpointRule(Part):
    every_steps: int = Field(200, ge=1, le=10_000_000, description="Steps between checkpoints.")
    keep: int = Field(3, ge=1, le=100, description="How many of the newest are kept.")


Ending = Literal["user_error", "signal", "out_of_memory", "launch_failed", "node_failure"]


class Retry(Part):
    limit: int = Field(
        3, ge=0, le=20, description="How often a failed run is tried again; node_failure is not counted."
    )
    on: list[Ending] = Field(
        ["launch_failed", "node_failure"],
        max_length=5,
        description="The endings that are tried again; by default those that the program did not bring about.",
    )
    backoff_s: float = Field(10, ge=0, le=3_600, description="Wait before the first retry; doubles each time.")


class ResumeFrom(Part):
    """A checkpoint of a job of the same project, at which the first run begins."""

    job: int | Line = Field(description="Number or UUID of the job.")
    step: int | None = Field(None, ge=1, le=10**13, description="Step of the checkpoint; empty: the newest.")


class DependencyWish(Part):
    """Another job, or with singleton none: all earlier ones of this one's name and owner."""

    type: Literal["afterok", "afterany", "afternotok", "singleton"] = Field(
        "afterok", description="When it has succeeded; ended; not succeeded; or after all earlier ones of its name."
    )
    job: int | Line | None = Field(None, description="Number or UUID of a job that you may see.")

    @model_validator(mode="after")
    def _named(self) -> DependencyWish:
        if (self.type == "singleton") != (self.job is None):
            raise ValueError("job: name the job; singleton has none")
        return self


class JobFile(Part):
    """A training job: a catalogue program or a command, a number of steps, and limits."""

    name: Line | None = Field(None, description="Shown everywhere; by default the program's name.")
    project: Word | None = Field(None, description="Key of the project that pays; may be left out with one project.")
    model_type: Word | None = Field(None, description="A program of the catalogue.")
    command: Text | None = Field(None, description="Your own shell line, run once per GPU.")
    code: Code = Code()
    environment: EnvironmentRule | None = None
    total_steps: int = Field(ge=1, le=10**12, description="Training steps until the job is done.")
    batch_size: int | None = Field(None, ge=1, le=10_000_000, description="Global batch, over all GPUs.")
    gpus: Gpus = Field(Gpus(), json_schema_extra=_or_a_number)
    cpus: int | None = Field(None, ge=1, le=4_096)
    memory: Memory | None = Field(None, description="MiB per node, or as 8GiB.")
    checkpoint: CheckpointRule = CheckpointRule()
    restartable: bool | None = Field(
        None,
        description="False: never resized or preempted. True: a command without the SDK saves its files when asked to "
        "end, and finds them when it is started again. Empty: as its program, by the SDK, says.",
    )
    priority: int = Field(0, ge=-1_000, le=1_000, description="Larger goes first; above 0 for administrators.")
    nice: int = Field(0, ge=0, le=1_000, description="Lowers the priority.")
    qos: Word | None = Field(None, description="Level of service; by default the cluster's default one, if any.")
    cluster: Word | None = Field(
        None,
        description="Name of a cluster, or the portal's choice by expected end (`earliest`, `auto`; the default) or by "
        "cost (`cheapest`).",
    )
    partition: Word | None = Field(None, description="Set of nodes; by default the cluster's default one, if any.")
    deadline: AwareDatetime | None = Field(None, description="When it should be finished; shown against the estimate.")
    max_cost: Cost | None = None
    max_duration: Seconds | None = Field(None, description="Longest time in training, as 6h or seconds.")
    env: dict[str, Text] = Field({}, max_length=200)
    secrets: list[SecretUse] = Field([], max_length=50)
    data: list[DataUse] = Field([], max_length=MAX_DATA, description="What it reads, by path or URL.")
    artifacts: ArtifactRule | None = None
    labels: dict[str, Line] = Field({}, max_length=50)
    slurm: SlurmOptions | None = Field(None, description="Options of sbatch, where its cluster is a Slurm.")
    retry: Retry = Retry()
    array: Array | None = Field(None, description="One job for each index: `0-15%4`, of which 4 run at once.")
    dependencies: list[DependencyWish] = Field([], max_length=50, description="It queues when all are met.")
    resume_from: ResumeFrom | None = Field(None, description="Begin at this checkpoint instead of step 0.")
    throughput: dict[Word, list[Annotated[float, Field(ge=0, le=1e9)]]] = Field(
        {}, max_length=20, description="Your own curve: accelerator type -> steps/s on 1, 2, ... GPUs."
    )

    @model_validator(mode="after")
    def _one_program(self) -> JobFile:
        if bool(self.model_type) == bool(self.command):
            raise ValueError("give either model_type or command")
        return self

    @model_validator(mode="after")
    def _names(self) -> JobFile:
        bad = [k for k in self.env if not _ENV_NAME.match(k) or k.startswith("EVENKEEL_")]
        if bad:
            name = bad[0].partition("=")[0]  # of one written as NAME=value no value is repeated
            raise ValueError(f"env: {name!r} is no variable name that a job may set")
        if bad := [k for k in self.labels if not _LABEL_KEY.match(k)]:
            raise ValueError(f"labels: {bad[0]!r} must be letters, digits and _ . / -, at most 63")
        if any(len(curve) > 10_000 or not curve for curve in self.throughput.values()):
            raise ValueError("throughput: each list has one to 10,000 numbers")
        names = [use.env or f"file {use.file}" for use in self.secrets] + list(self.env)
        if doubled := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"secrets: {doubled[0]} is given twice")
        variables = Counter(variable_of(use.name) for use in self.data)
        if doubled := [name for name, count in variables.items() if count > 1]:
            raise ValueError(f"data: {doubled[0]} would stand for two of them")
        return self


def load_yaml(text: str) -> Any:
    """The document, or Problems with the line at which it cannot be read."""
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise Problems([FieldProblem("job file", f"is larger than {MAX_BYTES // 1024} KiB", "too_large")])
    try:
        return load(text)
    except YamlProblem as problem:
        raise Problems([FieldProblem("job file", str(problem), "syntax")]) from None


def parse_job_file(document: Any) -> JobFile:
    """`document` (plain values) as a JobFile; raises Problems naming each field."""
    if not isinstance(document, dict):
        raise Problems([FieldProblem("job file", "must be a mapping of keys to values", "type")])
    try:
        return JobFile.model_validate(document)
    except ValidationError as error:
        raise Problems(problems_of(error, JobFile)) from None
    except (RecursionError, OverflowError):
        raise Problems(
            [FieldProblem("job file", "is nested too deeply or has a number out of range", "range")]
        ) from None


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """What pydantic found wrong with values for `model`, in words and by field."""
    return [_problem(e, model) for e in error.errors(include_url=False)[:50]]


#: Keys whose values may hold secrets, wherever they stand: what was wrong with one is said without the value.
_SECRETIVE = frozenset({
    "env", "command", "args", "secrets", "requirements", "git", "url", "secret", "token_secret", "password", "token",
    "value",
})  # fmt: skip
#: Text where a mapping or a list is due may be anything, a whole file too.
_NOT_TEXT = frozenset({"dict_type", "list_type", "model_type", "model_attributes_type", "dataclass_type"})


def _place(location: Sequence[str]) -> str:
    """The keys that lead there, less what may be a value: as in `env: {"KEY=value": ...}`, or an address."""
    parts = ["(an address)" if "://" in part else part for part in location]
    if "env" in parts[:-1]:
        parts[-1] = parts[-1].partition("=")[0]
    return ".".join(parts)


def _shown_input(location: Sequence[str], value: Any) -> str:
    """A value that a message may repeat; nothing where it is long or may hold a secret."""
    if not isinstance(value, (str, int, float, bool)) or _SECRETIVE & set(location):
        return ""
    if isinstance(value, str) and ("://" in value or "\ufffd" in value):
        return ""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of so many digits"
    repeated = repr(value)
    return repeated if len(repeated) <= 62 else ""


_OFFSET = "must be a date and time with its offset from UTC, such as 2026-12-01T18:00:00+01:00"
#: What is wrong by pydantic's type of error, and what is allowed; all others are said in pydantic's words.
_IN_WORDS = {
    "missing": "is required",
    "string_type": "must be text: put it in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number, such as 10"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("timezone_aware", "datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _OFFSET),
}


def _problem(error: Any, model: type[BaseModel]) -> FieldProblem:
    fields, whole = model.model_fields, "job file" if issubclass(model, JobFile) else "body"
    # Of a value that may be of several kinds pydantic names the kind, by our functions where it has some.
    location = [str(part) for part in error["loc"] if not str(part).startswith("function-")]
    field = _place(location)
    message = _IN_WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = known_keys(model, location[:-1])
        message = f"is no known key; {hint_at(location[-1], known)}" if known else "is no known key."
    elif error["type"] == "value_error" and (named := re.match(r"^(\w+): (.*)$", message)) and named[1] in fields:
        field, message = named[1], named[2]
    elif error["type"] == "value_error" and message == "give either model_type or command":
        field = "model_type"
    elif model.model_config.get("hide_input_in_errors") or error["type"] in _NOT_TEXT:
        pass
    elif repeated := _shown_input(location, error.get("input")):
        message = f"{message}, not {repeated}"
    return FieldProblem(shown(field, 200) or whole, shown(message, 500), error["type"])
