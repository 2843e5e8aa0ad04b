"""What L24's authors released, made readable: their curves and the random draws of their trials.

``python -m authors_trials.curves FILE.pdf`` reads the curves of a vector file, and
``python -m authors_trials.draws OUT.json`` draws the data of the released notebooks again. The
second needs torch, which nothing else here does: its lock is ``requirements.lock`` in this folder.
"""
