"""The index of the search page: words of the text, not of code."""

import json

from small_site import build

PAGE = """
# Margins

Prose says smallest.

```python
def descend(): return forbidden
```
"""


def test_code_is_not_indexed_but_still_shown(tmp_path):
    site, warnings = build(tmp_path, {"index": PAGE}, "publishing.search")
    assert warnings == ""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert "smallest" in index["terms"]
    assert "forbidden" not in index["terms"]
    assert "forbidden" in (site / "index.html").read_text(encoding="utf-8")
    assert "explore_" in (site / "_static" / "language_data.js").read_text(encoding="utf-8")
