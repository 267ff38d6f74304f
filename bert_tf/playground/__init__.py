"""A page on which a model can be tried: `bert-tf playground EXPORT`.

In the order in which a text meets them:

    page.html, page.css, page.js   what the browser shows; they load nothing from elsewhere
    server      HTTP, for this machine's browser alone
    api         answers the page's requests in JSON: the model, an answer, attention
"""
