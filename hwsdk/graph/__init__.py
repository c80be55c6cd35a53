"""What is computed: a graph of primitive ops over tensors whose dims are expressions.

    dims, expr*           integer expressions over named symbols: the language of sizes, indices and guards
    constraints           what is known about the symbols of one graph
    scalar                what one scalar operation means, for every dtype
    opdef, ops, ops_*     the primitive ops: attributes, shape rule, NumPy reference
    graph                 values, nodes, graphs, and the builder
    verify, interpret     the rules of the language, and its meaning
    text                  the printed form, and back
    passes/               graph to graph, with the same meaning

Design choice: nothing is imported here, so that `hwsdk.graph.dims` alone costs little.
"""
