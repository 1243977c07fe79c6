"""``python -m mimw``: the same as the `mimw` command."""

import sys

from mimw.tools.main import main

sys.exit(main())
