"""The results of a card in a model card: only the block ``model-index`` of its front matter is replaced, as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from pipeline.core import files
from pipeline.core.errors import InputError

CARD = "README.md"
INDEX = "model-index"
_MAPPING = "tag:yaml.org,2002:map"

_FRONT_MATTER = re.compile(r"\A(\ufeff?\s*?)(---[ \t]*\r?\n)(.*?)(^---[ \t]*\r?$)", re.DOTALL | re.MULTILINE)
_WEIGHTS = (".safetensors", ".bin", ".h5", ".msgpack", ".onnx", ".gguf")
_NO_WEIGHTS = "training_args.bin"
_DEEPEST = 2
"""Parts of the longest path of weights: a folder of a module, and the file."""
_MEND = "Mend the front matter of that file"


def index_of(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Return the block ``model-index`` of some results, as YAML."""
    return _as_yaml(yaml.compose(yaml.safe_dump({INDEX: [{"name": name, "results": list(results)}]}, sort_keys=False)))


def replaced(text: str, card: str, where: str) -> str:
    """Return a model card with the results of a card in place of those of an earlier push.

    Other results and other front matter stay as they are written; in the block itself comments go.

    Raises:
        InputError: the front matter is not YAML, or its ``model-index`` is not a list of named results.
    """
    try:
        return _replaced(text, card, where)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the front matter of {where} must be YAML ({reason})", _MEND) from error


def _replaced(text: str, card: str, where: str) -> str:
    matter, own = _FRONT_MATTER.match(text), _FRONT_MATTER.match(card)
    ours = _index(own.group(3), "the card") if own else None
    if own is None or ours is None:
        raise TypeError("a card must have results")
    if matter is None and re.match(r"\ufeff?\s*---[ \t]*\r?$", text, re.MULTILINE):
        raise InputError(f"the front matter of {where} must end with ---, got none", _MEND)
    mark, opening, body, _ = matter.groups() if matter else ("\ufeff" if text[:1] == "\ufeff" else "", "", "", "")
    newline = "\r\n" if "\r\n" in (opening or text) else "\n"
    old, mine = _index(body, where), ours[1].value[0]
    start, end = (len(body), len(body)) if old is None else (old[0].start_mark.index, _line_end(body, old[1]))
    entries = [] if old is None else [entry for entry in old[1].value if _without(entry, mine)]
    for entry in entries:  # one of the same name has other results, which stay
        if _name(entry) == _name(mine):
            _results(entry).value += _results(mine).value
            break
    else:
        entries.append(mine)
    block = _as_yaml(yaml.MappingNode(_MAPPING, [(ours[0], yaml.SequenceNode(ours[1].tag, entries))]))
    root = yaml.compose(body)
    indent = " " * (root.start_mark.column if root else 0)
    lines = textwrap.indent(block, indent).removeprefix("" if old is None else indent)
    new_body = body[:start] + lines.replace("\n", newline) + body[end:]
    _index(new_body, where)
    if matter is None:
        return f"{mark}---{newline}{new_body}---{newline}{text[len(mark) :]}"
    return text[: matter.start(3)] + new_body + text[matter.end(3) :]


def _index(body: str, where: str) -> tuple[Any, Any] | None:
    """Return the nodes of key and value of ``model-index``; None without one."""
    root = yaml.compose(body)
    if root is None:
        return None
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise InputError(f"the front matter of {where} must be keys and values, one a line", _MEND)
    pairs = [(key, value) for key, value in root.value if key.value == INDEX]
    if len(pairs) > 1:
        raise InputError(f"the front matter of {where} must have {INDEX} once, got {len(pairs)}", _MEND)
    for key, value in pairs:
        if value.tag.endswith(":null"):
            return key, yaml.SequenceNode(value.tag, [], value.start_mark, value.end_mark, flow_style=True)
        if not isinstance(value, yaml.SequenceNode) or any(_results(entry) is None for entry in value.value):
            raise InputError(f"{INDEX} of {where} must be a list of names and results", _MEND)
    return pairs[0] if pairs else None


def _results(entry: Any) -> Any:
    """Return the node of the results of an entry of ``model-index``; None if it is no such entry."""
    pairs = entry.value if isinstance(entry, yaml.MappingNode) else []
    results = next((value for key, value in pairs if key.value == "results"), None)
    return results if isinstance(results, yaml.SequenceNode) else None


def _name(entry: Any) -> str | None:
    return next((value.value for key, value in entry.value if key.value == "name"), None)


def _without(entry: Any, ours: Any) -> bool:
    """Remove from an entry the results that ours replace; return whether it has others, or had none."""
    results, replaced_results = _results(entry), [_claim(result) for result in _results(ours).value]
    kept = [result for result in results.value if _claim(result) not in replaced_results]
    emptied = len(kept) < len(results.value) and not kept
    results.value = kept
    return not emptied


def _claim(result: Any) -> Any:
    """Return what a result says, without the values of its metrics."""
    data = yaml.load(yaml.serialize(result), yaml.BaseLoader)  # noqa: S506 (texts alone)
    if not isinstance(data, dict) or not isinstance(data.get("metrics"), list):
        return data
    metrics = [
        {key: value for key, value in metric.items() if key != "value"} if isinstance(metric, dict) else metric
        for metric in data["metrics"]
    ]
    return data | {"metrics": metrics}


def _as_yaml(node: Any) -> str:
    for part in _walk(node):
        if isinstance(part, yaml.CollectionNode):
            part.flow_style = False
    return str(yaml.serialize(node, allow_unicode=True, width=float("inf")))


def _walk(node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for part in item if isinstance(item, tuple) else (item,):
                yield from _walk(part)


def _line_end(body: str, node: Any) -> int:
    """Return the end of the last line of a node, without the comments that follow it."""
    scalars = [part.end_mark.index for part in _walk(node) if not isinstance(part, yaml.CollectionNode)]
    last = int(max([*scalars, node.end_mark.index if node.flow_style else node.start_mark.index]))
    if body[:last].endswith("\n"):  # a block scalar ends after its line
        return last
    newline = body.find("\n", last)
    return len(body) if newline < 0 else newline + 1


def push(card: Path, target: str, encoder: Sequence[Path]) -> str:
    """Write the results of a card into the model card of a folder or hub repository, and return its path or URL.

    Args:
        card: the card.
        target: a folder, or the id of a repository.
        encoder: folders with the weights of the encoder; empty if it has none on this machine.

    Raises:
        InputError: the model card cannot be read or written, or lies beside the weights of another encoder.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    folder = Path(target).expanduser()
    try:
        if folder.is_dir():
            _check_weights(target, _weights([folder]), encoder)
            file = files.given(files.resolved(folder / CARD))
            text = _read(file, folder / CARD) if file.exists() else ""
            new_text = replaced(text, _read(card, card), str(folder / CARD)) if text else _read(card, card)
            with files.replacing(file) as temporary:
                temporary.write_bytes(new_text.encode())
            return str(folder / CARD)
        _check_weights(target, _weights_of_hub(target), encoder)
        text = replaced(_read(Path(hf_hub_download(target, CARD)), target), _read(card, card), target)
        return str(HfApi().upload_file(path_or_fileobj=text.encode(), path_in_repo=CARD, repo_id=target))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        remedy = "Give a folder that exists, or log in: hf auth login"
        raise InputError(f"the model card of {target} cannot be written ({error})", remedy) from error


def _read(file: Path, where: Path | str) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} must be UTF-8 ({error})", "Save it as UTF-8") from error


def _check_weights(target: str, theirs: Mapping[str, Path | str], encoder: Sequence[Path]) -> None:
    """Refuse a target whose weights are not those of the encoder: the files of each format that both have are equal.

    ``theirs`` are files, or their digests, by relative path.
    """
    own = _weights(encoder)
    formats = {PurePath(name).suffix for name in theirs} & {PurePath(name).suffix for name in own}
    digests = [
        {
            name: found if isinstance(found, str) else files.sha256(found)
            for name, found in weights.items()
            if PurePath(name).suffix in formats
        }
        for weights in (theirs, own)
    ]
    if theirs and (not formats or digests[0] != digests[1]):
        got = "others" if own else "some, and those of the encoder are not there to compare"
        raise InputError(
            f"{target} must hold the weights of the encoder of the card, got {got}",
            f"Write the card of that model: mdcr eval --model NAME={target}, then mdcr card NAME --push {target}",
        )


def _weights(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of weights in folders and the folders of their modules, by relative path."""
    paths = ((folder, path) for folder in folders for form in ("*", "*/*") for path in folder.glob(form))
    return {str(path.relative_to(folder)): path for folder, path in paths if _is_weights(path)}


def _weights_of_hub(repository: str) -> dict[str, str]:
    """Return the SHA-256 of the files of weights in a repository of the hub and the folders of its modules."""
    from huggingface_hub import HfApi

    listed = HfApi().model_info(repository, files_metadata=True).siblings or []
    paths = {PurePath(file.rfilename): file for file in listed}
    return {
        str(path): file.lfs.sha256 if file.lfs else "no large file"
        for path, file in paths.items()
        if len(path.parts) <= _DEEPEST and _is_weights(path)
    }


def _is_weights(path: PurePath) -> bool:
    return path.suffix in _WEIGHTS and path.name != _NO_WEIGHTS
