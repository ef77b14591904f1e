"""The checkpoint: a folder of weights, configuration and card, on disk or on the Hugging Face hub.

::

    model.safetensors   the tensors, nothing else
    config.json         which class (by public key), its configuration, what it is fed, how its result
                        was measured, how it was trained, and the hash of the weights
    README.md           the same for people

A folder is written whole or not at all. Loading one runs nothing that came with it: the class is
looked up in a table of this process, everything else is JSON and tensors.
"""

from worldplan.checkpoint.keys import register_key
from worldplan.checkpoint.loading import describe, from_pretrained, load
from worldplan.checkpoint.saving import push_to_hub, save, save_pretrained
from worldplan.checkpoint.sources import packaged, resolve

__all__ = [
    "describe",
    "from_pretrained",
    "load",
    "packaged",
    "push_to_hub",
    "register_key",
    "resolve",
    "save",
    "save_pretrained",
]
