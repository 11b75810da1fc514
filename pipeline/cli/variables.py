"""The variables of ``make``, from the settings of the commands: what ``make help`` prints below the targets.

It needs no installed package, since ``make help`` runs before ``make setup``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pipeline.cli.arguments import COMMANDS, groups_of
from pipeline.cli.spelling import variable
from pipeline.core.settings import Count, Setting, choices_of


def listing(width: int = 140) -> Iterator[str]:
    """Yield the variables under the titles of their settings, in lines of at most ``width`` characters."""
    texts: dict[str, dict[str, str]] = {}
    for command, declared in COMMANDS.items():
        word = [declared.word] if declared.word and not declared.word.repeated else []
        named = [(command, setting, False) for setting in word]
        for group in groups_of(command):
            title = command if group.title == "options" else group.title.partition(" (")[0].partition(",")[0]
            named += [(title, setting, group.chooses) for setting in group.settings.values() if not setting.hidden]
        for title, setting, chooses in named:
            name = variable(setting.option)
            if setting in word or not any(name in shown for shown in texts.values()):
                texts.setdefault(title, {})[name] = f"{name}={_example(setting)}"
            if chooses and setting.is_flag:
                texts.setdefault(title, {})[f"NO_{name}"] = f"NO_{name}=1"
    for title, shown in texts.items():
        lines = textwrap.wrap("   ".join(shown.values()), width - 34, break_long_words=False, break_on_hyphens=False)
        yield from (f"  {heading:32}{line}" for heading, line in zip([title, *[""] * len(lines)], lines, strict=False))


def _example(setting: Setting) -> str:
    """Return what a variable may be: its choices, else its default."""
    choices = [] if setting.kind == Count else choices_of(setting.kind)
    default = "" if setting.default in (None, ()) else setting.typed(setting.default)
    return "1" if setting.is_flag else "|".join(choices) or default or "..."


if __name__ == "__main__":
    print("Variables (any of them may be left out; mdcr COMMAND --help explains the options of these names):")
    print("\n".join(listing()))
