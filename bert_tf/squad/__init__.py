"""Extractive question answering: where in a context is the answer to a question?

In the order in which a question meets them:

    reading          SQuAD files -> questions; in training, the words of each answer
    windows          questions -> windows of pieces that a model takes; where the answer is in them
    window_records   windows -> TFRecords
    (the model)      windows -> a logit for each piece to begin the answer, and to end it
    alignment        pieces -> the text of the context they stand for
    answers          logits -> the best answers, and whether there is one
    files            answers -> predictions.json, nbest_predictions.json, null_odds.json
    evaluation       answers -> exact match and F1; the best threshold for no answer
"""
