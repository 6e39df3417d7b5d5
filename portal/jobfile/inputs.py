"""Secrets and data sets that a job file uses."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from evenkeel.store import DATA_PROTOCOLS, variable_of
from pydantic import AfterValidator, Field, model_validator

from portal.jobfile.fields import ENV_NAME, OneLine, Part, line_as_it_is

SecretName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]


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
        if self.env and (not ENV_NAME.match(self.env) or self.env.startswith("EVENKEEL_")):
            raise ValueError(f"{self.env!r} is not a variable name that a job may set")
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
        raise ValueError("is not a valid URL") from None
    if "://" not in url or parts.scheme not in DATA_PROTOCOLS or "::" in url:
        raise ValueError(f"must be a URL of {', '.join(DATA_PROTOCOLS)}, as s3://bucket/folder")
    _check_port(parts)
    if "@" in parts.netloc:
        raise ValueError("must contain neither user nor password: put them into a secret, named by secret")
    if "?" in url or "#" in url or any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError("must have no ?, no #, no . and no .. in its path")
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise ValueError("must be written as file:///path")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError("names no bucket or host")
    return url


class DataUse(Part):
    """Data that the job reads as EVENKEEL_DATA_DIR/<name>: a path on its nodes, or a URL that is fetched to them
    first."""

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
