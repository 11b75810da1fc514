"""Settings: fields of frozen dataclasses with their spelling for users, and the conversion of values."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from pipeline.core.config import format_count, parse_count
from pipeline.core.errors import InputError, nearest, require_known

Count = int | Literal["all"]
Positive = Annotated[int, Meta(ge=1)]
_C = TypeVar("_C")


class Several(NamedTuple):
    """In ``Annotated``: several values, in a text with commas; ``every`` are those of ``all``."""

    every: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A setting, declared by a field of a configuration (:func:`setting`): ``name`` in Python and recipes.

    ``path`` is the field, after those of enclosing dataclasses. The type ``kind`` has choices (``Literal``), limits
    (``msgspec.Meta``), a parser of texts, or :class:`Several`. ``help`` begins with allowed values; settings without
    one are left out. Without a default (``MISSING``) it must be given. ``option`` is without dashes, ``metavar`` its
    value in the help, and ``of`` the first words of a command that take it (empty: all). ``goes_with`` is the option
    that must be given too, with its value if only one will do: ``on=slurm``.
    """

    name: str
    path: tuple[str, ...]
    kind: Any
    help: str
    default: Any
    option: str
    metavar: str = ""
    of: tuple[str, ...] = ()
    goes_with: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether its option takes no value."""
        return self.kind is bool or bool in get_args(self.kind)

    @property
    def repeated(self) -> bool:
        """Whether its option may be repeated."""
        return self.kind in (tuple[Path, ...], tuple[str, ...])

    @property
    def several(self) -> bool:
        """Whether it takes several values."""
        return any(isinstance(mark, Several) for mark in _marks_of(self.kind))

    @property
    def usual(self) -> str:
        """The default in the user's spelling; empty without one."""
        return "" if self.default in (None, (), "", MISSING) else self.typed(self.default)

    def about(self) -> str:
        """Return the help of its option, which states the default."""
        stated = self.usual and not self.is_flag and "default" not in self.help
        return f"{self.help} (default: {self.usual})" if stated else self.help

    def read(self, value: Any) -> Any:
        """Return a value of a user, text or a Python value, converted for the configuration.

        Raises:
            InputError: the value is unknown or of another type.
        """
        if self.repeated:
            values = [value] if isinstance(value, str | Path) else value
            if not isinstance(values, list | tuple) or not all(isinstance(each, str | Path) for each in values):
                raise InputError(f"--{self.option} must be a list of text or paths, got {value!r:.60}", "Correct it")
            return tuple(map(get_args(self.kind)[0], values))
        if Path in (self.kind, *get_args(self.kind)):
            return Path(value)
        return convert(value, self.kind, f"--{self.option}")

    def typed(self, value: Any) -> str:
        """Return a value in the user's spelling: 200000 as ``200k``."""
        values, counts = value if isinstance(value, tuple) else (value,), Count in (self.kind, _inner(self.kind))
        return ",".join(format_count(v) if counts and type(v) is int else str(v) for v in values)


_OWN = ("kind", "option", "metavar", "of", "goes_with", "name", "default")


def setting(value: Any, help_text: str, /, **attributes: Any) -> Any:
    """Return a field that is a setting: its default (``MISSING``: none), its help, and attributes of :class:`Setting`.

    Other attributes are marks, which :func:`marked` finds.
    """
    own = {name: attributes.pop(name) for name in _OWN if name in attributes}
    return dataclasses.field(default=value, metadata={"setting": {"help": help_text, **own}, **attributes})


def required(help_text: str, /, **attributes: Any) -> Any:
    """Return a field that is a setting without a default, as :func:`setting`: recipes give all of them."""
    return setting(MISSING, help_text, **attributes)


def _declared(cls: type[Any], path: tuple[str, ...] = ()) -> dict[str, tuple[Setting, Mapping[str, Any]]]:
    """Return the settings of a configuration and its nested dataclasses by name, with the metadata of their fields."""
    found: dict[str, tuple[Setting, Mapping[str, Any]]] = {}
    kinds = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        kind, place = kinds[field.name], (*path, field.name)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            found |= _declared(kind, place)
        elif attributes := field.metadata.get("setting"):
            name = attributes.get("name", field.name)
            values = {"kind": kind, "default": field.default, "option": name.replace("_", "-"), **attributes}
            found[name] = Setting(**{**values, "name": name, "path": place}), field.metadata
    return found


def settings_of(cls: type[Any]) -> dict[str, Setting]:
    """Return the settings of a configuration and its nested dataclasses by name, in field order."""
    return {name: declared for name, (declared, _) in _declared(cls).items()}


def marked(cls: type[Any], mark: str) -> dict[str, Any]:
    """Return what :func:`setting` was given as ``mark``, by the names of the settings that have one."""
    return {name: metadata[mark] for name, (_, metadata) in _declared(cls).items() if mark in metadata}


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
    plain, inner = _plain(value), _inner(kind)
    for mark in _marks_of(kind):
        if isinstance(mark, Several):
            return _several(plain, inner, mark, name)
        if callable(mark) and isinstance(plain, str):
            plain = mark(plain.strip())
    if isinstance(plain, str):
        plain = _from_text(plain.strip(), inner, name)
    elif kind is str and type(plain) is int:
        plain = str(plain)
    try:
        if kind == Count and type(plain) is int and plain < 1:
            raise msgspec.ValidationError("a count is at least 1")
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # lone surrogates of the command line
        choices = [] if kind == Count else choices_of(inner)
        remedy = nearest(value, choices) if choices and isinstance(value, str) else "Leave it out for the default"
        raise InputError(f"{name} must be {choices_text(kind)}, got {value!r}", remedy) from error


def _several(value: Any, kind: Any, mark: Several, name: str) -> tuple[Any, ...]:
    """Return the distinct values of a text with commas, of a list, or of one value."""
    if mark.every and isinstance(value, str) and value.strip().casefold() == "all":
        return mark.every
    values = value.split(",") if isinstance(value, str) else value
    values = values if isinstance(values, list | tuple) else [values]
    items = (item for item in values if item is None or str(item).strip())
    return tuple(dict.fromkeys(convert(item, kind, name) for item in items))


def _marks_of(kind: Any) -> tuple[Any, ...]:
    return kind.__metadata__ if get_origin(kind) is Annotated else ()


def _inner(kind: Any) -> Any:
    """Return a type without its marks; of several values, that of one."""
    if get_origin(kind) is not Annotated:
        return kind
    inner = get_args(kind)[0]
    return get_args(inner)[0] if any(isinstance(mark, Several) for mark in _marks_of(kind)) else inner


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
    if int in allowed:
        with contextlib.suppress(InputError):
            return int(text) if re.fullmatch(r"-?[0-9]+", text) else parse_count(text, name)
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
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = next((mark for mark in _marks_of(kind) if isinstance(mark, Meta)), Meta())
        end = f" to {limits.le:g}" if limits.le is not None else ""
        end += f" and less than {limits.lt:g}" if limits.lt is not None else ""
        return choices_text(_inner(kind)) + ("" if limits.ge is None else f" from {limits.ge:g}") + end
    if kind == Count:
        return "a whole number of at least 1, such as 200k, or all"
    if choices := choices_of(kind):
        return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(choices_text(each) for each in inner if each is not type(None)))
    if origin is Mapping:
        return "a table"
    if inner and isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list of {choices_text(inner[0]).removeprefix('a ')}s"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return words[kind] if kind in words else str(getattr(kind, "__name__", kind))


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
