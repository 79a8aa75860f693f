"""The reference of the C++ library and the Python package, from the comments and docstrings of their sources."""

import ast
import functools
import inspect
import pathlib
import re


def header_comment(lines):
    """The comment after `#pragma once`, as paragraphs."""
    found = []
    for line in lines:
        if line.startswith("//"):
            found.append(line.removeprefix("//").strip())
        elif found or not line.startswith(("#pragma", "")):
            break
    return "\n".join(found)


def no_links(comment):
    """A comment as Markdown: what is no code may hold C++ that looks like a link, `[](const Point& p)`."""
    parts = comment.split("`")
    return "`".join(part if i % 2 else part.replace("](", "]\\(") for i, part in enumerate(parts))


def declarations(text):
    """(comment, declaration) of everything at the left margin that has a `///` comment."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].startswith("///"):
            at += 1
            continue
        comment = []
        while at < len(lines) and lines[at].startswith("///"):
            comment.append(lines[at].removeprefix("///").strip())
            at += 1
        declared = []
        depth = 0
        while at < len(lines) and lines[at].strip():
            declared.append(lines[at])
            depth += lines[at].count("{") - lines[at].count("}")
            at += 1
            if depth <= 0 and declared[-1].rstrip().endswith((";", "}")):
                break
        if declared:
            yield " ".join(comment), "\n".join(declared)


def room_page(room):
    """The public headers of one room."""
    lines = [f"# {room.name}", "", f"[Purpose and use of this room](../../library/{room.name}.md)." if (room / "README.md").exists() else "", ""]
    for header in sorted(room.glob("*.hpp")):
        text = header.read_text()
        lines += [f"## {room.parent.name}/{room.name}/{header.name}", "", no_links(header_comment(text.splitlines())), ""]
        for comment, declared in declarations(text):
            lines += [no_links(comment), "", "```cpp", declared, "```", ""]
    return "\n".join(lines)


def signature(node):
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}" + (f"({bases})" if bases else "")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({ast.unparse(with_shared(node))}){returns}"


def with_shared(node):
    """The arguments with those that `@with_arguments_of(function, options, before=...)` shares."""
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "with_arguments_of":
            continue
        source, options = (classes_and_functions()[argument.id] for argument in decorator.args)
        names = members(options)
        shared = [pair for pair in zip(source.args.kwonlyargs, source.args.kw_defaults) if pair[0].arg in names]
        own = list(zip(node.args.kwonlyargs, node.args.kw_defaults))
        at = [argument.arg for argument, _ in own].index(decorator.keywords[0].value.value)
        both = own[:at] + shared + own[at:]
        return ast.arguments(
            posonlyargs=node.args.posonlyargs,
            args=node.args.args,
            kwonlyargs=[argument for argument, _ in both],
            kw_defaults=[default for _, default in both],
            defaults=node.args.defaults,
        )
    return node.args


def members(options):
    """Names of a TypedDict and of its bases."""
    names = {line.target.id for line in options.body if isinstance(line, ast.AnnAssign)}
    for base in options.bases:
        if base.id in classes_and_functions():
            names |= members(classes_and_functions()[base.id])
    return names


@functools.cache
def classes_and_functions():
    """The top level of the package's modules by name."""
    package = pathlib.Path(__file__).resolve().parents[2] / "apps/python/src/fp8lab"
    nodes = [node for path in sorted(package.glob("*.py")) for node in ast.parse(path.read_text()).body]
    return {node.name: node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def described(node, level):
    """Signature and docstring of a function or class, and of a class's public members."""
    if not (text := ast.get_docstring(node)):
        return
    yield f"{'#' * level} {node.name}"
    yield f"```python\n{signature(node)}\n```"
    yield re.sub(r"^(>>> .*(?:\n.+)*)", r"```\n\1\n```", inspect.cleandoc(text), flags=re.MULTILINE)
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, (ast.FunctionDef, ast.ClassDef)) and not member.name.startswith("_"):
                yield from described(member, level + 1)


def exported(init):
    """Public names of a package, module by module: {module: names}."""
    found = {}
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level <= 1:
            found.setdefault(node.module.rpartition(".")[2], []).extend(alias.name for alias in node.names)
    return found


def python_page(package, name):
    """Everything that `import name` gives, by module."""
    text = (package / "__init__.py").read_text()
    lines = [f"# {name}", "", "```", inspect.cleandoc(ast.get_docstring(ast.parse(text)) or ""), "```", ""]
    for module, names in exported(package / "__init__.py").items():
        path = package / f"{module}.py"
        if not path.exists():
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
                lines += ["\n\n".join(described(node, 2)), ""]
    return "\n".join(lines)


def module_page(path, name):
    """A module that is imported by its own name."""
    tree = ast.parse(path.read_text())
    lines = [f"# {name}", "", "```", ast.get_docstring(tree) or "", "```", ""]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            lines += ["\n\n".join(described(node, 2)), ""]
    return "\n".join(lines)


def pages(root):
    """Path in the site -> text."""
    package = root / "apps/python/src/fp8lab"
    found = {
        "api/python/fp8lab.md": python_page(package, "fp8lab"),
        "api/python/testing.md": module_page(package / "testing.py", "fp8lab.testing"),
        "api/python/results.md": module_page(package / "results.py", "fp8lab.results"),
        "api/python/torch.md": python_page(package / "torch", "fp8lab.torch"),
    }
    for room in sorted((root / "lib").glob("*/*")):
        if any(room.glob("*.hpp")):
            found[f"api/cpp/{room.name}.md"] = room_page(room)
    return found
