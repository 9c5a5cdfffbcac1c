"""Automata drawn, pure: one diagram, one layout, and the forms it is shown in.

    diagram.py   boxes and arrows with their words, from an automaton
    layout.py    where they stand, in cells of text: boxes below each other, all other arrows on rails beside them
    svg.py       a picture for browsers, light and dark
    text.py      the same in a terminal
    markup.py    the diagram for Graphviz and for Mermaid

What always holds: every edge of the automaton is an arrow, no two arrows share a rail where both run, and nothing that
a pattern's author wrote is obeyed by a browser or a terminal.
"""
