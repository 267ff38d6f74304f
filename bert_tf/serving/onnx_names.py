"""Names in an ONNX file, so that a model always gives the same bytes, and free sizes have names.

The converter's names, numbers and order depend on hashes of strings and on what the process
converted before. Here nodes are ordered by what they compute: only those that an output needs, each
after the nodes that it reads from; and all names are given in that order.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Dimensions = Mapping[str, Sequence[str]]  # of inputs and outputs


def write_named(path: str, dimensions: Dimensions) -> None:
    """Renames everything in an ONNX file, in place.

    Args:
      path: the path of the file.
      dimensions: the dimensions of each input and output, a name for each dimension; used where the
        size is free.
    """
    import onnx

    model = onnx.load(path)
    graph = model.graph
    model.doc_string = graph.doc_string = ""
    ends = [*graph.input, *graph.output]
    name_in_order(graph, {end.name: end.name for end in ends}, itertools.count())
    for end in ends:
        shape = end.type.tensor_type.shape.dim
        for place, name in zip(shape, dimensions[end.name], strict=True):
            if place.dim_param:
                place.dim_param = name
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


def name_in_order(graph: Any, names: dict[str, str], numbers: Iterator[int]) -> None:
    """Orders the nodes of a graph, drops what no output needs, and names the rest by its place.

    Args:
      graph: an onnx.GraphProto, changed in place.
      names: new names of tensors by their old ones; the names of this graph are added.
      numbers: for the new names.
    """
    nodes = nodes_in_order(graph)
    needed = []
    tensors = {tensor.name: tensor for tensor in graph.initializer}

    def need(name: str) -> None:
        if name in tensors and name not in names:
            names[name] = f"constant_{next(numbers)}"
            needed.append(tensors[name])

    for end in graph.input:
        names.setdefault(end.name, f"input_{next(numbers)}")
    for node in nodes:
        for name in names_read(node):
            need(name)
        node.name = f"{node.op_type}_{next(numbers)}"
        node.doc_string = ""
        for place, name in enumerate(filter(None, node.output)):
            names.setdefault(name, f"{node.name}:{place}")
        for inner in inner_graphs(node):
            name_in_order(inner, dict(names), numbers)
        node.input[:] = [names[name] if name else "" for name in node.input]
        node.output[:] = [names[name] if name else "" for name in node.output]
    for end in graph.output:
        need(end.name)
    for named in (*needed, *graph.input, *graph.output):
        named.name = names[named.name]
    for field, values in ((graph.node, nodes), (graph.initializer, needed)):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)
    del graph.value_info[:]  # of intermediate tensors, which readers infer


def nodes_in_order(graph: Any) -> list[Any]:
    """The nodes that the outputs of a graph need, each after the nodes that it reads from."""
    makers = {name: node for node in graph.node for name in node.output if name}
    ordered: dict[int, Any] = {}
    waiting = [(makers[end.name], False) for end in reversed(graph.output) if end.name in makers]
    while waiting:
        node, is_ready = waiting.pop()
        if id(node) in ordered:
            continue
        if is_ready:
            ordered[id(node)] = node
            continue
        waiting.append((node, True))
        before = [makers[name] for name in names_read(node) if name in makers]
        waiting += [(maker, False) for maker in reversed(before)]
    return list(ordered.values())


def names_read(node: Any) -> list[str]:
    """The tensors that a node reads, in order, with those that its branches read from outside."""
    names = [*node.input]
    for graph in inner_graphs(node):
        for inner in nodes_in_order(graph):
            names += names_read(inner)
        names += [end.name for end in graph.output]
    return names


def inner_graphs(node: Any) -> list[Any]:
    """The graphs among a node's attributes, such as the branches of an If, by their names."""
    attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
    return [attribute.g for attribute in attributes if attribute.HasField("g")]
