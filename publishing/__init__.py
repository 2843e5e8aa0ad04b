"""What only the build of the book needs: running notebooks, closing the ledger, making pages."""
