"""From bytes to codes: Arrow's structs, pages of Parquet, integers, numbers and texts."""
