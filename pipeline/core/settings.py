"""Settings: fields of frozen dataclasses with their spelling for users, and the conversion of values."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pipeline.core.config import format_count, parse_count
from pipeline.core.door import may_be_empty, require
from pipeline.core.errors import InputError, nearest, require_known

Count = int | Literal["all"]
_C = TypeVar("_C")


class Range(NamedTuple):
    """Limits of a number, in ``Annotated``: its lowest value, and the first that is too high."""

    low: float
    end: float = math.inf


Positive = Annotated[int, Range(1)]


@dataclass(frozen=True)
class Setting:
    """A setting, declared by a field of a configuration (:func:`setting`).

    Attributes:
        name: its keyword in Python and recipes.
        path: the field, after the fields of enclosing dataclasses.
        kind: type of one value; a ``Literal`` has its choices.
        help: its meaning; allowed values first.
        default: default of dataset-level pools.
        by_field: default of field-level pools.
        option: its command-line option, without dashes.
        multi_value: whether it takes several values, a pool for each; such pools are in one table.
        up_to: whether a number means all numbers from 1 to it, as for samples; such pools are in one table.
        rule: whether it is a rule of the protocol; captions state unusual values.
        every: the values of ``all``.
        parse: converts one typed value; None: by its type.
        left_out: the default in words; empty for its value.
        flag: help of an option that sets it to False.
        metavar: the value in the help of the option; empty: by its name.
        required: whether a command needs it.
        word: whether it is also the first word of a command: ``mdcr show pools`` is ``mdcr show --what=pools``.
        of: the first words of a command that take it; empty: all.
        goes_with: the option that must be given too, with its value if only one will do: ``on=slurm``.
        hidden: whether the help leaves it out.
        omit_default: whether it is part of the identity only if it differs from its default.
        systems: of a recipe's field that names systems besides ``systems``: ``replaced`` by ``--model``, or ``kept``.
    """

    name: str
    path: tuple[str, ...]
    kind: Any
    help: str
    default: Any
    by_field: Any
    option: str
    multi_value: bool = False
    up_to: bool = False
    rule: bool = False
    every: tuple[Any, ...] = ()
    parse: Callable[[str], Any] | None = None
    left_out: str = ""
    flag: str = ""
    metavar: str = ""
    required: bool = False
    word: bool = False
    of: tuple[str, ...] = ()
    goes_with: str = ""
    hidden: bool = False
    omit_default: bool = False
    systems: Literal["", "replaced", "kept"] = ""

    @property
    def is_flag(self) -> bool:
        """Whether its option takes no value."""
        return self.kind is bool or bool in get_args(self.kind)

    @property
    def repeated(self) -> bool:
        """Whether its option may be repeated."""
        return self.kind in (tuple[Path, ...], tuple[str, ...]) and not self.multi_value

    @property
    def separates(self) -> bool:
        """Whether pools that differ in it are in different tables."""
        return not (self.multi_value or self.up_to)

    @property
    def usual(self) -> str:
        """The default in the user's spelling."""
        return self.left_out or "; by field ".join(dict.fromkeys(map(self.typed, (self.default, self.by_field))))

    def about(self, *, defaults: bool = True) -> str:
        """Return the help of its option; with ``defaults``, it states the default, which needs no option of its own."""
        if self.is_flag:
            return self.flag or self.help
        stated = self.left_out or self.default not in (None, (), "")
        return (
            f"{self.help} (default: {self.usual})" if defaults and stated and "default" not in self.help else self.help
        )

    def read(self, value: Any) -> Any:
        """Return a value of a user, text or a Python value, converted for the configuration.

        Raises:
            InputError: the value is unknown or of another type.
        """
        if self.repeated:
            values = [value] if isinstance(value, str | Path) else value
            require(values, Annotated[Sequence[str | Path], may_be_empty], f"--{self.option}")
            return tuple(map(get_args(self.kind)[0], values))
        if Path in (self.kind, *get_args(self.kind)):
            return Path(value)
        if not self.multi_value:
            return self._one(value)
        if self.every and isinstance(value, str) and value.strip().casefold() == "all":
            return self.every
        values = value.split(",") if isinstance(value, str) else _plain(value)
        values = values if isinstance(values, list | tuple) else [values]
        return tuple(dict.fromkeys(self._one(item) for item in values if item is None or str(item).strip()))

    def _one(self, value: Any) -> Any:
        if self.parse and isinstance(value, str):
            value = self.parse(value.strip())
        return convert(value, self.kind, f"--{self.option}")

    def typed(self, value: Any) -> str:
        """Return a value in the user's spelling: 200000 as ``200k``."""
        values = value if isinstance(value, tuple) else (value,)
        return ",".join(format_count(v) if self.kind == Count and type(v) is int else str(v) for v in values)

    def wants(self, value: Any, chosen: Any) -> bool:
        """Return whether a value of a configuration is among the values that a user chose."""
        if self.multi_value:
            return value in chosen
        return value is None or bool(value <= chosen) if self.up_to else bool(value == chosen)


def setting(value: Any, help_text: str, /, **attributes: Any) -> Any:
    """Return a field that is a setting: its default, its help, and further attributes of :class:`Setting`."""
    omitted = {"omit_default": True} if attributes.get("omit_default") else {}
    return dataclasses.field(default=value, metadata={"setting": {"help": help_text, **attributes}, **omitted})


def required(help_text: str, /, **attributes: Any) -> Any:
    """Return a field that is a setting without a default, as :func:`setting`: recipes give all of them."""
    return setting(dataclasses.MISSING, help_text, **attributes)


def settings_of(cls: type[Any], path: tuple[str, ...] = ()) -> dict[str, Setting]:
    """Return the settings of a configuration and its nested dataclasses by name, in field order."""
    settings: dict[str, Setting] = {}
    kinds = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        kind, field_path = kinds[field.name], (*path, field.name)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            settings |= settings_of(kind, field_path)
        elif attributes := field.metadata.get("setting"):
            name = attributes.get("name", field.name)
            values = {"kind": kind, "default": field.default, "option": name.replace("_", "-"), **attributes}
            settings[name] = Setting(**{"by_field": values["default"], **values, "name": name, "path": field_path})
    return settings


def configured(cls: type[_C], values: Mapping[str, Any]) -> _C:
    """Return a configuration with the converted values of some of its settings, by name."""
    settings, kinds = settings_of(cls), get_type_hints(cls)
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        *group, key = settings[name].path
        (nested.setdefault(group[0], {}) if group else own)[key] = value
    return cls(**own, **{name: kinds[name](**inner) for name, inner in nested.items()})


def convert_fields(config: Any) -> None:
    """Convert the fields of a frozen dataclass to their types, in place; raise InputError for other types."""
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        if not dataclasses.is_dataclass(kind):
            object.__setattr__(config, name, convert(getattr(config, name), kind, name))


def convert(value: Any, kind: Any, name: str) -> Any:
    """Return a value converted to a type; text is parsed, and NumPy scalars become Python numbers.

    Raises:
        InputError: the value of setting ``name`` has another type, or is no value of a ``Literal``.
    """
    import msgspec  # here, because every start of the command loads this module

    plain = _plain(value)
    if isinstance(plain, str):
        plain = _from_text(plain.strip(), kind, name)
    elif kind is str and type(plain) is int:
        plain = str(plain)
    try:
        if kind == Count and type(plain) is int and plain < 1:
            raise msgspec.ValidationError("a count is at least 1")
        converted = msgspec.convert(plain, kind)
        for limits in getattr(kind, "__metadata__", ()):
            if not limits.low <= converted < limits.end:
                raise msgspec.ValidationError("out of range")
        return converted
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # lone surrogates of the command line
        choices = [] if kind == Count else choices_of(kind)
        remedy = nearest(value, choices) if choices and isinstance(value, str) else "Leave it out for the default"
        raise InputError(f"{name} must be {choices_text(kind)}, got {value!r}", remedy) from error


def _plain(value: Any) -> Any:
    """Return a value without NumPy types."""
    if type(value).__module__ == "numpy":
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _from_text(text: str, kind: Any, name: str) -> Any:
    """Return a text converted to the number or list of a type, or the text."""
    allowed = {kind, *get_args(kind)}
    if kind == Count:
        with contextlib.suppress(InputError):
            return "all" if text.casefold() == "all" else parse_count(text, name)
        return text
    if int in allowed and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if float in allowed:
        with contextlib.suppress(ValueError):
            return float(text)
    if bool in allowed and text in ("true", "false"):
        return text == "true"
    if get_origin(kind) is tuple:
        return [_from_text(item.strip(), get_args(kind)[0], name) for item in text.split(",") if item.strip()]
    return text


def choices_of(kind: Any) -> list[str]:
    """Return the values of a ``Literal``, which may be optional."""
    literal = next((each for each in (kind, *get_args(kind)) if get_origin(each) is Literal), None)
    return [str(choice) for choice in get_args(literal) if choice != ""]


def choices_text(kind: Any) -> str:
    """Return the choices of a type, or else the type, in words."""
    if get_origin(kind) is Annotated:
        inner, limits = get_args(kind)
        end = f" and less than {limits.end:g}" if limits.end < math.inf else ""
        return f"{choices_text(inner)} from {limits.low:g}{end}"
    if kind != Count and (choices := choices_of(kind)):
        return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]
    if get_origin(kind) is Mapping:
        return "a table"
    if kind == Count:
        return "a whole number of at least 1, such as 200k, or all"
    if get_origin(kind) is tuple:
        return f"a list of {'texts' if str in get_args(kind) else 'numbers'}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return next((name for type_, name in names.items() if type_ in (kind, *get_args(kind))), str(kind))


def read(known: Mapping[str, Setting], values: Mapping[str, Any], suggestions: Sequence[str] = ()) -> dict[str, Any]:
    """Return the converted values of settings by name, without those that are None.

    Messages may also suggest names of ``suggestions``.

    Raises:
        InputError: a setting is unknown or its value is invalid.
    """
    for name in values:
        require_known(name, [*known, *suggestions], f"there is no setting {name!r}")
    converted = {name: known[name].read(value) for name, value in values.items() if value is not None}
    return {name: converted[name] for name in known if name in converted}
