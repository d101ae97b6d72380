"""The way in: Parquet files listed, planned, read and decoded; a bad row costs itself only."""
