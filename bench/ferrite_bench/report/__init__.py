"""From records to a page: pictures as SVG, tables, one self-contained HTML file."""
