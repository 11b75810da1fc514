"""Model folders: in the local Hugging Face cache, downloaded into it, or anywhere on disk. No torch."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.errors import InputError, StageError
from pipeline.core.install import optional
from pipeline.encode import shape

if TYPE_CHECKING:
    from pipeline.core.artifact import Artifact

_SMALL = ("*.json", "*.txt", "*.model")
"""Files of configuration and tokenizer: a model without its weights."""

_TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")

_absent: set[str] | None = None
"""Hub ids that a plan would download; None outside of :func:`planning`."""


class Layout(NamedTuple):
    """The files of a model, or of an adapter.

    Attributes:
        config: name of the configuration file.
        weights: names of weight files, by preference; ``NAME.index.json`` lists the files of sharded weights.
    """

    config: str
    weights: tuple[str, ...]


MODEL = Layout("config.json", ("model.safetensors", "pytorch_model.bin"))
OAGBERT = Layout("bert_config.json", MODEL.weights[1:])
"""A folder of cogdl; its ``vocab.txt`` and ``version`` are extra files."""
ADAPTER = Layout("adapter_config.json", ("adapter.safetensors", "pytorch_adapter.bin"))
_PEFT_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""Names of the weights of a PEFT adapter, which lie beside a configuration :data:`ADAPTER`."""
FUSION = Layout(
    "adapter_fusion_config.json",
    ("model_adapter_fusion.safetensors", "pytorch_model_adapter_fusion.bin"),
)


@dataclass(frozen=True)
class Checkpoint:
    """A model or adapter on disk; its weights may not be downloaded yet.

    Attributes:
        hub: hub id, empty for a plain folder.
        revision: commit, or digest of a plain folder's content.
    """

    hub: str
    revision: str
    folder: Path
    layout: Layout = MODEL

    def ready(self) -> Path:
        """Return the folder, after downloading missing weights; raise StageError if the hub cannot be reached."""
        later = [path for kind, path in shape.modules(self.folder)[1:] if kind not in shape.WITHOUT_WEIGHTS]
        lacking = [f"{path.name}/*" for path in later if not list(path.glob("*model.*"))]
        for name in self.layout.weights:
            if self.hub and (lacking or not weights(self.folder, self.layout)):
                home = "" if (first := _home(self.folder, self.layout)) == self.folder else f"{first.name}/"
                patterns = [f"{home}{name}*", "{}{}-*{}".format(home, *os.path.splitext(name)), *lacking]
                _download(self.hub, self.revision, patterns)
                lacking = []
        if not weights(self.folder, self.layout):
            raise _unreachable(self.hub, self.revision)
        return self.folder


def cached(hub: str, revision: str, layout: Layout = MODEL) -> Checkpoint | None:
    """Return the model or adapter at a branch, tag or commit in the local cache, or None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError):
        return None
    with shape.reading(folder):
        static = layout is MODEL and shape.first_module(folder)[0] == shape.STATIC  # it has no configuration
        described = static or (_home(folder, layout) / layout.config).is_file()
        complete = re.fullmatch(r"[0-9a-f]{40}", folder.name) and described and _has_tokenizer(folder, layout)
    return Checkpoint(hub, folder.name, folder, layout) if complete else None


@contextlib.contextmanager
def planning() -> Iterator[set[str]]:
    """Download nothing inside this context; yield the set of hub ids that would be downloaded.

    An absent model has the requested revision and no files, so the identities of its vectors are not known yet.
    """
    global _absent
    _absent = set()
    try:
        yield _absent
    finally:
        _absent = None


def absent() -> set[str]:
    """Return the hub ids that the plan would download."""
    return _absent or set()


def find(hub: str, revision: str, layout: Layout = MODEL) -> Checkpoint:
    """Return the model or adapter at a branch, tag or commit; download its configuration if it is not in the cache.

    Raises:
        InputError: the hub has no such model.
        StageError: it is not in the cache, and the hub cannot be reached.
    """
    checkpoint = cached(hub, revision, layout)
    if checkpoint is None and _absent is not None:
        _absent.add(hub)
        return Checkpoint(hub, revision, Path(os.devnull, hub.replace("/", "--")), layout)
    if checkpoint is None:
        folder = _download(hub, revision, list(_SMALL))
        checkpoint = Checkpoint(hub, folder.name, folder, layout)
    _check(checkpoint.folder, layout)
    if layout is MODEL and _peft(checkpoint.folder):
        raise InputError(
            f"{hub} is a PEFT adapter, whose base the hub may change",
            f"Download it: hf download {hub} --local-dir NAME; then write ./NAME",
        )
    return checkpoint


def packaged(name: str) -> Path | None:
    """Return the folder ``PACKAGE/FOLDER`` inside an installed package; None if it is not installed."""
    package, _, folder = name.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / folder


def local(folder: Path, layout: Layout = MODEL, extra: Iterable[Path] = ()) -> Checkpoint:
    """Check the model or adapter in a folder and return it; its revision is a digest of its files and of ``extra``.

    Raises:
        InputError: the folder holds no such model.
        CorruptError: it lies in an artifact of ``mdcr train`` and differs from the manifest.
    """
    from pipeline.core import files  # here, because it brings pyarrow

    folder = files.resolved(folder.expanduser())
    if trained := trained_in(folder):
        trained.verify()
    _check(folder, layout)
    if not weights(folder, layout):
        absent = " and no ".join(_weight_names(folder, layout))
        raise InputError(
            f"{folder} holds no weights (no {absent}, whole or in all its files)",
            "Save or download it there again",
        )
    if not (_has_tokenizer(folder, layout) or _peft(folder)):  # transformers 5 would make an empty one
        raise InputError(f"{folder} holds no tokenizer (none of {', '.join(_TOKENIZER)})", "Save it there too")
    stamps = tuple((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in (*_identity_files(folder, layout), *extra))
    content = _content_digest(folder, stamps)
    if layout is MODEL and _peft(folder):
        content = hashlib.sha256(f"{content}\0{peft_base(folder).revision}".encode()).hexdigest()
    return Checkpoint("", f"sha256:{content}", folder, layout)


def _peft(folder: Path) -> Mapping[str, Any]:
    """Return the configuration of the PEFT adapter in a model folder; empty if it holds none."""
    config: Mapping[str, Any] = shape.read(_home(folder, MODEL) / ADAPTER.config)
    return config if config.get("peft_type") else {}


def peft_base(folder: Path) -> Checkpoint:
    """Return the model that the PEFT adapter in a folder changes.

    Raises:
        InputError: peft is not installed, or the base is not named or not there.
        StageError: it is not in the cache, and the hub cannot be reached.
    """
    optional("peft", f"the adapter in {folder}", "train")
    base = _peft(folder).get("base_model_name_or_path") or ""
    named, home = Path(base).expanduser(), _home(folder, MODEL)
    if (home / MODEL.config).is_file() and (beside := [n for n in MODEL.weights if (home / n).is_file()]):
        raise InputError(f"{folder} holds a PEFT adapter beside {beside[0]}", "Move one of them to another folder")
    if not base or (named.is_dir() and _peft(named)):
        raise InputError(
            f"{folder} holds a PEFT adapter whose base must be a whole model, got {base or 'none'}",
            "Merge it into its base by merge_and_unload of peft, and save that in a separate folder",
        )
    return local(named) if named.is_dir() else find(base, _peft(folder).get("revision") or "main")


def configuration(folder: Path) -> Mapping[str, Any]:
    """Return ``config.json`` of the folder of a transformer; of the base, if it holds a PEFT adapter."""
    described = _home(peft_base(folder).folder, MODEL) if _peft(folder) else folder
    config: Mapping[str, Any] = shape.read(described / MODEL.config)
    return config


def trained_in(folder: Path) -> Artifact | None:
    """Return the artifact of ``mdcr train`` that a folder lies in: ``NAME-IDENTITY/NAME`` with a manifest."""
    from pipeline.core.artifact import Artifact
    from pipeline.core.manifest import MANIFEST

    for inner, outer in itertools.pairwise((folder, *folder.parents)):
        if re.fullmatch(f"{re.escape(inner.name)}-[0-9a-f]{{12}}", outer.name) and (outer / MANIFEST).is_file():
            return Artifact.open(outer)
    return None


def is_folder(text: str) -> bool:
    """Return whether a text is the path of a folder; a path has a slash: ``./mine``."""
    return "/" in text and Path(text).expanduser().is_dir()


def local_adapter(folder: Path) -> Checkpoint:
    """Check the adapter in a folder, or the fusion and its adapters, and return it."""
    if not (folder / FUSION.config).is_file():
        return local(folder, ADAPTER)
    return local(folder, FUSION, [path for part in fused_adapters(folder) for path in _identity_files(part, ADAPTER)])


def fused_adapters(folder: Path) -> list[Path]:
    """Return the folders of a fusion's adapters, in ``../adapters`` by name; raise InputError if one is missing."""
    config = shape.read(folder / FUSION.config)
    names, adapters = config.get("adapter_names") or config.get("name", ""), folder.resolve().parent / "adapters"
    given = names.split(",") if isinstance(names, str) else names
    folders = [adapters / shape.inside(name, folder / FUSION.config) for name in given]
    if missing := [path for path in folders if not (path / ADAPTER.config).is_file()]:
        raise InputError(f"the fusion in {folder} must have the adapter {missing[0]}, got none", "Copy it there")
    return folders


def _weight_names(folder: Path, layout: Layout) -> tuple[str, ...]:
    return _PEFT_WEIGHTS if layout is MODEL and _peft(folder) else layout.weights


def weights(folder: Path, layout: Layout = MODEL) -> list[Path]:
    """Return the weight files of a folder, and their index if they are sharded; empty if one is missing."""
    names = _weight_names(folder, layout)
    folder = _home(folder, layout)
    for name in names:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        listed = shape.read(index).get("weight_map", {}).values() if index.is_file() else ()
        shards = [folder / shape.inside(shard, index) for shard in sorted(set(listed))]
        if shards and all(path.is_file() for path in shards):
            return [index, *shards]
    return []


@contextlib.contextmanager
def identity_files_only(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder with links to the files that identify a model, and to no other file."""
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="mdcr-model-"))
        for path in _identity_files(folder, MODEL):
            link = Path(temporary) / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        if adapter := _peft(folder):
            base = stack.enter_context(identity_files_only(peft_base(folder).ready()))
            home = Path(temporary) / _home(folder, MODEL).relative_to(folder)
            (home / ADAPTER.config).unlink()
            described = {**adapter, "base_model_name_or_path": str(base), "revision": None}
            (home / ADAPTER.config).write_text(json.dumps(described))
            (home / MODEL.config).unlink(missing_ok=True)  # transformers 5 would take the folder for a whole model
            if version("transformers") < "5":  # which reads the tokenizer by it
                (home / MODEL.config).symlink_to((_home(base, MODEL) / MODEL.config).resolve())
        yield Path(temporary)


def _home(folder: Path, layout: Layout) -> Path:
    """Return the folder of configuration, tokenizer and weights."""
    return shape.first_module(folder)[1] if layout is MODEL else folder


def _check(folder: Path, layout: Layout) -> None:
    for name in (layout.config, "tokenizer_config.json"):
        if shape.read(_home(folder, layout) / name).get("auto_map"):
            raise InputError(
                f"{folder} needs code from its folder (auto_map of {name}), which is never run", shape.CODE
            )


def _has_tokenizer(folder: Path, layout: Layout) -> bool:
    return layout is not MODEL or any((_home(folder, layout) / name).is_file() for name in _TOKENIZER)


def _identity_files(folder: Path, layout: Layout) -> Iterator[Path]:
    yield from weights(folder, layout)
    names = (layout.config, *((*_TOKENIZER, *_TOKENIZER_SETTINGS, ADAPTER.config) if layout is MODEL else ()))
    home = _home(folder, layout)
    yield from (home / name for name in names if (home / name).is_file())
    if layout is MODEL:
        yield from shape.module_files(folder)


@functools.cache
def _content_digest(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Return the SHA-256 of the files in ``stamps``: (path, size, modification time), which key the cache."""
    combined = hashlib.sha256()
    for path in sorted(Path(name) for name, _, _ in stamps):
        with path.open("rb") as handle:
            content = hashlib.file_digest(handle, "sha256").hexdigest()
        combined.update(f"{Path(os.path.relpath(path, folder)).as_posix()}\0{content}\n".encode())
    return combined.hexdigest()


def _download(hub: str, revision: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(hub, revision=revision, allow_patterns=patterns))
    except HFValidationError as error:
        raise InputError(f"{hub!r} is not a hub id", "Write it as hf:ORGANISATION/NAME") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise InputError(
            f"the hub has no model {hub!r} at revision {revision!r}, or it is private",
            "Look up its id on https://huggingface.co, or log in with: hf auth login",
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise _unreachable(hub, revision) from error


def _unreachable(hub: str, revision: str) -> StageError:
    from huggingface_hub.constants import HF_HUB_CACHE

    state = "incomplete in" if Path(HF_HUB_CACHE, f"models--{hub.replace('/', '--')}").is_dir() else "absent from"
    command = f"hf download {hub}" + ("" if revision == "main" else f" --revision {revision}")
    return StageError(
        f"the model {hub} is {state} the cache {HF_HUB_CACHE}, and the hub cannot be reached",
        f"Where there is a network run: {command}; then copy its folder below {HF_HUB_CACHE}",
    )
