"""The door of the Python interface: arguments are checked against their annotations before anything runs.

A value passes if it fits the annotation; no text of a name is empty, no list of them, and no number is NaN. Functions
read what is text on the command line themselves (:mod:`pipeline.core.settings`).

Beartype 0.23 reads one random item of a list, and takes a text for a list of texts, True for 1 and NaN for a number.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pipeline.core.errors import InputError, nearest
from pipeline.core.settings import choices_text

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def may_be_empty(_value: Any, _name: str) -> None:
    """In ``Annotated``: an empty text or list is allowed."""


def filled(value: Any, name: str) -> None:
    """In ``Annotated``: raise InputError for a text or list that is empty."""
    if _is_empty(value) or (isinstance(value, str) and not value.strip(" ,")):
        raise InputError(f"{name} must have a value, got {value!r}", "Leave it out for the default")


def checked(function: Function) -> Function:
    """Return a function whose arguments are checked; one that has its default is not.

    On a call, InputError is raised for an argument that is unknown, missing, or does not fit its annotation.
    """
    signature = inspect.signature(function)
    hints = functools.cache(lambda: _hints(function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in signature.parameters]
            remedy = nearest(unknown[0], signature.parameters) if unknown else f"It takes {signature}"
            raise InputError(f"{function.__name__}: {error}", remedy) from None
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            several = value if parameter.kind is parameter.VAR_KEYWORD else {name: value}
            for each, item in several.items():
                if item is not parameter.default:
                    require(item, hints().get(name, Any), each)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def checked_methods(cls: Class) -> Class:
    """Check the arguments of the public methods of a class (:func:`checked`)."""
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(cls, name, checked(value))
    return cls


def require(value: Any, hint: Any, name: str) -> None:
    """Raise InputError if a value does not fit an annotation, or one of its checks: functions of value and name."""
    if not _fits(value, hint):
        shown = repr(value)
        raise InputError(
            f"{name} must be {choices_text(hint)}, got {shown[:60]}{'...' * (len(shown) > 60)}",
            "Its docstring (help) describes every argument",
        )
    for check in getattr(hint, "__metadata__", ()):
        check(value, name)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    arguments = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=arguments), function.__globals__, include_extras=True)


_PLAIN: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str) and bool(value.strip()),
    bool: lambda value: type(value).__name__ in ("bool", "bool_"),
    int: lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool),
    float: lambda value: not isinstance(value, bool) and isinstance(value, numbers.Real) and value == value,
    NoneType: lambda value: value is None,
}
"""Types that take fewer or more values than their instances: no empty text, no NaN; numbers of NumPy."""


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if hint in _PLAIN:
        return _PLAIN[hint](value)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Annotated:
        return (may_be_empty in inner and _is_empty(value)) or _fits(value, inner[0])
    if origin is Literal:
        return any(value is each or (type(value) is type(each) and value == each) for each in inner)
    if not isinstance(kind, type):
        return callable(value)
    if not isinstance(value, kind) or not inner:
        return isinstance(value, kind)
    if isinstance(value, Mapping):
        pairs = value.items()
        return issubclass(kind, Mapping) and all(_fits(key, inner[0]) and _fits(item, inner[1]) for key, item in pairs)
    if isinstance(value, str | bytes):
        return False
    # An iterator is not read, so its items are not checked.
    return not isinstance(value, Sequence) or (bool(value) and all(_fits(item, inner[0]) for item in value))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | tuple) and not value
