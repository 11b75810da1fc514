"""Settings: fields of frozen dataclasses that also say how users write them, and the one place that converts values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pipeline.core.config import format_count, parse_count
from pipeline.core.errors import InputError, nearest

Count = int | Literal["all"]


@dataclass(frozen=True)
class Setting:
    """A setting, as a field of a configuration declares it (:func:`setting`).

    Attributes:
        name: as Python's keyword and recipes have it.
        path: the field, after those of the dataclasses that it lies in.
        kind: type of one value.
        help: what it means; allowed values first.
        default: of dataset-level pools, where it is left out.
        by_field: likewise of field-level pools.
        option: as the command line has it, without dashes.
        several: whether several values may be given, a pool for each; such pools stand in one table.
        up_to: whether a number means everything from 1 to it, as for samples; such pools stand in one table.
        rule: whether it is a rule of the protocol, which captions state where it is not the usual one.
        every: what ``all`` stands for.
        parse: reads one value as typed; None: by its type.
        left_out: what is used where it is left out, in words; empty for the default.
        flag: what its option means, where that sets it to False.
    """

    name: str
    path: tuple[str, ...]
    kind: Any
    help: str
    default: Any
    by_field: Any
    option: str
    several: bool = False
    up_to: bool = False
    rule: bool = False
    every: tuple[Any, ...] = ()
    parse: Callable[[str], Any] | None = None
    left_out: str = ""
    flag: str = ""

    @property
    def separates(self) -> bool:
        """Whether pools that differ in it stand in different tables."""
        return not (self.several or self.up_to)

    @property
    def usual(self) -> str:
        """The default, as users write it."""
        return self.left_out or "; by field ".join(dict.fromkeys(map(self.typed, (self.default, self.by_field))))

    def read(self, value: Any) -> Any:
        """Return a value as users write it, as text or in Python, as the configuration has it.

        Raises:
            InputError: it is of another type, or unknown.
        """
        if self.kind == tuple[Path, ...]:
            return tuple(map(Path, [value] if isinstance(value, str | Path) else value))
        if not self.several:
            return self._one(value)
        if self.every and isinstance(value, str) and value.strip().casefold() == "all":
            return self.every
        values = value.split(",") if isinstance(value, str) else _plain(value)
        values = values if isinstance(values, list | tuple) else [values]
        return tuple(dict.fromkeys(self._one(item) for item in values if item is None or str(item).strip()))

    def _one(self, value: Any) -> Any:
        value = convert(value, self.kind, f"--{self.option}")
        return self.parse(value) if self.parse and isinstance(value, str) else value

    def typed(self, value: Any) -> str:
        """Return a value as users write it: 200000 as ``200k``."""
        values = value if isinstance(value, tuple) else (value,)
        return ",".join(format_count(v) if self.kind == Count and type(v) is int else str(v) for v in values)

    def wants(self, value: Any, wanted: Any) -> bool:
        """Whether a value of a configuration is among those that a user asked for."""
        if self.several:
            return value in wanted
        return value is None or bool(value <= wanted) if self.up_to else bool(value == wanted)


def setting(value: Any, about: str, /, **more: Any) -> Any:
    """Return a field that is a setting: its default, its help, and further attributes of :class:`Setting`.

    With ``omit_default``, it is no part of the identity while it has its default.
    """
    omitted = {"omit_default": True} if more.pop("omit_default", False) else {}
    return dataclasses.field(default=value, metadata={"setting": {"help": about, **more}, **omitted})


def settings_of(cls: type[Any], path: tuple[str, ...] = ()) -> dict[str, Setting]:
    """Return the settings of a configuration and of the dataclasses in it, by name, in the order of the fields."""
    settings: dict[str, Setting] = {}
    kinds = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind, place = kinds[field.name], (*path, field.name)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            settings |= settings_of(kind, place)
        elif more := field.metadata.get("setting"):
            name = more.get("name", field.name)
            values = {"kind": kind, "default": field.default, "option": name.replace("_", "-"), **more}
            settings[name] = Setting(**{"by_field": values["default"], **values, "name": name, "path": place})
    return settings


def checked(config: Any) -> None:
    """Convert every field of a frozen dataclass to its type, in place. InputError if a value is of another type."""
    for name, kind in get_type_hints(type(config)).items():
        if not dataclasses.is_dataclass(kind):
            object.__setattr__(config, name, convert(getattr(config, name), kind, name))


def convert(value: Any, kind: Any, name: str) -> Any:
    """Return a value converted to a type; text is parsed, and NumPy scalars become Python numbers.

    InputError, which calls the setting ``name``, if it is of another type, or none of the values of a ``Literal``.
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
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        choices = _choices(kind)
        remedy = nearest(value, choices) if choices and isinstance(value, str) else "Leave it out for the default"
        raise InputError(f"{name} must be {_described(kind)}, got {value!r}", remedy) from error


def _plain(value: Any) -> Any:
    """Return a value without types of NumPy."""
    if type(value).__module__ == "numpy":
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _from_text(text: str, kind: Any, name: str) -> Any:
    """Return what a text means where a number or a list is wanted."""
    allowed = {kind, *get_args(kind)}
    if kind == Count:
        return "all" if text.casefold() == "all" else parse_count(text, name)
    if int in allowed and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if get_origin(kind) is tuple:
        return [_from_text(part.strip(), get_args(kind)[0], name) for part in text.split(",") if part.strip()]
    return text


def _choices(kind: Any) -> list[str]:
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _described(kind: Any) -> str:
    if choices := _choices(kind):
        return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]
    if get_origin(kind) is Mapping:
        return "a table"
    if kind == Count:
        return "a number from 1, such as 200k, or all"
    if get_origin(kind) is tuple:
        return f"a list of {'texts' if str in get_args(kind) else 'numbers'}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return next((name for known, name in names.items() if known in (kind, *get_args(kind))), str(kind))


def read(known: Mapping[str, Setting], given: Mapping[str, Any], others: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings that users give, by name, converted; None counts as not given.

    ``others`` are further names that a message may suggest.

    Raises:
        InputError: a setting is unknown or its value is invalid.
    """
    for name in given:
        if name not in known:
            raise InputError(f"there is no setting {name!r}", nearest(name, [*known, *others]))
    values = {name: known[name].read(value) for name, value in given.items() if value is not None}
    return {name: values[name] for name in known if name in values}
