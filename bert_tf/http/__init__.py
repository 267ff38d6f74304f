"""The server of a model: `bert-tf serve MODEL`. HTTP is uvicorn's and Starlette's.

In the order in which a request meets them:

    server         the port, stalled connections, the end of the process
    application    paths, errors, counts
    callers        refuses requests by their Host and Origin
    bodies         reads bodies, with limits and deadlines
    rest           TensorFlow Serving's REST interface: JSON -> arrays, answers -> JSON
    page           answers the page's requests in JSON: the model, an answer, attention
    page.html, page.css, page.js    what the browser shows; they load nothing from other hosts
    metrics        figures for an operator, for Prometheus
    options        limits, as flags

`bert_tf.serving.batching` computes the answers.
"""
