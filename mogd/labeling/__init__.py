"""The page on which people make the small clean set, one row at a time."""
