"""What the pages of the book cite."""

import re

from publishing import project


def cited(name):
    """Keys of the bibliography that a notebook cites."""
    text = project.source(name).read_text(encoding="utf-8")
    roles = re.findall(r"\{cite:[pt]\}`([^`]+)`", text)
    return {key.strip() for role in roles for key in role.split(",")}
