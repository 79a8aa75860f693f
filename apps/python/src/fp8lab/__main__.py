"""`python -m fp8lab` is the command `fp8lab`."""

import sys

from fp8lab_command import main

if __name__ == "__main__":
    sys.exit(main())
