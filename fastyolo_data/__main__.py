"""`python -m fastyolo_data` is the `fastyolo` command."""

import sys

from fastyolo_data.cli.main import main

sys.exit(main())
