"""Writers: JSONL, JSON, CSV, Markdown, summaries, HTML, SQL."""
