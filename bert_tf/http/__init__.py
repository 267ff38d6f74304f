"""The server of a model: `bert-tf serve MODEL`. HTTP is uvicorn's and Starlette's.

In the order in which a request meets them:

    server         the port, connections that stall, the end of the process
    application    paths and errors; what is counted
    callers        the Host and Origin of those who may ask
    bodies         bodies and deadlines, within limits
    rest           TensorFlow Serving's REST interface: JSON -> arrays, answers -> JSON
    page           answers the page's requests in JSON: the model, an answer, attention
    page.html, page.css, page.js    what the browser shows; they load nothing from elsewhere
    metrics        what an operator looks at, for Prometheus
    options        limits, as flags

What computes is `bert_tf.serving.batching`.
"""
