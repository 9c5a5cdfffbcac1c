"""The rows of matches: nodes followed back to where they began."""

import numpy as np

from headrace.cep.loops.arrays import copy_row
from headrace.cep.loops.layout import (
    M_NODE,
    N_HASH,
    N_PARENT,
    N_PLACE,
    N_ROW,
    N_STATE,
    N_WIDTH,
    R_NODE,
    S_VARIABLE,
    Longs,
)
from headrace.cep.loops.runs import HASHED, hashed
from headrace.jit import compiled


@compiled
def depth_of(nodes: Longs, node: int) -> int:
    depth = 0
    while node >= 0:
        depth += 1
        node = nodes[node, N_PARENT]
    return depth


@compiled
def collect(
    nodes: Longs, runs: Longs, run_ends: Longs, waiting: Longs, waiting_ends: Longs
) -> tuple[Longs, Longs]:  # fmt: skip
    """The nodes that partial matches still hold, the others left out, and the key of each.

    The runs and matches point to where they are from now on.
    """
    owners = np.full(len(nodes), -1, np.int64)
    begin = 0
    for key in range(len(run_ends)):
        for number in range(begin, run_ends[key]):
            owners[runs[number, R_NODE]] = key
        begin = run_ends[key]
    begin = 0
    for key in range(len(waiting_ends)):
        for number in range(begin, waiting_ends[key]):
            owners[waiting[number, M_NODE]] = key
        begin = waiting_ends[key]
    for number in range(len(nodes) - 1, -1, -1):
        if owners[number] >= 0 and nodes[number, N_PARENT] >= 0:
            owners[nodes[number, N_PARENT]] = owners[number]
    places = np.empty(len(nodes), np.int64)
    keys = np.empty(len(nodes), np.int64)
    count = 0
    for number in range(len(nodes)):
        if owners[number] >= 0:
            places[number] = count
            keys[count] = owners[number]
            count += 1
    held = np.empty((count, N_WIDTH), np.int64)
    for number in range(len(nodes)):
        if owners[number] >= 0:
            copy_row(held, places[number], nodes, number)
            parent = nodes[number, N_PARENT]
            held[places[number], N_PARENT] = places[parent] if parent >= 0 else -1
    for number in range(len(runs)):
        runs[number, R_NODE] = places[runs[number, R_NODE]]
    for number in range(len(waiting)):
        waiting[number, M_NODE] = places[waiting[number, M_NODE]]
    return held, keys[:count]


@compiled
def measure_paths(nodes: Longs, found: Longs, ends: Longs) -> int:
    """Where the rows of each match end; how many there are in all."""
    total = 0
    for number in range(len(found)):
        total += depth_of(nodes, found[number, M_NODE])
        ends[number] = total
    return total


@compiled
def write_paths(nodes: Longs, found: Longs, ends: Longs, path: Longs) -> None:
    """The nodes of some matches in their order, one match behind the other; `ends` says where each ends."""
    for number in range(len(found)):
        at = ends[number]
        node = found[number, M_NODE]
        while node >= 0:
            at -= 1
            path[at] = node
            node = nodes[node, N_PARENT]


@compiled
def hash_nodes(nodes: Longs, states: Longs) -> None:
    """Fill in what is not kept between calls."""
    for node in range(len(nodes)):
        parent = nodes[node, N_PARENT]
        before = nodes[parent, N_HASH] if parent >= 0 else HASHED
        nodes[node, N_HASH] = hashed(before, nodes[node, N_ROW], states[nodes[node, N_STATE], S_VARIABLE])
        nodes[node, N_PLACE] = node
