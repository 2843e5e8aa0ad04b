"""What only the build of the book needs: running notebooks, closing the ledger, making pages."""

import sys

# jsonschema, which comes with every module for notebooks, would compile a grammar of addresses as
# it is imported: a second in each process. No schema of a notebook asks what is an address.
sys.modules.setdefault("rfc3987_syntax", None)
