"""The door of the Python interface: arguments are checked against their annotations before anything runs.

A value passes if it fits the annotation; no text of a name is empty, no list of them, and no number is NaN. Functions
read what is text on the command line themselves (:mod:`pipeline.core.settings`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pipeline.core.errors import InputError, nearest

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


class Check:
    """A further check of a value, in ``Annotated``: a function of value and name that raises InputError."""

    def __init__(self, check: Callable[[Any, str], None]) -> None:
        self.check = check


MAY_BE_EMPTY = Check(lambda _value, _name: None)
"""In ``Annotated``: an empty text or list is allowed."""


def _require_positive(value: int, name: str) -> None:
    if value < 1:
        raise InputError(f"{name} must be 1 or more, got {value}", "Leave it out for the default")


POSITIVE = Check(_require_positive)
"""In ``Annotated``: a number is 1 or more."""


def _require_filled(value: Any, name: str) -> None:
    if _is_empty(value) or (isinstance(value, str) and not value.strip(" ,")):
        raise InputError(f"{name} must have a value, got {value!r}", "Leave it out for the default")


FILLED = Check(_require_filled)
"""In ``Annotated``: no text or list is empty."""


def checked(function: Function, modules: Mapping[str, str] | None = None) -> Function:
    """Return a function whose arguments are checked.

    Args:
        function: a public function; an argument that has its default is not checked.
        modules: modules of names that its annotations use and its module does not import at run time.

    Raises:
        InputError: on calling it: an argument is unknown, missing, or does not fit its annotation.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"{function.__name__}: {error}", _names(signature, kwargs)) from None
        hints = _hints(function, modules)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            several = value if parameter.kind is parameter.VAR_KEYWORD else {name: value}
            for each, item in several.items():
                if item is not parameter.default:
                    require(item, hints[name], each)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def checked_methods(**modules: str) -> Callable[[Class], Class]:
    """Return a decorator of a class that checks the arguments of its public methods (:func:`checked`)."""

    def decorate(cls: Class) -> Class:
        for name, value in list(vars(cls).items()):
            if inspect.isfunction(value) and not name.startswith("_"):
                setattr(cls, name, checked(value, modules))
        return cls

    return decorate


def require(value: Any, hint: Any, name: str) -> None:
    """Raise InputError if a value does not fit an annotation, or one of its further checks."""
    if not _fits(value, hint):
        shown = repr(value)
        raise InputError(
            f"{name} must be {_described(hint)}, got {shown[:60]}{'...' * (len(shown) > 60)}",
            "docs/python.md describes every argument",
        )
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Check):
            each.check(value, name)


def _names(signature: inspect.Signature, given: Mapping[str, Any]) -> str:
    unknown = [name for name in given if name not in signature.parameters]
    return nearest(unknown[0], list(signature.parameters)) if unknown else f"It takes {signature}"


@functools.cache
def _hints_of(function: Callable[..., Any], modules: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    space = {name: getattr(importlib.import_module(module), name) for name, module in modules}
    space |= {"pl": importlib.import_module("polars")}
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        text = parameter.annotation
        found[name] = Any if text is parameter.empty else eval(text, function.__globals__, space)  # noqa: S307
    return found


def _hints(function: Callable[..., Any], modules: Mapping[str, str] | None) -> dict[str, Any]:
    return _hints_of(function, tuple((modules or {}).items()))


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Annotated:
        return (MAY_BE_EMPTY in inner and _is_empty(value)) or _fits(value, inner[0])
    if origin is Literal:
        return any(value is each or (type(value) is type(each) and value == each) for each in inner)
    if hint in (None, NoneType):
        return value is None
    if hint is str:
        return isinstance(value, str) and bool(value.strip())
    if hint is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return not isinstance(value, bool) and isinstance(value, numbers.Real) and not math.isnan(float(value))
    if hint is Path:
        return isinstance(value, Path)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        return _fits_iterable(value, origin, inner)
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else callable(value)


def _fits_iterable(value: Any, origin: type, inner: tuple[Any, ...]) -> bool:
    """Return whether a value is a sequence of items that fit; an iterator is not read, so its items are not checked."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, origin):
        return False
    return not isinstance(value, Sequence) or (bool(value) and all(_fits(item, inner[0]) for item in value))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | tuple) and not value


_WORDS = {
    str: "text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    NoneType: "None",
}


def _described(hint: Any) -> str:
    """Return an annotation in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_described, inner)))
    if origin is Annotated:
        return _described(inner[0])
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {_described(inner[0])} to {_described(inner[1])}"
    if origin is not None and inner and isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list of {_described(inner[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))
