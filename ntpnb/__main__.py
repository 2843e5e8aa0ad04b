"""What ``python -m ntpnb`` runs."""

import sys

from ntpnb.reporting.command_line import main

if __name__ == "__main__":
    sys.exit(main())
