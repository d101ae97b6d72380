"""From what people have to the feed: folders, archives, video, cameras and scenes as Parquet."""
