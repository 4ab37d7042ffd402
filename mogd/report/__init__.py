"""From records (JSON lines) to something a person reads: one HTML page, or the tables as Markdown, LaTeX or CSV."""
