"""Two versions of a made-up code base, in Python and in JavaScript, with known renames and moves."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

_WORDS = (
    "alpha", "beta", "gamma", "delta", "price", "count", "limit", "total", "index", "value", "table", "row", "cell",
    "weight", "score", "level",
)  # fmt: skip


@dataclass
class Made:
    """A function or method."""

    name: str
    params: list[str]
    body: list[str]
    doc: str = ""
    noise: int = 0


@dataclass
class MadeClass:
    name: str
    members: list[Made]


@dataclass
class CodeBase:
    """Files of functions and classes; what was renamed or moved on the way, by (file, name) before and after."""

    files: dict[str, list[Made | MadeClass]]
    renamed: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    moved: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def python(self) -> dict[str, str]:
        return {
            f"pkg/{name}.py": "import os\n\n\n" + "\n\n".join(map(_python, items)) for name, items in self.files.items()
        }

    def javascript(self) -> dict[str, str]:
        texts = {name: "\n\n".join(map(_javascript, items)) for name, items in self.files.items()}
        return {f"src/{name}.js": f"import os from 'os';\n\n{text}\n" for name, text in texts.items()}


def make(seed: int) -> CodeBase:
    dice = random.Random(seed)
    files = {f"mod{number}": _items(dice, number) for number in range(8)}
    return CodeBase(files)


def evolve(before: CodeBase, seed: int) -> CodeBase:
    """The next version: every kind of change, and noise that is none."""
    dice = random.Random(seed)
    after = CodeBase(copy.deepcopy(before.files))
    arrivals: dict[str, list[Made]] = {name: [] for name in after.files}
    for name in list(after.files):
        items = after.files[name]
        for item in list(items):
            _change(dice, after, name, items, item, arrivals)
        for number in range(dice.randint(0, 2)):
            items.append(_function(dice, f"fresh_{name}_{number}"))
    for name, items in after.files.items():
        items += arrivals[name]
        dice.shuffle(items)
    return after


def _change(
    dice: random.Random,
    base: CodeBase,
    file: str,
    items: list[Made | MadeClass],
    item: Made | MadeClass,
    arrivals: dict[str, list[Made]],
) -> None:
    chance = dice.random()
    if isinstance(item, MadeClass):
        for member in item.members:
            _edit(dice, member)
        if chance < 0.1:
            items.remove(item)
        return
    if chance < 0.08:
        items.remove(item)
    elif chance < 0.2:
        base.renamed[file, item.name] = (file, f"{item.name}_anew")
        item.name += "_anew"
    elif chance < 0.32:
        target = dice.choice([name for name in base.files if name != file])
        base.moved[file, item.name] = (target, item.name)
        items.remove(item)
        arrivals[target].append(item)
    else:
        _edit(dice, item)


def _edit(dice: random.Random, item: Made) -> None:
    chance = dice.random()
    if chance < 0.2:
        item.body[dice.randrange(len(item.body))] = _statement(dice)
    elif chance < 0.3:
        item.params = [*item.params, f"extra_{dice.choice(_WORDS)}"]
    elif chance < 0.4:
        item.doc = f"About {dice.choice(_WORDS)}."
    elif chance < 0.6:
        item.noise += 1


def _items(dice: random.Random, file: int) -> list[Made | MadeClass]:
    functions: list[Made | MadeClass] = [_function(dice, f"do_{file}_{number}") for number in range(10)]
    for number in range(3):
        members = [_function(dice, f"m_{file}_{number}_{member}") for member in range(4)]
        functions.append(MadeClass(f"Thing{file}x{number}", members))
    return functions


def _function(dice: random.Random, name: str) -> Made:
    params = dice.sample(_WORDS, dice.randint(1, 3))
    return Made(name, params, [_statement(dice) for _ in range(dice.randint(4, 8))], "Does things.")


def _statement(dice: random.Random) -> str:
    one, two, three = dice.sample(_WORDS, 3)
    return dice.choice([
        f"{one} = {two} + {dice.randint(1, 999)}", f"{one} = call_{two}({three}, {dice.randint(1, 999)})",
        f"call_{one}('{two}', [{three}, {dice.randint(1, 999)}])",
        f"{one} = {two} * ({three} - {dice.randint(1, 999)})",
    ])  # fmt: skip


def _python(item: Made | MadeClass) -> str:
    if isinstance(item, MadeClass):
        return f"class {item.name}:\n" + "\n".join(
            _python_function(member, "    ", ["self"]) for member in item.members
        )
    return _python_function(item, "", [])


def _python_function(item: Made, indent: str, first: list[str]) -> str:
    params = [*first, *item.params]
    joined = (
        ", ".join(params)
        if item.noise % 2 == 0
        else f"\n{indent}    " + f",\n{indent}    ".join(params) + f",\n{indent}"
    )
    lines = [f"{indent}def {item.name}({joined}):", f'{indent}    """{item.doc}"""']
    for number, statement in enumerate(item.body):
        inner = "    " if number % 3 == 2 else ""
        if inner:
            lines.append(f"{indent}    if {item.params[0]}:" + ("  # why" if item.noise % 2 else ""))
        quoted = statement.replace("'", '"') if item.noise % 2 else statement
        lines.append(f"{indent}    {inner}{quoted}")
    return "\n".join([*lines, f"{indent}    return {item.params[-1]}", ""])


def _javascript(item: Made | MadeClass) -> str:
    if isinstance(item, MadeClass):
        members = "\n".join(_javascript_function(member, "  ", "") for member in item.members)
        return f"export class {item.name} {{\n{members}\n}}"
    return _javascript_function(item, "", "export function ")


def _javascript_function(item: Made, indent: str, keyword: str) -> str:
    joined = ", ".join(item.params) if item.noise % 2 == 0 else "\n" + ",\n".join(item.params) + ",\n"
    lines = [f"{indent}/** {item.doc} */", f"{indent}{keyword}{item.name}({joined}) {{"]
    for number, statement in enumerate(item.body):
        head = f"if ({item.params[0]}) " if number % 3 == 2 else ""
        quoted = statement.replace("'", '"') if item.noise % 2 else statement
        comment = " // why" if item.noise % 2 else ""
        lines.append(f"{indent}  {head}{{ {quoted}; }}{comment}")
    return "\n".join([*lines, f"{indent}  return {item.params[-1]};", f"{indent}}}"])
