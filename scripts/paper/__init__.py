"""What scripts/make_paper is made of: results read, tables, figures, the page that shows them."""
