"""Code, modules, images and environments that a job file names."""

from __future__ import annotations

import re
from typing import Annotated

from evenkeel.web_address import read_url
from pydantic import AfterValidator, Field, model_validator

from accounts.text import several_lines
from portal.jobfile.fields import Part, Sha256, line_as_it_is, relative_path
from portal.jobfile.inputs import SecretName


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
    subdir: Annotated[str, Field(max_length=500), AfterValidator(relative_path)] | None = Field(
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


#: Must not look like an option of a tool.
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
    """Text of a file with line feeds as line ends. Raises ValueError with the line that is not text."""
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
    contains all that the program needs. Modules of the site are used alone or together with packages."""

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
        """Something must be prepared before the job can start."""
        return bool(self.requirements or self.digest)
