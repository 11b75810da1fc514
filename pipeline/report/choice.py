"""Choosing published scores: the command line and the Python interface select by the same settings.

The scores of one ranking may be spread over several artifacts, one a list of measures; they are chosen together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID, canonical
from pipeline.core.errors import InputError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import warn
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS, SCORES, find_corpus
from pipeline.corpus.poolconfig import SETTINGS, value_in
from pipeline.measure.measures import parse_measures
from pipeline.report.identity import Chosen

_T = TypeVar("_T")


@dataclass(frozen=True)
class Choice:
    """Which scores; None means any.

    Attributes:
        corpus: name or folder name.
        pools: settings of pools by name (:data:`pipeline.corpus.poolconfig.SETTINGS`); ``samples`` means the samples 1
            to this number, ``exclude`` name and SHA-256 of each list of ids that may not be queries.
        systems: names; ``bm25`` includes ``bm25:tuned``. Rows have this order.
        depth: entries ranked a query.
        precision: compute precision of encoders, such as ``bfloat16``; systems without one are taken as well.
        engine: ``exact``, or an index such as ``ivf``, which includes exact search beside it.
        missing_positives: of scores by a release's own judgements: ``ignore`` or ``count``.
        measures: what must have been scored for at least one row, and is shown in this order.
    """

    corpus: str | None = None
    pools: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[str, ...] | None = None
    depth: int | None = None
    precision: str | None = None
    engine: str | None = None
    missing_positives: str | None = None
    measures: tuple[str, ...] | None = None


def choose(root: Path, choice: Choice | None = None, rankings: Sequence[str] | None = None) -> list[Chosen]:
    """Return what was scored in a workspace and fits a choice.

    Rows have the order of ``choice.systems``; without it BM25 is first, the others follow by name. Of several tunings
    of one system on pools of one field and size, the one published last is taken.

    Where ``rankings`` are given, by identity, only their scores are taken, in that order.
    """
    choice = choice or Choice()
    found = [each for each in scored(root) if rankings is None or each.ranking.id in rankings]
    if not found:
        raise InputError(f"nothing that was scored is in {root / SCORES}", "Run mdcr eval first")
    if choice.corpus is not None:
        corpus = find_corpus(root, choice.corpus).id
        found = [each for each in found if each.pool.manifest.inputs["corpus"] == corpus]
        if not found:
            raise InputError(f"nothing that was scored is of the corpus {choice.corpus!r}", "Run mdcr eval first")
    found = _of_pools(found, choice.pools, lambda each: each.pool)
    wanted = {name: getattr(choice, name) for name in _OF_SYSTEMS if getattr(choice, name) is not None}
    found = _narrowed_by(found, wanted, _system_settings)
    if choice.systems is not None:
        found = _of_systems(found, choice.systems)
    found = _newest_tunings(found)
    if choice.measures is not None:
        require_measures(found, choice.measures)
    if rankings is not None:
        return sorted(found, key=lambda each: rankings.index(each.ranking.id))
    return sorted(found, key=lambda each: _order(each, choice.systems or ()))


def choose_pools(root: Path, choice: Choice) -> list[Artifact]:
    """Return the pools of a workspace that fit a choice; its settings of systems are left out."""
    pools = list(published(root / POOLS))
    if choice.corpus is not None:
        corpus = find_corpus(root, choice.corpus).id
        pools = [pool for pool in pools if pool.manifest.inputs["corpus"] == corpus]
    return _of_pools(pools, choice.pools, lambda pool: pool) if pools else []


def scored(root: Path) -> list[Chosen]:
    """Return everything that was scored in a workspace; scores whose pool or ranking is gone are left out."""
    parents = (POOLS, RANKINGS, CORPORA)
    pools, rankings, corpora = ({each.id: each for each in published(root / parent)} for parent in parents)
    together: dict[tuple[str, str, str], list[Artifact]] = {}
    for artifact in sorted(published(root / SCORES), key=published_at, reverse=True):
        inputs = artifact.manifest.inputs
        lost = [_lost(root / POOLS, inputs["pool"])] if inputs["pool"] not in pools else []
        lost += [_lost(root / RANKINGS, inputs["ranking"])] if inputs["ranking"] not in rankings else []
        if lost:
            warn(f"left out: {artifact.name}, because {' and '.join(lost)}")
        else:
            config = artifact.manifest.config
            key = (inputs["ranking"], config["system"], config.get("missing_positives", "ignore"))
            together.setdefault(key, []).append(artifact)
    found = []
    for (ranking, system, _), scores in together.items():
        pool = pools[scores[0].manifest.inputs["pool"]]
        corpus = corpora.get(pool.manifest.inputs["corpus"])
        found.append(Chosen(system, tuple(scores), rankings[ranking], pool, corpus))
    return [each for each in found if each.measures]


def _lost(parent: Path, identity: str) -> str:
    """Return why an artifact of a folder cannot be read."""
    folder = next(parent.glob(f"[!.]*-{identity[:SHORT_ID]}"), None)
    return f"{folder / MANIFEST} is damaged" if folder else f"{parent} has no artifact {identity[:SHORT_ID]} any more"


def require_measures(chosen: Iterable[Chosen], measures: Iterable[str]) -> None:
    """Check that each measure was scored for at least one ranking that is deep enough for it."""
    chosen = list(chosen)
    known = parse_measures({name for each in chosen for name in each.measures} or {"map"})
    deepest = max(each.depth for each in chosen)
    for measure in parse_measures(list(measures)):
        if measure not in known:
            depth = f" --depth {measure.cutoff}" if (measure.cutoff or 0) > deepest else ""
            listed = ", ".join(str(each) for each in sorted(known, key=lambda each: each.order))
            raise InputError(
                f"{measure} was not scored for any of these rows",
                f"Run mdcr eval --measures {measure}{depth}, or choose from {listed}",
            )


def published_at(artifact: Artifact) -> tuple[int, str]:
    """Return when an artifact was published, as a sort key."""
    return (artifact.path / MANIFEST).stat().st_mtime_ns, artifact.name


def option(name: str) -> str:
    """Return the option of the command line for a setting of a choice."""
    spelled = SETTINGS[name].option if name in SETTINGS else {"systems": "model"}.get(name, name)
    return "--" + spelled.replace("_", "-")


_OF_SYSTEMS = ("depth", "precision", "engine", "missing_positives")


def _of_pools(found: list[_T], wanted: Mapping[str, Any], pool_of: Callable[[_T], Artifact]) -> list[_T]:
    return _narrowed_by(
        found, wanted, lambda each: {name: value_in(pool_of(each).manifest.config, name) for name in wanted}
    )


def _system_settings(each: Chosen) -> Mapping[str, Any]:
    missing = each.settings.get("missing_positives")
    return {"depth": each.depth, "precision": each.precisions, "engine": each.engine, "missing_positives": missing}


def _narrowed_by(
    found: list[_T], wanted: Mapping[str, Any], settings_of: Callable[[_T], Mapping[str, Any]]
) -> list[_T]:
    """Return what has all settings that are wanted.

    Raises:
        InputError: nothing has one of them; or it is a setting of systems that none of them has.
    """
    for name, asked in canonical(wanted).items():
        values = [canonical(settings_of(each).get(name)) for each in found]
        known = {str(one) for value in values for one in _several(value) if one is not None}
        found = [each for each, value in zip(found, values, strict=True) if _fits(name, value, asked)]
        if not found or (name in _OF_SYSTEMS and str(asked) not in known):
            got = ", ".join(map(str, _several(asked)))
            listed = ", ".join(sorted(known, key=_natural)) or "left out"
            one = "one of " if len(known) > 1 else ""
            raise InputError(f"{option(name)} must be {one}{listed} here, got {got}", "Choose one that is there")
    return found


def _fits(name: str, value: Any, wanted: Any) -> bool:
    if name in SETTINGS:
        return SETTINGS[name].wants(value, wanted)
    if name == "precision":
        return all(one == wanted for one in value)
    if name == "engine":
        return value in (None, "exact", wanted)
    return bool(value == wanted)


def _of_systems(chosen: list[Chosen], names: Iterable[str]) -> list[Chosen]:
    for name in names:
        if not any(is_called(each, name) for each in chosen):
            listed = ", ".join(sorted({each.system for each in chosen}))
            raise InputError(
                f"--model must name systems that were scored on these pools, got {name!r}", f"Choose from {listed}"
            )
    return [each for each in chosen if any(is_called(each, name) for name in names)]


def is_called(chosen: Chosen, name: str) -> bool:
    """Whether a user's name means a system: ``bm25`` is also a tuned one, ``lsa`` also ``lsa@ivf``."""
    full = chosen.system
    plain = full.removesuffix(f"@{chosen.engine}").replace("bm25:tuned", "bm25")
    return name in (full, plain, full.removesuffix(f"@{chosen.engine}"))


def _newest_tunings(chosen: list[Chosen]) -> list[Chosen]:
    """Return one tuning of each system for each kind of pool, field and size: the one published last."""
    groups: dict[tuple[Any, ...], list[Chosen]] = {}
    for each in chosen:
        config = each.pool.manifest.config
        groups.setdefault((each.row, each.kind, config.get("field"), config.get("size")), []).append(each)
    found = []
    for group in groups.values():
        last = max(group, key=lambda each: published_at(each.ranking)).variant
        replaced = any(each.variant != last for each in group)
        found += [dataclasses.replace(each, replaced=replaced) for each in group if each.variant == last]
    return found


def _order(each: Chosen, systems: Iterable[str]) -> tuple[Any, ...]:
    asked = [number for number, name in enumerate(systems) if is_called(each, name)]
    config = each.pool.manifest.config
    place = (config.get("field") or "", each.pool.manifest.counts["candidates"], config.get("sample", 1))
    first = not each.system.startswith("bm25")
    return (min(asked, default=0), first, each.system, -each.depth, each.row, *place, each.pool.name)


def _several(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _natural(text: str) -> tuple[bool, float, str]:
    number = re.fullmatch(r"-?\d+", text)
    return number is None, float(text) if number else 0.0, text
