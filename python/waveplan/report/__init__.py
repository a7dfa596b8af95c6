"""Reports of planned pools and of checks: tables, text, a page, pictures."""
