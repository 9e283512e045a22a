"""The table of attention backends in the README is the catalogue's own."""

from pathlib import Path

from paretune.attention.catalog.table import markdown

README = Path(__file__).parents[2] / "attention" / "README.md"
MARK = "<!-- made by paretune.attention.catalog.table -->\n"


def test_the_table_is_up_to_date():
    _, found, table = README.read_text().partition(MARK)
    assert found, "the mark before the table is missing"
    assert table.strip() == markdown(), "replace what follows the mark with paretune.attention.catalog.table.markdown()"
