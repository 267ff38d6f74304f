"""The server of a model: `bert-tf serve MODEL`.

In the order in which a text meets them:

    page.html, page.css, page.js   what the browser shows; they load nothing from elsewhere
    server      HTTP
    rest        TensorFlow Serving's REST interface: requests together, through the model
    api         answers the page's requests in JSON: the model, an answer, attention
"""
