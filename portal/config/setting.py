"""What is known of one setting: type, default, bounds, and the line that the documents have of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "flag", "number", "integer", "choice"]
Default = str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    help: str
    kind: Kind = "text"
    default: Default = ""
    #: The default as documents say it, where it depends on the machine or on other settings.
    shown: str = ""
    unit: str = ""
    minimum: float = 0
    maximum: float = 0
    choices: tuple[str, ...] = ()
    #: Of a text: what it looks like.
    form: str = ""

    @property
    def raw_default(self) -> str:
        """As the environment would have it."""
        return str(int(self.default)) if isinstance(self.default, bool) else str(self.default)

    @property
    def allowed(self) -> str:
        """Completes the sentence "it must be"; empty: any text."""
        if self.kind == "flag":
            return "1 or 0"
        if self.kind == "choice":
            return " or ".join(choice for choice in self.choices if choice)
        if self.kind == "text":
            return self.form
        what = "a whole number" if self.kind == "integer" else "a number"
        of = f" of {self.unit}" if self.unit else ""
        return f"{what}{of} from {_figure(self.minimum)} to {_figure(self.maximum)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Settings that one table of the documents has."""

    key: str
    needed_by: str
    #: Each cluster of EVENKEEL_CLUSTERS may have its own.
    per_cluster: bool = False
    settings: tuple[Setting, ...]


def _figure(value: float) -> str:
    return format(value, ",.12g")


def text(name: str, help: str, *, default: str = "", shown: str = "", form: str = "") -> Setting:
    return Setting(name=name, help=help, default=default, shown=shown, form=form)


def flag(name: str, help: str, *, default: bool = False) -> Setting:
    return Setting(name=name, help=help, kind="flag", default=default)


def choice(name: str, help: str, *choices: str) -> Setting:
    """The first is the default."""
    return Setting(name=name, help=help, kind="choice", default=choices[0], choices=choices)


def integer(
    name: str, help: str, default: int, minimum: int, maximum: int, unit: str = "", *, shown: str = ""
) -> Setting:
    return Setting(
        name=name, help=help, kind="integer", default=default, minimum=minimum, maximum=maximum, unit=unit, shown=shown
    )


def number(
    name: str, help: str, default: float, minimum: float, maximum: float, unit: str = "seconds", *, shown: str = ""
) -> Setting:
    return Setting(
        name=name, help=help, kind="number", default=default, minimum=minimum, maximum=maximum, unit=unit, shown=shown
    )
