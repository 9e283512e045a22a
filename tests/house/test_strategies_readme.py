"""The table of strategies in the README is the registry's own."""

from pathlib import Path

from paretune.strategies.table import markdown

README = Path(__file__).parents[2] / "strategies" / "README.md"
MARK = "<!-- made by paretune.strategies.table -->\n"


def test_the_table_is_up_to_date():
    _, found, table = README.read_text().partition(MARK)
    assert found, "the mark before the table is missing"
    assert table.strip() == markdown(), "replace what follows the mark with paretune.strategies.table.markdown()"
