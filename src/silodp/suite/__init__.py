"""The suite: many federations, and every method on them as it is by default.

Beside them stand the simple choices at their best: local training, FedAvg, a constant prediction.
`silodp bench suite` trains it, keeps what is finished, and writes a table, a page and a picture.
"""
