"""Classification of nodes: a head on the embeddings of a fitted run.

>>> import dsrd
>>> from dsrd.classify import NodeClassifier
>>> model = dsrd.LinkPredictor(epochs=1, dim=8, seed=1).fit("synth:events=600", progress=False)
>>> classifier = NodeClassifier.fit(model, epochs=2)
>>> sorted(classifier.record["results"])
['test', 'val']
"""

from dsrd.classify.classifier import NodeClassifier

__all__ = ["NodeClassifier"]
