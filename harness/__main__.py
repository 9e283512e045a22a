"""``python -m paretune.harness`` is ``paretune``."""

from paretune.harness.cli import main

main()
