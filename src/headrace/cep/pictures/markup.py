"""A diagram as text for other programs that draw: Graphviz and Mermaid."""

from typing import Final

from headrace.cep.pictures.diagram import Arrow, Box, Diagram, Kind
from headrace.cep.tree import Contiguity

_DOT_STYLES: Final = {Contiguity.STRICT: "solid", Contiguity.RELAXED: "dashed", Contiguity.ANY: "dotted"}


def as_dot(diagram: Diagram) -> str:
    """For Graphviz: `dot -Tsvg`."""
    lines = [
        "digraph pattern {",
        f"  label={_dot(diagram.summary)}; rankdir=TB; fontname=Helvetica;",
        '  node [shape=box, style="rounded", fontname=Helvetica]; edge [fontname=Helvetica, fontsize=10];',
    ]
    for number, box in enumerate(diagram.boxes):
        shape = {Kind.START: ", shape=circle", Kind.MATCH: ", shape=doublecircle"}.get(box.kind, "")
        shape += ', style="rounded,dashed"' if box.is_excluded else ""
        lines.append(f"  {number} [label={_dot(_said(box))}{shape}];")
    for arrow in diagram.arrows:
        style = _DOT_STYLES[arrow.contiguity] if not arrow.is_timed else "solid"
        lines.append(f"  {arrow.source} -> {arrow.target} [label={_dot(_words(arrow))}, style={style}];")
    return "\n".join([*lines, "}"])


def as_mermaid(diagram: Diagram) -> str:
    """For Mermaid, as pages of Markdown show it."""
    lines = ["flowchart TB"]
    for number, box in enumerate(diagram.boxes):
        begin, end = {Kind.START: ("((", "))"), Kind.MATCH: ("(((", ")))")}.get(box.kind, ("(", ")"))
        lines.append(f"  s{number}{begin}{_mermaid(_said(box))}{end}")
    for arrow in diagram.arrows:
        line = "-->" if arrow.contiguity is Contiguity.STRICT or arrow.is_timed else "-.->"
        label = f"|{_mermaid(_words(arrow))}|" if arrow.label else ""
        lines.append(f"  s{arrow.source} {line}{label} s{arrow.target}")
    return "\n".join(lines)


def _said(box: Box) -> str:
    return f"{box.title}\n{box.condition}" if box.condition else box.title


def _words(arrow: Arrow) -> str:
    return "\n".join(text for _, text in arrow.label)


def _dot(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# Written by their numbers, these are nothing that Mermaid or a browser would obey.
_MERMAID: Final = str.maketrans({letter: f"#{ord(letter)};" for letter in '"#&;<>`*_[]{}()|\\'} | {"\n": "<br/>"})


def _mermaid(text: str) -> str:
    return f'"{text.translate(_MERMAID)}"'
