"""What a run leaves: its folder, checkpoints, tables, pictures, and their copy in storage."""
