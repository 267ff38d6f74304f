"""A page on which a model can be tried: `python -m bert_tf.playground EXPORT`.

In the order in which a text meets them:

    page.html, page.css, page.js   what the browser shows; nothing of it comes from elsewhere
    server      answers this machine's browser, and nobody else
    views       what the page is told: the model, answers, pieces and attention
    sequences   the texts of a request -> the sequences of pieces that the model sees
    attention   where each head of a layer looks

An export needs nothing more than export_model.py gives it: its weights are in it under their
names, and attention is computed of these once more.
"""
